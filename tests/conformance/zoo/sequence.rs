//! Models with an encoder and a decoder.

use serde_json::{json, Value};

use super::inputs::{batch, config, decode, image, row, NEXT, PROMPT};
use super::transformers::models;
use super::weights::weights;
use super::{Visit, AGAIN};

pub fn visit(visitor: &mut impl Visit) {
    t5_encoder(visitor);
    t5(visitor);
    marian(visitor);
    trocr(visitor);
}

/// A small T5 with gated feed-forward layers.
pub fn t5_fields() -> Value {
    json!({
        "vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
        "num_decoder_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 16, "dropout_rate": 0.0, "layer_norm_epsilon": 1e-6,
        "initializer_factor": 1.0, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false,
        "is_encoder_decoder": true, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
    })
}

fn t5_encoder(visitor: &mut impl Visit) {
    let more = json!({ "feed_forward_proj": "relu" });
    visitor.exclusive(
        "t5_encoder",
        AGAIN,
        || models::t5::T5EncoderModel::load(weights(), &config(t5_fields(), more.clone())?),
        |model| {
            model.clear_kv_cache();
            Ok(vec![model.forward(&batch()?)?])
        },
    );
}

fn t5(visitor: &mut impl Visit) {
    visitor.exclusive(
        "t5",
        AGAIN,
        || models::t5::T5ForConditionalGeneration::load(weights(), &config(t5_fields(), json!({}))?),
        |model| {
            model.clear_kv_cache();
            let encoded = model.encode(&row(&PROMPT)?)?;
            let mut outputs = decode(|ids, _| model.decode(ids, &encoded))?;
            outputs.push(encoded);
            Ok(outputs)
        },
    );
}

fn marian(visitor: &mut impl Visit) {
    let fields = json!({
        "vocab_size": 64, "max_position_embeddings": 32, "encoder_layers": 2, "encoder_ffn_dim": 48,
        "encoder_attention_heads": 4, "decoder_layers": 2, "decoder_ffn_dim": 48,
        "decoder_attention_heads": 4, "use_cache": true, "is_encoder_decoder": true,
        "activation_function": "swish", "d_model": 32, "decoder_start_token_id": 0,
        "scale_embedding": true, "pad_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": 1,
        "share_encoder_decoder_embeddings": true,
    });
    visitor.exclusive(
        "marian",
        AGAIN,
        || models::marian::MTModel::new(&config(fields.clone(), json!({}))?, weights()),
        |model| {
            model.reset_kv_cache();
            let encoded = model.encoder().forward(&row(&PROMPT)?, 0)?;
            let mut outputs = decode(|ids, position| model.decode(ids, &encoded, position))?;
            outputs.push(encoded);
            Ok(outputs)
        },
    );
}

/// It reads one token at a time: its mask does not fit what it sees in the picture otherwise.
fn trocr(visitor: &mut impl Visit) {
    let picture = json!({
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "hidden_act": "gelu", "layer_norm_eps": 1e-6, "image_size": 32, "patch_size": 8,
        "num_channels": 3, "qkv_bias": false,
    });
    let text = json!({
        "vocab_size": 64, "d_model": 32, "cross_attention_hidden_size": 32, "decoder_layers": 2,
        "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "activation_function": "gelu",
        "max_position_embeddings": 32, "dropout": 0.0, "attention_dropout": 0.0,
        "activation_dropout": 0.0, "decoder_start_token_id": 2, "init_std": 0.02,
        "decoder_layerdrop": 0.0, "use_cache": true, "scale_embedding": true, "pad_token_id": 1,
        "bos_token_id": 0, "eos_token_id": 2,
    });
    visitor.exclusive(
        "trocr",
        AGAIN,
        || {
            let (picture, text) = (config(picture.clone(), json!({}))?, config(text.clone(), json!({}))?);
            models::trocr::TrOCRModel::new(&picture, &text, weights())
        },
        |model| {
            model.reset_kv_cache();
            let encoded = model.encoder().forward(&image(32)?)?;
            let first = model.decode(&row(&[2])?, &encoded, 0)?;
            let next = model.decode(&row(&[NEXT])?, &encoded, 1)?;
            Ok(vec![encoded, first, next])
        },
    );
}
