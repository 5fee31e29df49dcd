//! Dense decoders with attention.

use candle_core::{Device, Result};
use serde_json::{json, Value};

use super::inputs::{config, decode};
use super::transformers::models;
use super::weights::{dtype, weights};
use super::{Visit, AGAIN, FRESH};

/// What the configurations of decoders have in common; each reads the fields that it knows.
pub fn small() -> Value {
    json!({
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6, "layer_norm_eps": 1e-5, "norm_epsilon": 1e-5, "layer_norm_epsilon": 1e-5,
        "max_position_embeddings": 32, "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "sliding_window": 16, "use_sliding_window": false, "max_window_layers": 2,
        "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false,
        "bos_token_id": 1, "eos_token_id": 2, "use_cache": true,
    })
}

/// A decoder that is told the position of its input and can forget.
macro_rules! causal {
    ($visitor:ident, $name:ident :: $model:ident, $more:tt) => {
        $visitor.exclusive(
            stringify!($name),
            AGAIN,
            || models::$name::$model::new(&config(small(), json!($more))?, weights()),
            |model| {
                model.clear_kv_cache();
                decode(|ids, position| model.forward(ids, position))
            },
        )
    };
}

pub fn visit(visitor: &mut impl Visit) {
    llama(visitor);
    granite(visitor);
    causal!(visitor, mistral::Model, {});
    causal!(visitor, qwen2::ModelForCausalLM, {});
    causal!(visitor, qwen3::ModelForCausalLM, { "tie_word_embeddings": true });
    gemma(visitor);
    gemma2(visitor);
    gemma3(visitor);
    phi(visitor);
    causal!(visitor, phi3::Model, { "num_key_value_heads": 4, "partial_rotary_factor": null });
    bigcode(visitor);
    falcon(visitor);
    stable_lm(visitor);
    causal!(visitor, starcoder2::Model, { "use_bias": true });
    causal!(visitor, olmo::Model, { "clip_qkv": 0.5 });
    causal!(visitor, olmo2::Model, {});
    causal!(visitor, helium::Model, {});
    causal!(visitor, glm4_new::ModelForCausalLM, { "eos_token_id": null });
    chatglm(visitor);
    mixformer(visitor);
    smollm3(visitor);
    granitemoehybrid(visitor);
}

fn llama_config() -> Result<models::llama::Config> {
    let rope = json!({
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16, "rope_type": "llama3",
    });
    let config: models::llama::LlamaConfig = config(small(), json!({ "rope_scaling": rope }))?;
    Ok(config.into_config(false))
}

fn llama(visitor: &mut impl Visit) {
    use models::llama::{Cache, Llama};
    visitor.shared(
        "llama",
        || Llama::load(weights(), &llama_config()?),
        |model| {
            let mut cache = Cache::new(true, dtype(), &llama_config()?, &Device::Cpu)?;
            decode(|ids, position| model.forward(ids, position, &mut cache))
        },
    );
}

fn granite_config() -> Result<models::granite::Config> {
    let config: models::granite::GraniteConfig = config(small(), json!({ "num_key_value_heads": 4 }))?;
    Ok(config.into_config(false))
}

fn granite(visitor: &mut impl Visit) {
    use models::granite::{Cache, Granite};
    visitor.shared(
        "granite",
        || Granite::load(weights(), &granite_config()?),
        |model| {
            let mut cache = Cache::new(true, dtype(), &granite_config()?, &Device::Cpu)?;
            decode(|ids, position| model.forward(ids, position, &mut cache))
        },
    );
}

fn gemma(visitor: &mut impl Visit) {
    visitor.exclusive(
        "gemma",
        AGAIN,
        || models::gemma::Model::new(false, &config(small(), json!({ "hidden_act": null }))?, weights()),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

fn gemma2(visitor: &mut impl Visit) {
    let more = json!({
        "query_pre_attn_scalar": 8, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0,
    });
    visitor.exclusive(
        "gemma2",
        AGAIN,
        || models::gemma2::Model::new(false, &config(small(), more.clone())?, weights()),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

/// A layer with a sliding window, one without. Candle's cache takes the values of one head only.
fn gemma3(visitor: &mut impl Visit) {
    let more = json!({
        "query_pre_attn_scalar": 8, "rope_local_base_freq": 1000.0, "sliding_window": 4,
        "sliding_window_pattern": 2, "final_logit_softcapping": 30.0, "num_key_value_heads": 1,
    });
    visitor.exclusive(
        "gemma3",
        AGAIN,
        || models::gemma3::Model::new(false, &config(small(), more.clone())?, weights()),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

fn phi(visitor: &mut impl Visit) {
    let more = json!({ "hidden_act": "gelu_new", "qk_layernorm": false });
    visitor.exclusive(
        "phi",
        AGAIN,
        || models::phi::Model::new(&config(small(), more.clone())?, weights()),
        |model| {
            model.clear_kv_cache();
            decode(|ids, _| model.forward(ids))
        },
    );
}

fn bigcode(visitor: &mut impl Visit) {
    use models::bigcode::{Config, GPTBigCode};
    let config = || Config {
        vocab_size: 64,
        max_position_embeddings: 32,
        num_hidden_layers: 2,
        hidden_size: 32,
        layer_norm_epsilon: 1e-5,
        n_inner: Some(48),
        num_attention_heads: 4,
        multi_query: true,
        use_cache: true,
    };
    visitor.exclusive(
        "bigcode",
        FRESH,
        || GPTBigCode::load(weights(), config()),
        |model| decode(|ids, position| model.forward(ids, position)),
    );
}

fn falcon(visitor: &mut impl Visit) {
    let more = json!({
        "initializer_range": 0.02, "hidden_dropout": 0.0, "attention_dropout": 0.0, "alibi": false,
        "new_decoder_architecture": false, "multi_query": true, "parallel_attn": true, "bias": false,
    });
    visitor.exclusive(
        "falcon",
        AGAIN,
        || models::falcon::Falcon::load(weights(), config(small(), more.clone())?),
        |model| {
            model.clear_kv_cache();
            decode(|ids, _| model.forward(ids))
        },
    );
}

fn stable_lm(visitor: &mut impl Visit) {
    visitor.exclusive(
        "stable_lm",
        FRESH,
        || models::stable_lm::Model::new(&config(small(), json!({ "use_qkv_bias": true }))?, weights()),
        |model| decode(|ids, position| model.forward(ids, position)),
    );
}

fn chatglm(visitor: &mut impl Visit) {
    use models::chatglm::{Config, Model};
    let config = || Config {
        num_layers: 2,
        padded_vocab_size: 64,
        hidden_size: 32,
        ffn_hidden_size: 48,
        kv_channels: 8,
        num_attention_heads: 4,
        seq_length: 32,
        ..Config::glm3_6b()
    };
    visitor.exclusive(
        "chatglm",
        AGAIN,
        || Model::new(&config(), weights()),
        |model| {
            model.reset_kv_cache();
            decode(|ids, _| model.forward(ids))
        },
    );
}

fn mixformer(visitor: &mut impl Visit) {
    let more = json!({
        "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_inner": 48, "n_head": 4, "rotary_dim": 4,
        "activation_function": "gelu_new", "pad_vocab_size_multiple": 64,
    });
    visitor.exclusive(
        "mixformer",
        AGAIN,
        || {
            let config = config(small(), more.clone())?;
            models::mixformer::MixFormerSequentialForCausalLM::new(&config, weights())
        },
        |model| {
            model.clear_kv_cache();
            decode(|ids, _| model.forward(ids))
        },
    );
}

fn smollm3(visitor: &mut impl Visit) {
    let more = json!({ "no_rope_layers": [1, 0] });
    visitor.exclusive(
        "smollm3",
        AGAIN,
        || models::smol::smollm3::ModelForCausalLM::new(&config(small(), more.clone())?, weights()),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

fn granitemoehybrid_config() -> Result<models::granitemoehybrid::GraniteMoeHybridInternalConfig> {
    let more = json!({
        "layer_types": ["attention", "attention"], "shared_intermediate_size": 48,
        "attention_multiplier": 0.25, "embedding_multiplier": 4.0, "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
    });
    let config: models::granitemoehybrid::GraniteMoeHybridConfig = config(small(), more)?;
    Ok(config.into_config(false))
}

fn granitemoehybrid(visitor: &mut impl Visit) {
    use models::granitemoehybrid::{GraniteMoeHybrid, GraniteMoeHybridCache};
    visitor.shared(
        "granitemoehybrid",
        || GraniteMoeHybrid::load(weights(), &granitemoehybrid_config()?),
        |model| {
            let config = granitemoehybrid_config()?;
            let mut cache = GraniteMoeHybridCache::new(true, dtype(), &config, &Device::Cpu)?;
            decode(|ids, position| model.forward(ids, position, &mut cache))
        },
    );
}
