//! Text encoders.

use candle_core::{Module, Result, Tensor};
use serde_json::{json, Value};

use super::inputs::{batch, config};
use super::transformers::models;
use super::weights::weights;
use super::Visit;

pub fn visit(visitor: &mut impl Visit) {
    bert(visitor);
    bert_masked(visitor);
    distilbert(visitor);
    jina_bert(visitor);
    nomic_bert(visitor);
    modernbert(visitor);
    modernbert_classifier(visitor);
    debertav2(visitor);
    xlm_roberta(visitor);
    z_image_text_encoder(visitor);
}

/// What the configurations of encoders have in common.
fn small() -> Value {
    json!({
        "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 32, "type_vocab_size": 2,
        "initializer_range": 0.02, "layer_norm_eps": 1e-6, "pad_token_id": 0,
    })
}

/// A mask of the tokens that count, all but the last of the second row.
fn mask() -> Result<Tensor> {
    Tensor::new(&[[1_u32, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]], &candle_core::Device::Cpu)
}

fn bert(visitor: &mut impl Visit) {
    visitor.shared(
        "bert",
        || models::bert::BertModel::load(weights(), &config(small(), json!({}))?),
        |model| {
            let ids = batch()?;
            Ok(vec![model.forward(&ids, &ids.zeros_like()?, Some(&mask()?))?])
        },
    );
}

fn bert_masked(visitor: &mut impl Visit) {
    visitor.shared(
        "bert_masked",
        || models::bert::BertForMaskedLM::load(weights(), &config(small(), json!({}))?),
        |model| {
            let ids = batch()?;
            Ok(vec![model.forward(&ids, &ids.zeros_like()?, None)?])
        },
    );
}

fn distilbert(visitor: &mut impl Visit) {
    let more = json!({ "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "activation": "gelu" });
    visitor.shared(
        "distilbert",
        || models::distilbert::DistilBertForMaskedLM::load(weights(), &config(small(), more.clone())?),
        |model| {
            let hidden = mask()?.eq(0_u32)?.reshape((2, 1, 1, 6))?;
            Ok(vec![model.forward(&batch()?, &hidden)?])
        },
    );
}

fn jina_bert(visitor: &mut impl Visit) {
    let more = json!({ "position_embedding_type": "alibi" });
    visitor.shared(
        "jina_bert",
        || models::jina_bert::BertModel::new(weights(), &config(small(), more.clone())?),
        |model| Ok(vec![model.forward(&batch()?)?]),
    );
}

fn nomic_bert(visitor: &mut impl Visit) {
    let more = json!({ "n_embd": 32, "n_head": 4, "n_layer": 2, "n_inner": 48, "n_positions": 32 });
    visitor.shared(
        "nomic_bert",
        || models::nomic_bert::NomicBertModel::load(weights(), &config(small(), more.clone())?),
        |model| {
            let ids = batch()?;
            Ok(vec![model.forward(&ids, Some(&ids.zeros_like()?), Some(&mask()?))?])
        },
    );
}

/// One layer that attends to everything, one to its surroundings.
fn modernbert_fields() -> Value {
    json!({
        "global_attn_every_n_layers": 2, "global_rope_theta": 10000.0, "local_attention": 4,
        "local_rope_theta": 1000.0,
    })
}

fn modernbert(visitor: &mut impl Visit) {
    use models::modernbert::ModernBertForMaskedLM;
    visitor.shared(
        "modernbert",
        || ModernBertForMaskedLM::load(weights(), &config(small(), modernbert_fields())?),
        |model| Ok(vec![model.forward(&batch()?, &mask()?)?]),
    );
}

fn modernbert_classifier(visitor: &mut impl Visit) {
    use models::modernbert::{Config, ModernBertForSequenceClassification};
    visitor.shared(
        "modernbert_classifier",
        || {
            let mut config: Config = config(small(), modernbert_fields())?;
            let labels = json!({
                "id2label": { "0": "no", "1": "yes" }, "label2id": { "no": "0", "yes": "1" },
                "classifier_pooling": "mean",
            });
            config.classifier_config = serde_json::from_value(labels).map_err(candle_core::Error::wrap)?;
            ModernBertForSequenceClassification::load(weights(), &config)
        },
        |model| Ok(vec![model.forward(&batch()?, &mask()?)?]),
    );
}

fn debertav2(visitor: &mut impl Visit) {
    let more = json!({
        "relative_attention": true, "max_relative_positions": -1, "position_biased_input": false,
        "pos_att_type": ["p2c", "c2p"], "position_buckets": 8, "share_att_key": true,
        "norm_rel_ebd": "layer_norm", "id2label": { "0": "no", "1": "yes" },
    });
    visitor.shared(
        "debertav2",
        || {
            let config = config(small(), more.clone())?;
            models::debertav2::DebertaV2NERModel::load(weights(), &config, None)
        },
        |model| Ok(vec![model.forward(&batch()?, None, Some(mask()?))?]),
    );
}

fn xlm_roberta(visitor: &mut impl Visit) {
    let more = json!({ "position_embedding_type": "absolute" });
    visitor.shared(
        "xlm_roberta",
        || {
            let config = config(small(), more.clone())?;
            models::xlm_roberta::XLMRobertaForSequenceClassification::new(3, &config, weights())
        },
        |model| {
            let ids = batch()?;
            Ok(vec![model.forward(&ids, &mask()?, &ids.zeros_like()?)?])
        },
    );
}

fn z_image_text_encoder(visitor: &mut impl Visit) {
    let more = json!({ "head_dim": 8, "num_key_value_heads": 2, "hidden_act": "silu" });
    visitor.shared(
        "z_image_text_encoder",
        || models::z_image::ZImageTextEncoder::new(&config(small(), more.clone())?, weights()),
        |model| Ok(vec![model.forward(&batch()?)?]),
    );
}
