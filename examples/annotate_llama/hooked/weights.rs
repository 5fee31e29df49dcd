//! A small Llama with weights that are the same in every run.

use std::collections::HashMap;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use serde_json::json;

const WIDTH: usize = 32;
const INNER: usize = 64;
const TOKENS: usize = 50;
const LAYERS: usize = 2;
const HEADS: usize = 4;
/// Keys and values are shared by two heads each.
const SHARED: usize = 2;

/// The config, for either of the crates.
pub fn config<C: for<'j> serde::Deserialize<'j>>() -> Result<C> {
    Ok(serde_json::from_value(json!({
        "hidden_size": WIDTH, "intermediate_size": INNER, "vocab_size": TOKENS, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": SHARED, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "bos_token_id": null, "eos_token_id": null, "rope_scaling": null,
        "tie_word_embeddings": false,
    }))?)
}

pub fn random(device: &Device) -> Result<VarBuilder<'static>> {
    let narrow = WIDTH / HEADS * SHARED;
    let mut shapes = vec![
        ("model.embed_tokens".to_string(), vec![TOKENS, WIDTH]),
        ("model.norm".to_string(), vec![WIDTH]),
        ("lm_head".to_string(), vec![TOKENS, WIDTH]),
    ];
    for layer in 0..LAYERS {
        for (name, shape) in [
            ("self_attn.q_proj", vec![WIDTH, WIDTH]),
            ("self_attn.k_proj", vec![narrow, WIDTH]),
            ("self_attn.v_proj", vec![narrow, WIDTH]),
            ("self_attn.o_proj", vec![WIDTH, WIDTH]),
            ("mlp.gate_proj", vec![INNER, WIDTH]),
            ("mlp.up_proj", vec![INNER, WIDTH]),
            ("mlp.down_proj", vec![WIDTH, INNER]),
            ("input_layernorm", vec![WIDTH]),
            ("post_attention_layernorm", vec![WIDTH]),
        ] {
            shapes.push((format!("model.layers.{layer}.{name}"), shape));
        }
    }
    let mut tensors = HashMap::new();
    for (number, (name, shape)) in shapes.into_iter().enumerate() {
        let count: usize = shape.iter().product();
        // Between -0.5 and 0.5, and as good as random.
        let data: Vec<f32> = (0..count).map(|i| ((i * 7919 + number * 104_729) as f32).sin() / 2.).collect();
        tensors.insert(format!("{name}.weight"), Tensor::from_vec(data, shape, device)?);
    }
    Ok(VarBuilder::from_tensors(tensors, DType::F32, device))
}
