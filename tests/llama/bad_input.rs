use std::fs;
use std::path::Path;

use candle_core::{DType, Tensor};
use hookpoint_models::llama::{Config, Generation, Llama, RopeScaling, Windowed};
use hookpoint_tests::compare::{device, tensors, Test};
use hookpoint_tests::spoil::{assert_says, copy, set, spoil_weights};
use serde_json::json;

use crate::fixtures::{folder, model};

/// What is said about a folder that cannot be loaded.
#[track_caller]
fn complaint(folder: &Path) -> String {
    match Llama::from_dir(folder, DType::F32, &device()) {
        Ok(_) => panic!("it was loaded"),
        Err(error) => error.to_string(),
    }
}

/// What is said about a config.
#[track_caller]
fn refused(config: &serde_json::Value) -> String {
    match Config::from_json(&config.to_string()) {
        Ok(_) => panic!("it was read"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_folder_that_is_not_there_or_has_nothing() {
    assert_says(&complaint(Path::new("/nowhere/at/all")), &["/nowhere/at/all", "no such folder"]);
    let copy = copy(folder("base"));
    fs::remove_file(copy.path().join("model.safetensors")).unwrap();
    assert_says(&complaint(copy.path()), &["model.safetensors", "save_pretrained"]);
    fs::remove_file(copy.path().join("config.json")).unwrap();
    assert_says(&complaint(copy.path()), &["config.json", "No such file"]);
}

#[test]
fn weights_that_are_missing_claim_terabytes_or_have_the_wrong_shape() {
    let copy = copy(folder("base"));
    spoil_weights(copy.path(), "model.safetensors", "model.layers.1.self_attn.o_proj.weight", complaint);
}

#[test]
fn an_activation_that_nobody_knows() {
    let copy = copy(folder("base"));
    set(copy.path(), "hidden_act", "gelo".into());
    assert_says(&complaint(copy.path()), &["config.json", "unknown activation function `gelo`", "silu"]);
}

#[test]
fn words_that_the_tokenizer_does_not_know() -> Test {
    let model = model("base");
    let refused = |text: &str| model.complete(text, &Generation::new(2)).unwrap_err().to_string();
    assert_says(&refused(""), &["the prompt is empty"]);
    assert_says(&refused("the Cat sat"), &["does not know", "`the Cat sat`"]);
    Ok(())
}

#[test]
fn a_config_that_does_not_fit_the_weights() {
    let cases = [
        ("num_hidden_layers", json!(3), "config.json says that there are 3 blocks, and the weights have 2"),
        ("num_hidden_layers", json!(1_000_000_000_000u64), "and the weights have 2"),
        (
            "hidden_size",
            json!(32),
            "`model.embed_tokens.weight` has shape [41, 16], and config.json asks for [41, 32]",
        ),
        ("vocab_size", json!(50257), "config.json asks for [50257, 16]"),
        (
            "intermediate_size",
            json!(21),
            "gate_proj.weight` has shape [20, 16], and config.json asks for [21, 16]",
        ),
        (
            "num_key_value_heads",
            json!(4),
            "k_proj.weight` has shape [8, 16], and config.json asks for [16, 16]",
        ),
        (
            "num_key_value_heads",
            json!(3),
            "num_attention_heads (4) is not a multiple of num_key_value_heads (3)",
        ),
        ("num_key_value_heads", json!(0), "num_key_value_heads is 0"),
        ("num_attention_heads", json!(0), "num_attention_heads is 0"),
        ("head_dim", json!(3), "head_dim (3) is odd"),
        ("head_dim", json!(8), "q_proj.weight` has shape [16, 16], and config.json asks for [32, 16]"),
        ("hidden_size", json!(1u64 << 60), "hidden_size is 1152921504606846976"),
        ("attention_bias", json!(true), "no tensor `model.layers.0.self_attn.q_proj.bias`"),
        ("model_type", json!("qwen2"), "no tensor `model.layers.0.self_attn.q_proj.bias`"),
        ("tie_word_embeddings", json!(null), ""),
    ];
    for (name, value, expected) in cases {
        let copy = copy(folder("base"));
        set(copy.path(), name, value);
        match expected {
            "" => drop(Llama::from_dir(copy.path(), DType::F32, &device()).unwrap()),
            expected => assert_says(&complaint(copy.path()), &[expected]),
        }
    }
    // The other way round: the weights have more than the config speaks of.
    let biases = copy(folder("biases"));
    set(biases.path(), "mlp_bias", json!(false));
    assert_says(
        &complaint(biases.path()),
        &["a model of this config.json has no tensor", "mlp.down_proj.bias"],
    );
    let tied = copy(folder("tied"));
    set(tied.path(), "tie_word_embeddings", json!(false));
    assert_says(&complaint(tied.path()), &["no tensor `lm_head.weight`"]);
}

#[test]
fn configs_that_make_no_sense_or_are_for_something_else() {
    let with = |name: &str, value: serde_json::Value| {
        let mut config = json!({
            "model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2
        });
        config[name] = value;
        refused(&config)
    };
    assert_says(
        &with("num_attention_heads", json!(5)),
        &["hidden_size (16) is not a multiple of num_attention_heads (5)"],
    );
    assert_says(&with("hidden_act", json!("gelo")), &["unknown activation function `gelo`", "silu"]);
    assert_says(&with("model_type", json!("gemma2")), &["`gemma2`, not for `llama`, `qwen2` or `mistral`"]);
    assert_says(&with("model_type", json!(null)), &["no model_type"]);
    assert_says(&with("rms_norm_eps", json!(-1.)), &["rms_norm_eps is -1"]);
    assert_says(&with("rope_theta", json!(0.)), &["rope_theta is 0"]);
    assert_says(&with("sliding_window", json!(4)), &["sliding_window is 4", "`mistral`"]);
    assert_says(&with("layer_types", json!(["full_attention"])), &["layer_types", "`qwen2`"]);
    assert_says(&with("num_hidden_layers", json!(-1)), &["-1"]);
    assert_says(&with("partial_rotary_factor", json!(0.5)), &["partial_rotary_factor is 0.5"]);
    let scaling = |value: serde_json::Value| with("rope_scaling", value);
    assert_says(
        &scaling(json!({ "rope_type": "yarn", "factor": 2. })),
        &["`yarn` are not supported", "llama3"],
    );
    assert_says(&scaling(json!({ "type": "dynamic", "factor": 2. })), &["`dynamic` are not supported"]);
    assert_says(&scaling(json!({ "type": "linear" })), &["rope_type `linear`, which needs `factor`"]);
    assert_says(&scaling(json!({ "type": "linear", "factor": 0. })), &["makes no sense", "above 0"]);
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8., "low_freq_factor": 4., "high_freq_factor": 1.,
        "original_max_position_embeddings": 8192
    });
    assert_says(&scaling(llama3), &["makes no sense", "low_freq_factor below high_freq_factor"]);
    let qwen2 = json!({
        "model_type": "qwen2", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 4,
        "num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"]
    });
    assert_says(&refused(&qwen2), &["`linear_attention` in layer_types"]);
}

/// transformers wrote these differently before version 5; both are read, and missing entries have its defaults.
#[test]
fn configs_of_all_versions_are_read() -> Test {
    let old = r#"{ "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 500000.0,
        "rope_scaling": { "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192 }, "eos_token_id": [128001, 128009], "torch_dtype": "bfloat16" }"#;
    let new = r#"{ "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_parameters": {
        "rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192 }, "eos_token_id": [128001, 128009],
        "num_key_value_heads": null }"#;
    let config = Config::from_json(old)?;
    assert_eq!(config, Config::from_json(new)?);
    assert_eq!((config.rope_theta, config.num_key_value_heads, config.head_dim), (500000., 4, 16));
    assert_eq!((config.bos_token_id, config.eos_token_id), (Some(1), vec![128001, 128009]));
    assert!(matches!(config.rope_scaling, RopeScaling::Llama3 { .. }));

    let mistral = Config::from_json(r#"{ "model_type": "mistral" }"#)?;
    assert_eq!((mistral.sliding_window, mistral.num_key_value_heads), (Some(4096), 8));
    let mistral =
        Config::from_json(r#"{ "model_type": "mistral", "sliding_window": null, "eos_token_id": null }"#)?;
    assert_eq!((mistral.window(0), mistral.eos_token_id), (None, vec![]));
    let qwen2 = Config::from_json(r#"{ "model_type": "qwen2", "sliding_window": 4096 }"#)?;
    assert_eq!(
        (qwen2.sliding_window, qwen2.vocab_size, qwen2.qkv_bias, qwen2.o_bias),
        (None, 151936, true, false)
    );
    let qwen2 =
        Config::from_json(r#"{ "model_type": "qwen2", "sliding_window": 8, "use_sliding_window": true }"#)?;
    assert_eq!((qwen2.window(27), qwen2.window(28), qwen2.windowed), (None, Some(8), Windowed::From(28)));
    Ok(())
}

#[test]
fn a_tensor_that_nobody_asks_for() -> Test {
    let copy = copy(folder("base"));
    let path = copy.path().join("model.safetensors");
    let mut weights = tensors(&path);
    let name = "model.layers.1.self_attn.q_norm.weight";
    weights.insert(name.to_string(), Tensor::ones(4, DType::F32, &device())?);
    candle_core::safetensors::save(&weights, &path)?;
    assert_says(&complaint(copy.path()), &["has no tensor", name]);
    // Tables that old checkpoints carry are made anew.
    weights.remove(name);
    let table = "model.layers.0.self_attn.rotary_emb.inv_freq";
    weights.insert(table.to_string(), Tensor::ones(2, DType::F32, &device())?);
    candle_core::safetensors::save(&weights, &path)?;
    Llama::from_dir(copy.path(), DType::F32, &device())?;
    Ok(())
}

/// At every length that a download may have stopped at.
#[test]
fn a_file_that_is_cut_off() {
    let copy = copy(folder("base"));
    let path = copy.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    for length in (0..12).chain((12..whole.len()).step_by(1997)).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..length]).unwrap();
        assert_says(&complaint(copy.path()), &["model.safetensors", "damaged or was not fully downloaded"]);
    }
}

/// No size in a config makes the loader reserve memory for what is not there.
#[test]
fn no_config_makes_the_loader_ask_for_much_memory() {
    let names = [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ];
    for name in names {
        for value in [1u64 << 27, 1 << 40, u64::MAX] {
            let copy = copy(folder("base"));
            set(copy.path(), name, value.into());
            complaint(copy.path());
        }
    }
    // Positions need no memory until they are used.
    let copy = copy(folder("base"));
    set(copy.path(), "max_position_embeddings", (1u64 << 27).into());
    Llama::from_dir(copy.path(), DType::F32, &device()).unwrap();
}

#[test]
fn prompts_that_cannot_be_run() {
    let (model, device) = (model("base"), &device());
    let refused = |ids: candle_core::Result<Tensor>| model.forward(&ids.unwrap()).unwrap_err().to_string();
    assert_says(&refused(Tensor::zeros((1, 0), DType::U32, device)), &["the prompt is empty", "[1, 0]"]);
    assert_says(
        &refused(Tensor::zeros((1, 25), DType::U32, device)),
        &["25 tokens do not fit", "24 positions"],
    );
    assert_says(&refused(Tensor::new(&[[1u32, 41]], device)), &["no token 41", "0 to 40"]);
    assert_says(&refused(Tensor::new(&[1u32, 2], device)), &["[batch, pos]", "unsqueeze(0)"]);
    let error = model.generate(&[[1, 2, 3]], &Generation::new(23)).unwrap_err().to_string();
    assert_says(&error, &["25 tokens do not fit"]);
    let error = Llama::from_dir(folder("base"), DType::U32, device).unwrap_err().to_string();
    assert_says(&error, &["a Llama cannot compute in u32"]);
}
