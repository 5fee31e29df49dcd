//! Quantized models, loaded from GGUF files that are made in memory.

use std::io::Cursor;

use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Result, Shape};
use serde_json::json;

use super::audio::whisper_fields;
use super::inputs::{config, decode, noise, read, row, PROMPT};
use super::language::small;
use super::sequence::t5_fields;
use super::transformers::models;
use super::transformers::quantized_var_builder::VarBuilder;
use super::weights::{record, tensor};
use super::{Visit, AGAIN, FRESH};

pub fn visit(visitor: &mut impl Visit) {
    quantized_llama(visitor);
    quantized_llama_experts(visitor);
    quantized_qwen2(visitor);
    quantized_qwen3(visitor);
    quantized_gemma3(visitor);
    quantized_phi(visitor);
    quantized_t5(visitor);
    quantized_mistral(visitor);
    quantized_mixformer(visitor);
    quantized_stable_lm(visitor);
    quantized_rwkv_v6(visitor);
    quantized_whisper(visitor);
}

/// A GGUF file: matrices whose rows can be cut into blocks are quantized in one of two ways, the rest
/// is not.
fn file(metadata: &[(String, Value)], tensors: &[(String, Shape)]) -> Result<Vec<u8>> {
    let quantized = tensors
        .iter()
        .map(|(name, shape)| {
            let dtype = match shape.dims() {
                [_, width] if width % 32 != 0 => GgmlDType::F32,
                [_, _] if name.len() % 2 == 0 => GgmlDType::Q4_0,
                [_, _] => GgmlDType::Q8_0,
                _ => GgmlDType::F32,
            };
            QTensor::quantize(&tensor(name, shape)?, dtype)
        })
        .collect::<Result<Vec<_>>>()?;
    let metadata: Vec<_> = metadata.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, _)| name.as_str()).zip(&quantized).collect();
    let mut bytes = Cursor::new(Vec::new());
    gguf_file::write(&mut bytes, &metadata, &tensors)?;
    Ok(bytes.into_inner())
}

/// The weights of a quantized model whose tensors are called as those of the model that it came from.
fn same_names(tensors: &[(String, Shape)]) -> Result<VarBuilder> {
    VarBuilder::from_gguf_buffer(&file(&[], tensors)?, &Device::Cpu)
}

/// A decoder of llama.cpp's `kind`, of two blocks with the tensors `block` and, around them, `top`.
fn decoder_file(kind: &str, block: &[(&str, &[usize])], top: &[(&str, &[usize])]) -> Result<Vec<u8>> {
    let fused = block.iter().any(|(name, _)| *name == "attn_qkv.weight");
    let numbers = [
        ("attention.head_count", 4),
        ("attention.head_count_kv", if fused { 4 } else { 2 }),
        ("attention.key_length", 16),
        ("attention.value_length", 16),
        ("attention.sliding_window", 4),
        ("attention.sliding_window_type", 2),
        ("block_count", 2),
        ("context_length", 32),
        ("embedding_length", 64),
        ("rope.dimension_count", 16),
    ];
    let small = [
        ("attention.layer_norm_rms_epsilon", 1e-6),
        ("attention.layer_norm_epsilon", 1e-5),
        ("rope.freq_base", 10000.),
    ];
    let numbers = numbers.iter().map(|(name, value)| (format!("{kind}.{name}"), Value::U32(*value)));
    let small = small.iter().map(|(name, value)| (format!("{kind}.{name}"), Value::F32(*value)));
    let mut metadata: Vec<_> = numbers.chain(small).collect();
    metadata.push(("general.architecture".to_string(), Value::String(kind.to_string())));
    metadata.push(("general.dtype".to_string(), Value::U32(0)));
    let experts = block.iter().filter(|(name, _)| name.starts_with("ffn_gate.")).count();
    metadata.push((format!("{kind}.expert_count"), Value::U32(experts as u32)));
    metadata.push((format!("{kind}.expert_used_count"), Value::U32(2)));

    let mut tensors = Vec::new();
    for (name, dims) in [("token_embd.weight", &[64, 64][..]), ("output_norm.weight", &[64])] {
        tensors.push((name.to_string(), Shape::from(dims)));
    }
    tensors.extend(top.iter().map(|(name, dims)| (name.to_string(), Shape::from(*dims))));
    for index in 0..2 {
        let named = |(name, dims): &(&str, &[usize])| (format!("blk.{index}.{name}"), Shape::from(*dims));
        tensors.extend(block.iter().map(named));
    }
    file(&metadata, &tensors)
}

/// Reads a file as the loaders of these models want it.
macro_rules! load {
    ($model:ty, $bytes:expr) => {{
        let mut bytes = Cursor::new($bytes);
        let content = Content::read(&mut bytes)?;
        <$model>::from_gguf(content, &mut bytes, &Device::Cpu)
    }};
}

const ATTENTION: [(&str, &[usize]); 6] = [
    ("attn_q.weight", &[64, 64]),
    ("attn_k.weight", &[32, 64]),
    ("attn_v.weight", &[32, 64]),
    ("attn_output.weight", &[64, 64]),
    ("attn_norm.weight", &[64]),
    ("ffn_norm.weight", &[64]),
];

const FEED_FORWARD: [(&str, &[usize]); 3] =
    [("ffn_gate.weight", &[96, 64]), ("ffn_down.weight", &[64, 96]), ("ffn_up.weight", &[96, 64])];

const HEAD_NORMS: [(&str, &[usize]); 2] = [("attn_q_norm.weight", &[16]), ("attn_k_norm.weight", &[16])];

const OUTPUT: [(&str, &[usize]); 1] = [("output.weight", &[64, 64])];

fn quantized_llama(visitor: &mut impl Visit) {
    use models::quantized_llama::ModelWeights;
    let blocks = [&ATTENTION[..], &FEED_FORWARD].concat();
    visitor.exclusive(
        "quantized_llama",
        AGAIN,
        || load!(ModelWeights, decoder_file("llama", &blocks, &OUTPUT)?),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

fn quantized_llama_experts(visitor: &mut impl Visit) {
    use models::quantized_llama::ModelWeights;
    let names: Vec<(String, &[usize])> = (0..4)
        .flat_map(|expert| FEED_FORWARD.map(|(name, dims)| (name.replace('.', &format!(".{expert}.")), dims)))
        .collect();
    let experts = names.iter().map(|(name, dims)| (name.as_str(), *dims));
    let mut blocks: Vec<(&str, &[usize])> = ATTENTION.into_iter().chain(experts).collect();
    blocks.push(("ffn_gate_inp.weight", &[4, 64]));
    visitor.exclusive(
        "quantized_llama_experts",
        AGAIN,
        || load!(ModelWeights, decoder_file("llama", &blocks, &[])?),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

fn quantized_qwen2(visitor: &mut impl Visit) {
    use models::quantized_qwen2::ModelWeights;
    let biases: [(&str, &[usize]); 3] =
        [("attn_q.bias", &[64]), ("attn_k.bias", &[32]), ("attn_v.bias", &[32])];
    let blocks = [&ATTENTION[..], &FEED_FORWARD, &biases].concat();
    visitor.exclusive(
        "quantized_qwen2",
        AGAIN,
        || load!(ModelWeights, decoder_file("qwen2", &blocks, &OUTPUT)?),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

fn quantized_qwen3(visitor: &mut impl Visit) {
    use models::quantized_qwen3::ModelWeights;
    let blocks = [&ATTENTION[..], &FEED_FORWARD, &HEAD_NORMS].concat();
    visitor.exclusive(
        "quantized_qwen3",
        AGAIN,
        || load!(ModelWeights, decoder_file("qwen3", &blocks, &[])?),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

fn quantized_gemma3(visitor: &mut impl Visit) {
    use models::quantized_gemma3::ModelWeights;
    let after: [(&str, &[usize]); 2] =
        [("post_attention_norm.weight", &[64]), ("post_ffw_norm.weight", &[64])];
    let blocks = [&ATTENTION[..], &FEED_FORWARD, &HEAD_NORMS, &after].concat();
    visitor.exclusive(
        "quantized_gemma3",
        FRESH,
        || load!(ModelWeights, decoder_file("gemma3", &blocks, &[])?),
        |model| decode(|ids, position| model.forward(ids, position)),
    );
}

fn quantized_phi(visitor: &mut impl Visit) {
    use models::quantized_phi::ModelWeights;
    let blocks: [(&str, &[usize]); 10] = [
        ("attn_qkv.weight", &[192, 64]),
        ("attn_qkv.bias", &[192]),
        ("attn_output.weight", &[64, 64]),
        ("attn_output.bias", &[64]),
        ("attn_norm.weight", &[64]),
        ("attn_norm.bias", &[64]),
        ("ffn_up.weight", &[96, 64]),
        ("ffn_up.bias", &[96]),
        ("ffn_down.weight", &[64, 96]),
        ("ffn_down.bias", &[64]),
    ];
    let top: [(&str, &[usize]); 3] =
        [("output.weight", &[64, 64]), ("output.bias", &[64]), ("output_norm.bias", &[64])];
    visitor.exclusive(
        "quantized_phi",
        FRESH,
        || load!(ModelWeights, decoder_file("phi2", &blocks, &top)?),
        |model| decode(|ids, position| model.forward(ids, position)),
    );
}

fn quantized_t5(visitor: &mut impl Visit) {
    use models::{quantized_t5, t5};
    visitor.exclusive(
        "quantized_t5",
        AGAIN,
        || {
            let plain = config(t5_fields(), json!({}))?;
            let vb = same_names(&record(|vb| t5::T5ForConditionalGeneration::load(vb, &plain))?)?;
            quantized_t5::T5ForConditionalGeneration::load(vb, &config(t5_fields(), json!({}))?)
        },
        |model| {
            model.clear_kv_cache();
            let encoded = model.encode(&row(&PROMPT)?)?;
            let mut outputs = decode(|ids, _| model.decode(ids, &encoded))?;
            outputs.push(encoded);
            Ok(outputs)
        },
    );
}

fn quantized_mistral(visitor: &mut impl Visit) {
    use models::{mistral, quantized_mistral};
    visitor.exclusive(
        "quantized_mistral",
        AGAIN,
        || {
            let config = config(small(), json!({ "intermediate_size": 64 }))?;
            let vb = same_names(&record(|vb| mistral::Model::new(&config, vb))?)?;
            quantized_mistral::Model::new(&config, vb)
        },
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

fn quantized_mixformer(visitor: &mut impl Visit) {
    use models::mixformer::MixFormerSequentialForCausalLM as Plain;
    use models::quantized_mixformer::MixFormerSequentialForCausalLM;
    let more = json!({
        "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_inner": 64, "n_head": 4, "rotary_dim": 4,
        "activation_function": "gelu_new", "pad_vocab_size_multiple": 64,
    });
    visitor.exclusive(
        "quantized_mixformer",
        AGAIN,
        || {
            let config = config(small(), more.clone())?;
            let vb = same_names(&record(|vb| Plain::new_v2(&config, vb))?)?;
            MixFormerSequentialForCausalLM::new_v2(&config, vb)
        },
        |model| {
            model.clear_kv_cache();
            decode(|ids, _| model.forward(ids))
        },
    );
}

fn quantized_stable_lm(visitor: &mut impl Visit) {
    use models::{quantized_stable_lm, stable_lm};
    visitor.exclusive(
        "quantized_stable_lm",
        FRESH,
        || {
            let config = config(small(), json!({ "intermediate_size": 64 }))?;
            let vb = same_names(&record(|vb| stable_lm::Model::new(&config, vb))?)?;
            quantized_stable_lm::Model::new(&config, vb)
        },
        |model| decode(|ids, position| model.forward(ids, position)),
    );
}

fn quantized_rwkv_v6(visitor: &mut impl Visit) {
    use models::{quantized_rwkv_v6, rwkv_v5, rwkv_v6};
    let small = || -> Result<rwkv_v5::Config> {
        let more = json!({
            "attention_hidden_size": 32, "head_size": 8, "num_attention_heads": 8, "rescale_every": 6,
            "intermediate_size": 64,
        });
        config(small(), more)
    };
    visitor.shared(
        "quantized_rwkv_v6",
        || {
            let vb = same_names(&record(|vb| rwkv_v6::Model::new(&small()?, vb))?)?;
            quantized_rwkv_v6::Model::new(&small()?, vb)
        },
        |model| {
            let mut state = rwkv_v5::State::new(1, &small()?, &Device::Cpu)?;
            read(|id| model.forward(&id.unsqueeze(0)?, &mut state))
        },
    );
}

fn quantized_whisper(visitor: &mut impl Visit) {
    use models::whisper::{model, quantized_model, Config};
    visitor.exclusive(
        "quantized_whisper",
        AGAIN,
        || {
            let config: Config = config(whisper_fields(), json!({}))?;
            let vb = same_names(&record(|vb| model::Whisper::load(&vb, config.clone()))?)?;
            quantized_model::Whisper::load(&vb, config)
        },
        |model| {
            model.reset_kv_cache();
            let heard = model.encoder.forward(&noise(&[1, 8, 24])?, true)?;
            let written = model.decoder.forward(&row(&PROMPT)?, &heard, true)?;
            Ok(vec![heard, model.decoder.final_linear(&written)?])
        },
    );
}
