//! Models of pictures and text.

use candle_core::{Device, Module, Tensor};
use serde_json::{json, Value};

use super::inputs::{batch, config, decode, image, row, NEXT, PROMPT};
use super::transformers::models;
use super::weights::{weights, weights_without};
use super::{Visit, AGAIN};

pub fn visit(visitor: &mut impl Visit) {
    clip(visitor);
    chinese_clip(visitor);
    siglip(visitor);
    blip(visitor);
    moondream(visitor);
    paligemma(visitor);
    pixtral_vision(visitor);
}

fn clip(visitor: &mut impl Visit) {
    use models::clip::text_model::{Activation, ClipTextConfig};
    use models::clip::vision_model::ClipVisionConfig;
    use models::clip::{ClipConfig, ClipModel};
    let config = ClipConfig {
        text_config: ClipTextConfig {
            vocab_size: 64,
            embed_dim: 32,
            activation: Activation::QuickGelu,
            intermediate_size: 48,
            max_position_embeddings: 16,
            pad_with: None,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            projection_dim: 24,
        },
        vision_config: ClipVisionConfig {
            embed_dim: 32,
            activation: Activation::QuickGelu,
            intermediate_size: 48,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            projection_dim: 24,
            num_channels: 3,
            image_size: 32,
            patch_size: 8,
        },
        logit_scale_init_value: 2.6592,
        image_size: 32,
    };
    visitor.shared(
        "clip",
        || ClipModel::new(weights(), &config),
        |model| {
            let (picture, ids) = (image(32)?, batch()?);
            let (by_text, by_image) = model.forward(&picture, &ids)?;
            let text = model.get_text_features(&ids)?;
            Ok(vec![by_text, by_image, text])
        },
    );
}

fn chinese_clip(visitor: &mut impl Visit) {
    use models::chinese_clip::text_model::ChineseClipTextConfig;
    use models::chinese_clip::vision_model::ChineseClipVisionConfig;
    use models::chinese_clip::{ChineseClipConfig, ChineseClipModel};
    let config = ChineseClipConfig {
        text_config: ChineseClipTextConfig {
            vocab_size: 64,
            hidden_size: 32,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            intermediate_size: 48,
            max_position_embeddings: 16,
            ..ChineseClipTextConfig::clip_vit_base_patch16()
        },
        vision_config: ChineseClipVisionConfig {
            hidden_size: 32,
            intermediate_size: 48,
            projection_dim: 24,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            image_size: 32,
            patch_size: 8,
            ..ChineseClipVisionConfig::clip_vit_base_patch16()
        },
        projection_dim: 24,
        ..ChineseClipConfig::clip_vit_base_patch16()
    };
    visitor.shared(
        "chinese_clip",
        || ChineseClipModel::new(weights_without(&["pooler"]), &config),
        |model| {
            let (by_text, by_image) = model.forward(&image(32)?, &batch()?, None, None)?;
            Ok(vec![by_text, by_image])
        },
    );
}

fn siglip_vision() -> Value {
    json!({
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_channels": 3, "image_size": 32, "patch_size": 8,
    })
}

fn siglip(visitor: &mut impl Visit) {
    let fields = json!({
        "text_config": {
            "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 16,
        },
        "vision_config": siglip_vision(),
    });
    visitor.shared(
        "siglip",
        || models::siglip::Model::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            let (by_text, by_image) = model.forward(&image(32)?, &batch()?)?;
            Ok(vec![by_text, by_image, model.get_image_features(&image(32)?)?])
        },
    );
}

fn blip(visitor: &mut impl Visit) {
    let shared = json!({
        "hidden_size": 32, "intermediate_size": 48, "projection_dim": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
        "vocab_size": 64, "encoder_hidden_size": 32, "max_position_embeddings": 32,
        "is_decoder": true, "image_size": 32, "patch_size": 8,
    });
    let fields = json!({
        "text_config": shared, "vision_config": shared, "projection_dim": 24, "image_text_hidden_size": 24,
    });
    visitor.exclusive(
        "blip",
        AGAIN,
        || models::blip::BlipForConditionalGeneration::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            model.reset_kv_cache();
            let seen = image(32)?.apply(model.vision_model())?;
            let mut outputs = decode(|ids, _| model.text_decoder().forward(ids, &seen))?;
            outputs.push(seen);
            Ok(outputs)
        },
    );
}

/// The patch embedding of this model has a fixed width.
fn moondream(visitor: &mut impl Visit) {
    let fields = json!({
        "phi_config": {
            "vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_inner": 48, "n_head": 4,
            "rotary_dim": 4, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": false, "pad_vocab_size_multiple": 64,
        },
        "vision_config": {
            "image_embedding_dim": 1152, "model_dim": 32, "hidden_dim": 48, "hidden_features": 48,
            "embed_len": 4, "embed_dim": 1152, "num_blocks": 1, "num_heads": 8, "act": "gelu_pytorch_tanh",
        },
    });
    visitor.exclusive(
        "moondream",
        AGAIN,
        || models::moondream::Model::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            model.text_model.clear_kv_cache();
            let seen = model.vision_encoder().forward(&image(28)?)?;
            let start = row(&[1])?;
            let first = model.text_model.forward_with_img(&start, &row(&PROMPT)?, &seen)?;
            let next = model.text_model.forward(&row(&[NEXT])?)?;
            Ok(vec![seen, first, next])
        },
    );
}

fn paligemma(visitor: &mut impl Visit) {
    let fields = json!({
        "vision_config": siglip_vision(), "projection_dim": 32,
        "text_config": {
            "attention_bias": false, "head_dim": 8, "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
            "num_hidden_layers": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "vocab_size": 64, "max_position_embeddings": 64,
        },
    });
    visitor.exclusive(
        "paligemma",
        AGAIN,
        || models::paligemma::Model::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            model.clear_kv_cache();
            let first = model.setup(&image(32)?, &row(&PROMPT)?)?;
            let next = model.forward(&Tensor::new(&[[NEXT]], &Device::Cpu)?)?;
            Ok(vec![first, next])
        },
    );
}

fn pixtral_vision(visitor: &mut impl Visit) {
    let fields = json!({
        "hidden_size": 32, "num_channels": 3, "image_size": 32, "patch_size": 8, "rope_theta": 10000.0,
        "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8, "num_attention_heads": 4,
        "hidden_act": "silu",
    });
    visitor.shared(
        "pixtral_vision",
        || models::pixtral::vision_model::Model::new(&config(fields.clone(), json!({}))?, weights()),
        |model| Ok(vec![model.forward(&image(32)?)?]),
    );
}
