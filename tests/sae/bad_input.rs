use std::fs;
use std::path::Path;

use candle_core::{DType, Tensor};
use hookpoint_sae::Sae;
use hookpoint_tests::compare::{device, tensors, Test};
use hookpoint_tests::spoil::{assert_says, copy, spoil_weights, write_safetensors};
use serde_json::{json, Value};

use crate::parity::folder;

/// What is said about a folder that cannot be loaded.
#[track_caller]
fn complaint(folder: &Path) -> String {
    match Sae::from_dir(folder, DType::F32, &device()) {
        Ok(_) => panic!("it was loaded"),
        Err(error) => error.to_string(),
    }
}

fn set(folder: &Path, name: &str, value: Value) {
    let path = folder.join("cfg.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    match value {
        Value::Null => drop(config.as_object_mut().unwrap().remove(name)),
        value => config[name] = value,
    }
    fs::write(path, config.to_string()).unwrap();
}

#[test]
fn configs_that_do_not_fit_or_make_no_sense() {
    let cases = [
        ("topk", "d_in", json!(13), "`W_enc` has shape [12, 40], and cfg.json asks for [13, 40]"),
        ("topk", "d_sae", json!(41), "has shape"),
        ("topk", "d_sae", json!(1u64 << 60), "d_sae is 1152921504606846976"),
        ("topk", "d_sae", json!(-3), "d_sae is -3; it has to be a whole number"),
        ("topk", "d_in", json!(0), "d_in is 0"),
        ("topk", "d_in", json!("twelve"), "d_in is \"twelve\"; it has to be a whole number"),
        ("topk", "d_in", json!(null), "the config does not say what d_in is"),
        ("topk", "k", json!(41), "k is 41, and there are 40 features"),
        ("topk", "k", json!(0), "k is 0"),
        ("topk", "k", json!(null), "does not say what k is"),
        ("topk", "architecture", json!("gated"), "architecture is `gated`, which is not known here"),
        ("topk", "architecture", json!(7), "architecture is 7; it has to be a text"),
        ("topk", "architecture", json!("jumprelu"), "rescale"),
        ("standard", "architecture", json!("jumprelu"), "there is no tensor `threshold`"),
        ("jumprelu", "architecture", json!("standard"), "a model of this cfg.json has no tensor `threshold`"),
        ("standard", "activation_fn_str", json!("tanh-relu"), "activation_fn is `tanh-relu`"),
        ("standard", "normalize_activations", json!("whatever"), "normalize_activations is `whatever`"),
        ("standard", "reshape_activations", json!("sideways"), "reshape_activations is `sideways`"),
        ("standard", "apply_b_dec_to_input", json!("no"), "it has to be true or false"),
        ("standard", "metadata", json!([1]), "metadata is [1]; it has to be an object"),
    ];
    for (case, name, value, expected) in cases {
        let copy = copy(folder(case));
        if name == "architecture" && value == json!("jumprelu") && case == "topk" {
            set(copy.path(), "rescale_acts_by_decoder_norm", json!(true));
        }
        set(copy.path(), name, value);
        assert_says(&complaint(copy.path()), &[expected]);
    }
}

#[test]
fn texts_that_are_no_config() -> Test {
    let base = copy(folder("standard"));
    let path = base.path().join("cfg.json");
    let text = fs::read_to_string(&path)?;
    for length in (0..text.len()).step_by(37) {
        fs::write(&path, &text[..length])?;
        assert_says(&complaint(base.path()), &["cfg.json: this is no config of an autoencoder"]);
    }
    fs::write(&path, [0xff, 0xfe])?;
    complaint(base.path());
    fs::write(&path, " ".repeat(10_000_001))?;
    assert_says(&complaint(base.path()), &["too long"]);
    fs::remove_file(&path)?;
    assert_says(&complaint(base.path()), &["cfg.json"]);
    Ok(())
}

#[test]
fn weights_that_are_missing_claim_terabytes_or_have_the_wrong_shape() {
    let copy = copy(folder("topk"));
    spoil_weights(copy.path(), "sae_weights.safetensors", "W_dec", complaint);
}

#[test]
fn weights_that_are_missing_cut_off_or_too_much() -> Test {
    assert_says(&complaint(Path::new("/nowhere/at/all")), &["/nowhere/at/all"]);
    let base = copy(folder("jumprelu"));
    let path = base.path().join("sae_weights.safetensors");
    let whole = fs::read(&path)?;
    for length in (0..whole.len()).step_by(499) {
        fs::write(&path, &whole[..length])?;
        assert_says(&complaint(base.path()), &["damaged or was not fully downloaded"]);
    }
    // Headers of terabytes, and tensors of them.
    fs::write(&path, (1u64 << 40).to_le_bytes())?;
    assert_says(&complaint(base.path()), &["it claims a header of 1099511627776 bytes"]);
    write_safetensors(
        &path,
        r#"{"W_enc":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}"#,
        8,
    );
    assert_says(&complaint(base.path()), &["damaged"]);
    fs::write(&path, &whole)?;

    let mut weights = tensors(&path);
    weights.insert("W_more".to_string(), Tensor::zeros(3, DType::F32, &device())?);
    candle_core::safetensors::save(&weights, &path)?;
    assert_says(&complaint(base.path()), &["has no tensor `W_more`"]);
    weights.remove("W_more");
    weights.insert("scaling_factor".to_string(), Tensor::full(2f32, 40, &device())?);
    candle_core::safetensors::save(&weights, &path)?;
    assert_says(&complaint(base.path()), &["`scaling_factor` from fine-tuning"]);
    weights.insert("scaling_factor".to_string(), Tensor::full(1f32, 40, &device())?);
    candle_core::safetensors::save(&weights, &path)?;
    assert!(Sae::from_dir(base.path(), DType::F32, &device()).is_ok());
    weights.remove("b_enc");
    candle_core::safetensors::save(&weights, &path)?;
    assert_says(&complaint(base.path()), &["there is no tensor `b_enc`, which a model of this cfg.json has"]);
    let mistake = Sae::from_dir(folder("topk"), DType::U8, &device()).unwrap_err();
    assert_says(&mistake.to_string(), &["cannot compute in u8"]);
    Ok(())
}
