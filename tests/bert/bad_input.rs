use std::fs;
use std::path::Path;

use candle_core::{DType, Tensor};
use hookpoint_models::bert::{Batch, Bert};
use hookpoint_tests::compare::{device, tensors, Test};
use hookpoint_tests::spoil::{assert_says, copy, set, spoil_weights};
use serde_json::json;

use crate::fixtures::{folder, model};

/// What is said about a folder that cannot be loaded.
#[track_caller]
fn complaint(folder: &Path) -> String {
    match Bert::from_dir(folder, DType::F32, &device()) {
        Ok(_) => panic!("it was loaded"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn configs_that_do_not_fit_or_make_no_sense() {
    let cases = [
        ("num_hidden_layers", json!(3), "config.json says that there are 3 blocks, and the weights have 2"),
        (
            "hidden_size",
            json!(24),
            "word_embeddings.weight` has shape [41, 12], and config.json asks for [41, 24]",
        ),
        ("max_position_embeddings", json!(17), "position_embeddings.weight` has shape [16, 12]"),
        ("type_vocab_size", json!(5), "token_type_embeddings.weight` has shape [2, 12]"),
        ("intermediate_size", json!(21), "intermediate.dense.weight` has shape [20, 12]"),
        ("num_attention_heads", json!(5), "hidden_size (12) is not a multiple of num_attention_heads (5)"),
        ("num_attention_heads", json!(0), "num_attention_heads is 0"),
        ("hidden_size", json!(1u64 << 60), "hidden_size is 1152921504606846976"),
        ("hidden_act", json!("gelo"), "unknown activation function `gelo`"),
        ("position_embedding_type", json!("relative_key"), "position_embedding_type is `relative_key`"),
        ("is_decoder", json!(true), "is_decoder has to be false"),
        ("layer_norm_eps", json!(-1.), "layer_norm_eps is -1"),
        ("model_type", json!("roberta"), "a config for `roberta`, not for `bert`"),
    ];
    for (name, value, expected) in cases {
        let copy = copy(folder("base"));
        set(copy.path(), name, value);
        assert_says(&complaint(copy.path()), &[expected]);
    }
}

#[test]
fn weights_that_are_missing_claim_terabytes_or_have_the_wrong_shape() {
    let copy = copy(folder("base"));
    spoil_weights(copy.path(), "model.safetensors", "encoder.layer.1.output.dense.weight", complaint);
}

#[test]
fn files_that_are_missing_cut_off_or_too_much() -> Test {
    assert_says(&complaint(Path::new("/nowhere/at/all")), &["no such folder"]);
    let base = copy(folder("base"));
    let path = base.path().join("model.safetensors");
    let whole = fs::read(&path)?;
    for length in (0..whole.len()).step_by(1999) {
        fs::write(&path, &whole[..length])?;
        assert_says(&complaint(base.path()), &["damaged or was not fully downloaded"]);
    }
    fs::write(&path, &whole)?;
    let mut weights = tensors(&path);
    weights
        .insert("encoder.layer.0.attention.self.distance.weight".to_string(), Tensor::new(1f32, &device())?);
    candle_core::safetensors::save(&weights, &path)?;
    assert_says(&complaint(base.path()), &["has no tensor `encoder.layer.0.attention.self.distance.weight`"]);
    Ok(())
}

/// Names of old checkpoints, and numbers that they carry.
#[test]
fn old_checkpoints_can_be_loaded() -> Test {
    let old = copy(folder("base"));
    let path = old.path().join("model.safetensors");
    let renamed = tensors(&path).into_iter().map(|(name, tensor)| {
        let name =
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
        (name, tensor)
    });
    let mut weights: std::collections::HashMap<String, Tensor> = renamed.collect();
    weights.insert("embeddings.position_ids".to_string(), Tensor::arange(0i64, 16, &device())?.unsqueeze(0)?);
    candle_core::safetensors::save(&weights, &path)?;
    let ids = Tensor::new(&[[5u32, 6, 7]], &device())?;
    let found = Bert::from_dir(old.path(), DType::F32, &device())?.forward(&ids)?;
    assert_eq!(found.to_vec3::<f32>()?, model("base").forward(&ids)?.to_vec3::<f32>()?);
    Ok(())
}

#[test]
fn vocabularies_that_are_wrong() {
    let spoiled = |text: &str| {
        let copy = copy(folder("vocab"));
        fs::write(copy.path().join("vocab.txt"), text).unwrap();
        complaint(copy.path())
    };
    assert_says(&spoiled("a\nb\n"), &["vocab.txt", "no `[UNK]`"]);
    assert_says(&spoiled("[UNK]\n[CLS]\n[SEP]\na\na\n"), &["`a` is there twice", "line 5"]);
    let copy = copy(folder("vocab"));
    fs::write(copy.path().join("tokenizer_config.json"), "{ \"do_lower_case\": 3 }").unwrap();
    assert_says(&complaint(copy.path()), &["tokenizer_config.json"]);
}

#[test]
fn texts_and_batches_that_cannot_be_run() -> Test {
    let (model, device) = (model("base"), &device());
    let long = "the ".repeat(15);
    assert_says(
        &model.encode(&[long.as_str()]).unwrap_err().to_string(),
        &["17 tokens, and this model takes 16"],
    );
    assert_says(&model.sentence_embeddings::<&str>(&[]).unwrap_err().to_string(), &["no sentences"]);
    let refused = |ids: Tensor| model.forward(&ids).unwrap_err().to_string();
    assert_says(&refused(Tensor::zeros((1, 17), DType::U32, device)?), &["17 tokens do not fit"]);
    assert_says(&refused(Tensor::zeros((1, 0), DType::U32, device)?), &["the prompt is empty"]);
    assert_says(&refused(Tensor::new(&[[41u32]], device)?), &["no token 41"]);
    let batch = Batch::new(&Tensor::new(&[[1u32, 2], [3, 4]], device)?)?;
    let types = |types: Tensor| batch.clone().with_token_types(&types);
    assert_says(&types(Tensor::new(&[[0u32, 1]], device)?).unwrap_err().to_string(), &["[2, 2]", "[1, 2]"]);
    let three = types(Tensor::new(&[[0u32, 1], [0, 2]], device)?)?;
    assert_says(&model.forward_batch(&three).unwrap_err().to_string(), &["no type of tokens 2", "0 to 1"]);
    let mask = |mask: Tensor| batch.clone().with_attention_mask(&mask).unwrap_err().to_string();
    assert_says(&mask(Tensor::new(&[[1u32, 1], [0, 0]], device)?), &["row 1 is nothing but padding"]);
    assert_says(&mask(Tensor::new(&[[1u32, 1], [2, 0]], device)?), &["1 for tokens, 0 for padding"]);
    assert_says(&mask(Tensor::new(&[[1f32, 1.], [1., 0.]], device)?), &["integers", "f32"]);
    let without = crate::fixtures::model("vocab");
    assert_says(&without.pooled(&batch).unwrap_err().to_string(), &["without a pooler"]);
    Ok(())
}
