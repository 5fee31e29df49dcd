//! Models that carry a recurrent state instead of, or beside, a cache of keys and values.

use candle_core::{Device, Result};
use serde_json::json;

use super::inputs::{config, decode, read, row, NEXT, PROMPT};
use super::language::small;
use super::transformers::models;
use super::weights::{dtype, weights};
use super::{Visit, FRESH};

pub fn visit(visitor: &mut impl Visit) {
    mamba(visitor);
    mamba2(visitor);
    rwkv_v5(visitor);
    rwkv_v6(visitor);
    rwkv_v7(visitor);
    recurrent_gemma(visitor);
    based(visitor);
    lfm2(visitor);
}

fn mamba(visitor: &mut impl Visit) {
    use models::mamba::{Config, Model, State};
    let config = Config { d_model: 32, n_layer: 2, vocab_size: 64, pad_vocab_size_multiple: 8 };
    visitor.shared(
        "mamba",
        || Model::new(&config, weights()),
        |model| {
            let mut state = State::new(1, &config, dtype(), &Device::Cpu)?;
            read(|id| model.forward(id, &mut state))
        },
    );
}

fn mamba2(visitor: &mut impl Visit) {
    use models::mamba2::{Config, Model, State};
    let small = || -> Result<Config> {
        config(
            json!({ "d_model": 32, "n_layer": 2, "vocab_size": 64 }),
            json!({ "d_state": 8, "expand": 2, "headdim": 16, "ngroups": 1, "pad_vocab_size_multiple": 8 }),
        )
    };
    visitor.shared(
        "mamba2",
        || Model::new(&small()?, weights()),
        |model| {
            let mut state = State::new(1, &small()?, dtype(), &Device::Cpu)?;
            let mut outputs = vec![model.forward_prefill(&row(&PROMPT)?, &mut state, 4)?];
            outputs.extend(read(|id| model.forward(id, &mut state))?);
            Ok(outputs)
        },
    );
}

/// `num_attention_heads` is the size of a head in these models. `rescale_every` halves each layer's output.
fn rwkv_config() -> Result<models::rwkv_v5::Config> {
    let more =
        json!({ "attention_hidden_size": 32, "head_size": 8, "num_attention_heads": 8, "rescale_every": 1 });
    config(small(), more)
}

fn rwkv_v5(visitor: &mut impl Visit) {
    use models::rwkv_v5::{Model, State};
    visitor.shared(
        "rwkv_v5",
        || Model::new(&rwkv_config()?, weights()),
        |model| {
            let mut state = State::new(1, &rwkv_config()?, &Device::Cpu)?;
            read(|id| model.forward(&id.unsqueeze(0)?, &mut state))
        },
    );
}

fn rwkv_v6(visitor: &mut impl Visit) {
    use models::rwkv_v6::{Model, State};
    visitor.shared(
        "rwkv_v6",
        || Model::new(&rwkv_config()?, weights()),
        |model| {
            let mut state = State::new(1, &rwkv_config()?, &Device::Cpu)?;
            read(|id| model.forward(&id.unsqueeze(0)?, &mut state))
        },
    );
}

fn rwkv_v7(visitor: &mut impl Visit) {
    use models::rwkv_v7::{Config, Model, State};
    let small = || -> Result<Config> {
        config(small(), json!({ "version": "V7", "head_size": 8, "rescale_every": 0 }))
    };
    visitor.shared(
        "rwkv_v7",
        || Model::new(&small()?, weights()),
        |model| {
            let mut state = State::new(&small()?, &Device::Cpu)?;
            let prompt = model.forward_seq(&PROMPT, &mut state)?;
            let next = model.forward_seq(&[NEXT], &mut state)?;
            Ok(vec![prompt, next])
        },
    );
}

fn recurrent_gemma(visitor: &mut impl Visit) {
    let more = json!({
        "lru_width": 32, "attention_window_size": 16, "conv1d_width": 4, "logits_soft_cap": 30.0,
        "block_types": ["recurrent", "attention"], "max_seq_len": 32, "num_key_value_heads": 1,
    });
    visitor.exclusive(
        "recurrent_gemma",
        FRESH,
        || models::recurrent_gemma::Model::new(&config(small(), more.clone())?, weights()),
        |model| decode(|ids, position| model.forward(ids, position)),
    );
}

/// A layer with a convolution, one with linear attention, one with a sliding window.
fn based(visitor: &mut impl Visit) {
    let more = json!({
        "n_embd": 32, "n_inner": 64, "n_layer": 3, "n_head": 4,
        "alt_mixer_layers": [1], "alt_mixer_2_layers": [2],
        "alt_mixer": { "num_heads": 4, "feature_dim": 8, "feature_map": { "input_dim": 8 } },
        "alt_mixer_2": { "num_heads": 4, "window_size": 4 },
    });
    visitor.exclusive(
        "based",
        FRESH,
        || models::based::Model::new(&config(small(), more.clone())?, weights()),
        |model| decode(|ids, position| model.forward(ids, position)),
    );
}

fn lfm2_config() -> Result<models::lfm2::Config> {
    let more = json!({
        "layer_types": ["conv", "full_attention"], "conv_l_cache": 3, "block_multiple_of": 16,
    });
    let config: models::lfm2::Lfm2Config = config(small(), more)?;
    Ok(config.into_config(false))
}

fn lfm2(visitor: &mut impl Visit) {
    use models::lfm2::{Cache, Model};
    visitor.shared(
        "lfm2",
        || Model::new(&lfm2_config()?, weights()),
        |model| {
            let mut cache = Cache::new(true, dtype(), &lfm2_config()?, &Device::Cpu)?;
            decode(|ids, position| model.forward(ids, position, &mut cache))
        },
    );
}
