use std::fs;
use std::path::Path;

use candle_core::{DType, Tensor};
use hookpoint_models::gpt2::{Config, Generation, Gpt2, Past, Sampling, Tokenizer};
use hookpoint_tests::spoil::{self, assert_says, set, write_safetensors};
use tempfile::TempDir;

use crate::fixtures::{device, folder, model, Test};

/// A copy of a checkpoint, to be spoiled.
fn copy(case: &str) -> TempDir {
    spoil::copy(folder(case))
}

/// What is said about a folder that cannot be loaded.
#[track_caller]
fn complaint(folder: &Path) -> String {
    match Gpt2::from_dir(folder, DType::F32, &device()) {
        Ok(_) => panic!("it was loaded"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_folder_that_is_not_there() {
    assert_says(
        &complaint(Path::new("/nowhere/at/all")),
        &["/nowhere/at/all", "no such folder", "config.json"],
    );
}

#[test]
fn a_folder_without_config() {
    let copy = copy("base");
    fs::remove_file(copy.path().join("config.json")).unwrap();
    assert_says(&complaint(copy.path()), &["config.json", "No such file"]);
}

#[test]
fn a_config_that_is_no_json() {
    let copy = copy("base");
    fs::write(copy.path().join("config.json"), "{ \"n_layer\": ").unwrap();
    assert_says(&complaint(copy.path()), &["config.json", "EOF", "line 1"]);
    fs::write(copy.path().join("config.json"), "{ \"n_layer\": \"two\" }").unwrap();
    assert_says(&complaint(copy.path()), &["config.json", "two"]);
    fs::write(copy.path().join("config.json"), [0xff, 0xfe]).unwrap();
    assert_says(&complaint(copy.path()), &["config.json", "UTF-8"]);
}

#[test]
fn weights_that_are_missing() {
    let copy = copy("base");
    fs::remove_file(copy.path().join("model.safetensors")).unwrap();
    assert_says(&complaint(copy.path()), &["model.safetensors", "index.json", "save_pretrained"]);
    fs::write(copy.path().join("pytorch_model.bin"), "").unwrap();
    assert_says(&complaint(copy.path()), &["`pytorch_model.bin` cannot be read"]);
}

#[test]
fn a_shard_that_is_missing() {
    let copy = copy("shards");
    fs::remove_file(copy.path().join("model-00002-of-00003.safetensors")).unwrap();
    assert_says(&complaint(copy.path()), &["model-00002-of-00003.safetensors", "No such file"]);
}

#[test]
fn an_index_that_is_wrong() {
    let copy = copy("shards");
    let path = copy.path().join("model.safetensors.index.json");
    let text = fs::read_to_string(&path).unwrap();
    // A file outside of the folder.
    fs::write(&path, text.replace("model-00002-of-00003.safetensors", "../../etc/passwd")).unwrap();
    assert_says(&complaint(copy.path()), &["../../etc/passwd", "not the name of a file"]);
    // One file only, so that tensors are missing.
    let one = text.replace("model-00002", "model-00001").replace("model-00003", "model-00001");
    fs::write(&path, one).unwrap();
    assert_says(&complaint(copy.path()), &["config.json", "have to belong together"]);
    fs::write(&path, "{}").unwrap();
    assert_says(&complaint(copy.path()), &["no index of weights", "weight_map"]);
}

/// At every length that a download may have stopped at.
#[test]
fn a_file_that_is_cut_off() {
    let copy = copy("base");
    let path = copy.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    for length in (0..12).chain((12..whole.len()).step_by(997)).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..length]).unwrap();
        assert_says(&complaint(copy.path()), &["model.safetensors", "damaged or was not fully downloaded"]);
    }
    let mut longer = whole.clone();
    longer.push(0);
    fs::write(&path, longer).unwrap();
    assert_says(&complaint(copy.path()), &["damaged"]);
}

#[test]
fn a_header_that_claims_terabytes() {
    let copy = copy("base");
    let path = copy.path().join("model.safetensors");
    // The header itself.
    for claimed in [1u64 << 42, u64::MAX, 99_999_999] {
        let mut bytes = fs::read(folder("base").join("model.safetensors")).unwrap();
        bytes[..8].copy_from_slice(&claimed.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        assert_says(&complaint(copy.path()), &["claims a header of", "damaged"]);
    }
    // A tensor; all numbers agree with each other, but not with the file.
    let dims = "[1048576, 1048576]";
    let huge =
        format!(r#"{{"wte.weight":{{"dtype":"F32","shape":{dims},"data_offsets":[0,4398046511104]}}}}"#);
    write_safetensors(&path, &huge, 100);
    assert_says(&complaint(copy.path()), &["4398046511", "damaged"]);
    // Sizes whose product overflows.
    let over = r#"{"wte.weight":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}}"#;
    write_safetensors(&path, over, 0);
    assert_says(&complaint(copy.path()), &["damaged"]);
    let end = r#"{"wte.weight":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}}"#;
    write_safetensors(&path, end, 0);
    assert_says(&complaint(copy.path()), &["damaged"]);
}

#[test]
fn headers_that_are_nonsense() {
    let copy = copy("base");
    let path = copy.path().join("model.safetensors");
    for header in [
        "",
        "[]",
        "null",
        "{\"a\": 1}",
        r#"{"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#,
    ] {
        write_safetensors(&path, header, 4);
        assert_says(&complaint(copy.path()), &["model.safetensors", "damaged"]);
    }
}

/// Whatever byte of the header is changed, there is an answer.
#[test]
fn any_byte_of_the_header_may_be_wrong() {
    let copy = copy("base");
    let path = copy.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for at in (0..8).chain((8..8 + header).step_by(13)) {
        for byte in [0, b'"', b'9', 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            fs::write(&path, bytes).unwrap();
            // It may be a byte of a name that nobody asks for.
            let _ = Gpt2::from_dir(copy.path(), DType::F32, &device());
        }
    }
}

#[test]
fn weights_of_a_dtype_that_is_none() {
    let copy = copy("base");
    let path = copy.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let text = String::from_utf8(bytes[8..8 + header].to_vec()).unwrap().replace("\"F32\"", "\"I32\"");
    let spoiled = [&bytes[..8], text.as_bytes(), &bytes[8 + header..]].concat();
    fs::write(&path, spoiled).unwrap();
    assert_says(&complaint(copy.path()), &["has dtype I32", "BF16"]);
}

#[test]
fn a_model_cannot_be_made_of_integers() {
    let Err(error) = Gpt2::from_dir(folder("base"), DType::U32, &device()) else { panic!("it was loaded") };
    assert_says(&error.to_string(), &["u32", "F32, F16 or BF16"]);
}

#[test]
fn a_config_that_does_not_fit_the_weights() {
    let cases = [
        ("n_layer", 3u64, "config.json says that there are 3 blocks, and the weights have 2"),
        ("n_layer", 1, "config.json says that there are 1 blocks, and the weights have 2"),
        ("n_layer", 1_000_000_000_000, "and the weights have 2"),
        ("n_embd", 24, "`transformer.wte.weight` has shape [41, 12], and config.json asks for [41, 24]"),
        ("vocab_size", 50257, "config.json asks for [50257, 12]"),
        ("n_positions", 25, "`transformer.wpe.weight` has shape [24, 12]"),
        ("n_inner", 47, "c_fc.weight` has shape [12, 48], and config.json asks for [12, 47]"),
        ("n_head", 5, "n_embd (12) is not a multiple of n_head (5)"),
        ("n_head", 0, "n_head is 0"),
        ("n_embd", 0, "n_embd is 0"),
        ("n_embd", 1 << 60, "n_embd is 1152921504606846976"),
    ];
    for (name, value, expected) in cases {
        let copy = copy("base");
        set(copy.path(), name, value.into());
        assert_says(&complaint(copy.path()), &[expected]);
    }
    let copy = copy("base");
    set(copy.path(), "tie_word_embeddings", false.into());
    assert_says(&complaint(copy.path()), &["no tensor `lm_head.weight`"]);
}

#[test]
fn a_tensor_of_the_wrong_shape() -> Test {
    let copy = copy("base");
    let path = copy.path().join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(&path, &device())?;
    let name = "transformer.h.1.attn.c_proj.weight";
    let turned = tensors[name].reshape((6, 24))?;
    tensors.insert(name.to_string(), turned);
    candle_core::safetensors::save(&tensors, &path)?;
    assert_says(&complaint(copy.path()), &[name, "has shape [6, 24], and config.json asks for [12, 12]"]);
    tensors.remove(name);
    candle_core::safetensors::save(&tensors, &path)?;
    assert_says(&complaint(copy.path()), &["there is no tensor", name]);
    Ok(())
}

#[test]
fn an_activation_that_nobody_knows() {
    let copy = copy("base");
    for name in ["gelo", "", "GELU_NEW", "gelu_new "] {
        set(copy.path(), "activation_function", name.into());
        let unknown = format!("unknown activation function `{name}`");
        assert_says(&complaint(copy.path()), &["config.json", &unknown, "gelu_new", "quick_gelu"]);
    }
    for value in [serde_json::json!(3), serde_json::json!(["gelu"])] {
        set(copy.path(), "activation_function", value);
        assert_says(&complaint(copy.path()), &["config.json"]);
    }
}

#[test]
fn a_config_for_something_else() {
    let copy = copy("base");
    set(copy.path(), "model_type", "llama".into());
    assert_says(&complaint(copy.path()), &["`llama`, not for `gpt2`"]);
    set(copy.path(), "model_type", "gpt2".into());
    set(copy.path(), "add_cross_attention", true.into());
    assert_says(&complaint(copy.path()), &["cross-attention"]);
    set(copy.path(), "add_cross_attention", false.into());
    set(copy.path(), "layer_norm_epsilon", (-1.).into());
    assert_says(&complaint(copy.path()), &["layer_norm_epsilon is -1"]);
}

#[test]
fn a_tokenizer_that_is_none() {
    let copy = copy("base");
    fs::write(copy.path().join("tokenizer.json"), "{}").unwrap();
    assert_says(&complaint(copy.path()), &["tokenizer.json", "no tokenizer.json"]);
    fs::remove_file(copy.path().join("tokenizer.json")).unwrap();
    let model = Gpt2::from_dir(copy.path(), DType::F32, &device()).unwrap();
    assert_says(&model.tokenizer().unwrap_err().to_string(), &["without a tokenizer", "with_tokenizer"]);
    assert!(Tokenizer::from_file(copy.path().join("nothing.json")).is_err());
}

/// What is said about ids that cannot be run.
#[track_caller]
fn refused(ids: candle_core::Result<Tensor>) -> String {
    match model("base").forward(&ids.unwrap()) {
        Ok(_) => panic!("it was run"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn prompts_that_cannot_be_run() {
    let device = &device();
    let empty = Tensor::zeros((1, 0), DType::U32, device);
    assert_says(&refused(empty), &["the prompt is empty", "[1, 0]"]);
    assert_says(&refused(Tensor::zeros((0, 3), DType::U32, device)), &["the prompt is empty"]);
    assert_says(
        &refused(Tensor::zeros((1, 25), DType::U32, device)),
        &["25 tokens do not fit", "24 positions"],
    );
    assert_says(&refused(Tensor::new(&[1u32, 2], device)), &["[batch, pos]", "unsqueeze(0)"]);
    assert_says(&refused(Tensor::new(&[[1f32, 2.]], device)), &["u32 or i64", "f32"]);
    assert_says(
        &refused(Tensor::new(&[[1u32, 2], [3, 41]], device)),
        &["no token 41", "row 1, position 1", "0 to 40"],
    );
    assert_says(&refused(Tensor::new(&[[1u32, u32::MAX]], device)), &["no token 4294967295"]);
    assert_says(&refused(Tensor::new(&[[-1i64, 2]], device)), &["no token -1", "row 0, position 0"]);
    assert_says(&refused(Tensor::new(&[[1, i64::MAX]], device)), &["no token 9223372036854775807"]);
    assert_says(&refused(Tensor::new(&[[1, i64::MIN]], device)), &["no token -9223372036854775808"]);
    assert!(Gpt2::from_dir(folder("base"), DType::F32, device)
        .and_then(|model| Ok(model.forward(&Tensor::zeros((1, 24), DType::U32, device)?)?))
        .is_ok());
}

#[test]
fn a_past_that_does_not_fit() -> Test {
    let (model, device) = (model("base"), &device());
    let two = Tensor::new(&[[1u32, 2], [3, 4]], device)?;
    let one = Tensor::new(&[[1u32, 2]], device)?;
    let mut past = Past::new();
    model.forward_after(&two, &mut past)?;
    assert_says(&model.forward_after(&one, &mut past).unwrap_err().to_string(), &["1 rows cannot follow 2"]);
    let error = model.forward_after(&two, &mut Past::none().padded(&[0])).unwrap_err();
    assert_says(&error.to_string(), &["padding is given for 1 rows, and ids have 2"]);
    let error = model.forward_after(&two, &mut Past::none().padded(&[0, 2])).unwrap_err();
    assert_says(&error.to_string(), &["row 1 is nothing but padding"]);
    for _ in 0..11 {
        model.forward_after(&two, &mut past)?;
    }
    assert_eq!(past.len(), 24);
    assert_says(&model.forward_after(&two, &mut past).unwrap_err().to_string(), &["26 tokens do not fit"]);
    Ok(())
}

#[test]
fn generations_that_make_no_sense() {
    let model = model("base");
    let refused = |prompts: &[Vec<u32>], generation: Generation| match model.generate(prompts, &generation) {
        Ok(_) => panic!("it was run"),
        Err(error) => error.to_string(),
    };
    let one = [vec![1, 2, 3]];
    assert_says(&refused(&[vec![]], Generation::new(3)), &["the prompt is empty"]);
    assert_says(&refused(&[], Generation::new(3)), &["the prompt is empty"]);
    assert_says(&refused(&[vec![1], vec![]], Generation::new(3)), &["row 1", "the prompt is empty"]);
    assert_says(&refused(&[vec![]], Generation::new(0)), &["the prompt is empty"]);
    assert_says(&refused(&one, Generation::new(23)), &["25 tokens do not fit"]);
    assert_says(&refused(&one, Generation::new(usize::MAX)), &["do not fit"]);
    assert_says(&refused(&[vec![1, 99]], Generation::new(3)), &["no token 99"]);
    assert_eq!(model.generate(&one, &Generation::new(22)).unwrap()[0].len(), 25);
    let sampled = |temperature, top_k, top_p| {
        Generation::new(3).sampling(Sampling::Random { temperature, top_k, top_p, seed: 0 })
    };
    assert_says(&refused(&one, sampled(0., None, None)), &["temperature", "Greedy"]);
    assert_says(&refused(&one, sampled(f64::NAN, None, None)), &["temperature"]);
    assert_says(&refused(&one, sampled(-1., None, None)), &["temperature"]);
    assert_says(&refused(&one, sampled(1., Some(0), None)), &["top_k is 0"]);
    assert_says(&refused(&one, sampled(1., None, Some(0.))), &["top_p"]);
    assert_says(&refused(&one, sampled(1., None, Some(1.5))), &["top_p"]);
}

#[test]
fn texts_that_the_tokenizer_does_not_know() -> Test {
    let model = model("base");
    let tokenizer = model.tokenizer()?;
    let refused = |text: &str| tokenizer.encode(text).unwrap_err().to_string();
    assert_says(&refused(""), &["the prompt is empty"]);
    let embedded = Gpt2::embedded(&device())?;
    let refused_words = |text: &str| embedded.tokenizer().unwrap().encode(text).unwrap_err().to_string();
    assert_says(&refused_words("  "), &["the prompt is empty"]);
    assert_says(&refused_words("Monday Tuesday "), &["spaces", "none behind the last"]);
    assert_says(&refused_words("Monday  Tuesday"), &["spaces", "one between words"]);
    // Bytes that the vocabulary does not have.
    assert_says(&refused("the Cat sat"), &["does not know", "`the Cat sat`"]);
    assert_says(&refused("the cät"), &["does not know"]);
    assert!(model.complete("the Cat", &Generation::new(2)).is_err());
    assert_says(&tokenizer.decode(&[1, 99]).unwrap_err().to_string(), &["no token 99"]);

    let words = |unknown: &str| {
        format!(
            r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
            "pre_tokenizer":{{"type":"WhitespaceSplit"}},"post_processor":null,"decoder":null,
            "model":{{"type":"WordLevel","vocab":{{"[UNK]":0,"a":1,"rose":2}},"unk_token":"{unknown}"}}}}"#
        )
    };
    for unknown in ["[UNK]", "not there"] {
        let tokenizer = Tokenizer::from_json(&words(unknown))?;
        assert_eq!(tokenizer.encode("a rose a")?, [1, 2, 1]);
        let error = tokenizer.encode("a lily a").unwrap_err().to_string();
        assert_says(&error, &["does not know `lily`", "`a lily a`"]);
        assert_says(&tokenizer.encode("  ").unwrap_err().to_string(), &["the prompt is empty"]);
    }
    // Who writes the token for unknown words means it.
    assert_eq!(Tokenizer::from_json(&words("[UNK]"))?.encode("a [UNK]")?, [1, 0]);
    Ok(())
}

/// No size in a config makes the loader reserve memory for what is not there.
#[test]
fn no_config_makes_the_loader_ask_for_much_memory() {
    for name in ["vocab_size", "n_positions", "n_embd", "n_inner", "n_layer", "n_head"] {
        for value in [1u64 << 27, 1 << 40, u64::MAX] {
            let copy = copy("base");
            set(copy.path(), name, value.into());
            complaint(copy.path());
        }
    }
    assert!(Config::from_json("{\"n_layer\": -1}").is_err());
}
