use std::path::PathBuf;

use candle_core::{DType, Tensor};
use hookpoint::prelude::*;
use hookpoint_interp::lens::{Attribution, By, LogitLens, Target};
use hookpoint_models::llama::{Generation, Llama, Projection, RopeScaling, Tokenizer};
use hookpoint_tests::compare::{assert_close, assert_within, device, row, tensors, Test};

use crate::fixtures::folder;

pub const FILES: [&str; 3] = ["llama.f32", "llama.q8_0", "qwen2.f16"];

pub fn path(name: &str) -> PathBuf {
    folder("gguf").join(format!("{name}.gguf"))
}

fn model(name: &str) -> Llama {
    Llama::from_gguf(path(name), DType::F32, &device()).unwrap()
}

fn quantized() -> Llama {
    Llama::from_gguf_quantized(path("llama.q8_0"), DType::F32, &device()).unwrap()
}

#[test]
fn logits_and_greedy_texts_are_those_of_transformers() -> Test {
    for name in FILES {
        let (model, expected) = (model(name), tensors(folder("gguf").join(format!("{name}.safetensors"))));
        assert_close(name, &model.forward(&expected["ids"])?, &expected["logits"]);
        let texts = model.generate(&[row(&expected["ids"], 0)], &Generation::new(8))?;
        assert_eq!(texts[0], row(&expected["greedy"], 0), "{name}");
    }
    Ok(())
}

#[test]
fn the_config_is_what_the_metadata_say() {
    let config = model("llama.f32").config().clone();
    assert_eq!((config.num_attention_heads, config.num_key_value_heads, config.head_dim), (4, 2, 8));
    assert_eq!((config.qkv_bias, config.tie_word_embeddings), (false, false));
    let RopeScaling::Each(factors) = config.rope_scaling else { panic!("{:?}", config.rope_scaling) };
    // Frequencies that stay, that are between, and that are divided.
    assert!(factors[0] == 1. && factors[1] > 1. && factors[1] < 8. && factors[3] == 8., "{factors:?}");
    let config = model("qwen2.f16").config().clone();
    assert_eq!((config.qkv_bias, config.o_bias, config.rope_scaling), (true, false, RopeScaling::None));
    assert!(model("llama.q8_0").config().tie_word_embeddings);
}

#[test]
fn quantized_weights_can_stay_so() -> Test {
    let (model, whole) = (Hooked::new(quantized()), Hooked::new(model("llama.q8_0")));
    assert!(matches!(model.blocks()[1].attn().o_proj(), Projection::Quantized { .. }));
    assert!(matches!(model.unembed(), Projection::Quantized { .. }));
    assert!(matches!(whole.unembed(), Projection::Full { .. }));
    let ids = Tensor::new(&[[1u32, 2, 3, 4, 5, 6]], &device())?;
    let points = ["**", "blocks.*.attn:{pattern,result}", "blocks.*:resid_post"];
    let (logits, cache) = model.run_with_cache(points, |m| m.forward(&ids))?;
    let (wanted, of_whole) = whole.run_with_cache(points, |m| m.forward(&ids))?;
    // Candle rounds the inputs of the layers to 8 bits, too, which adds up over the layers.
    let near = |what: &str, found: &Tensor, wanted: &Tensor, part: f32| -> anyhow::Result<()> {
        let size = wanted.abs()?.max_all()?.to_scalar::<f32>()?;
        assert_within(what, found, wanted, 0., part * size);
        Ok(())
    };
    for point in ["q_proj", "k_proj", "v_proj"].map(|part| format!("blocks.0.attn.{part}")) {
        near(&point, &cache[point.as_str()], &of_whole[point.as_str()], 0.01)?;
    }
    for point in ["blocks.1.attn:result", "blocks.1.attn:pattern", "blocks.1:resid_post"] {
        near(point, &cache[point], &of_whole[point], 0.1)?;
    }
    near("logits", &logits, &wanted, 0.1)?;
    // The weights themselves are the same numbers.
    let weight = |model: &Llama| model.blocks()[0].attn().projections()[0].weight();
    assert_close("weight", &weight(&model)?, &weight(&whole)?);
    Ok(())
}

#[test]
fn a_quantized_model_generates_and_can_be_looked_into() -> Test {
    let model = Hooked::new(quantized());
    let generation = Generation::new(8);
    let texts = model.generate(&[vec![1, 2, 3], vec![4]], &generation)?;
    assert_eq!(texts, model.generate(&[vec![1, 2, 3], vec![4]], &generation.without_kv_cache())?);
    let ids = Tensor::new(&[[1u32, 2, 3, 1, 2, 3]], &device())?;
    let logits = model.forward(&ids)?;
    let size = logits.abs()?.max_all()?.to_scalar::<f32>()?;
    let lens = LogitLens::of(&model, &ids)?;
    assert_within("lens", &lens.logits().get(2)?, &logits, 0., 0.03 * size);
    let attribution = Attribution::of(&model, &ids, &Target::token(5), By::Head)?;
    assert_within("attribution", &attribution.total()?, attribution.logits(), 0., 0.03 * size);
    // Gradients go through the blocks.
    let run =
        model.plan().cache_grad("blocks.0:resid_pre")?.backward(|m| m.forward(&ids)?.sqr()?.sum_all())?;
    assert!(run.grads["blocks.0:resid_pre"].abs()?.max_all()?.to_scalar::<f32>()? > 0.);
    Ok(())
}

#[test]
fn a_quantized_model_passes_the_self_test() -> Test {
    let ids = Tensor::new(&[[1u32, 2, 3, 4]], &device())?;
    hookpoint::check_auto_hook(&hookpoint::Hooked::new(quantized())).strict().run(|m| m.forward(&ids))?;
    Ok(())
}

#[test]
fn a_path_may_be_a_folder_or_a_file() -> Test {
    let ids = Tensor::new(&[[1u32, 2, 3]], &device())?;
    for path in [folder("base"), path("qwen2.f16")] {
        let model = Llama::from_path(path, DType::F32, &device())?;
        assert_eq!(model.forward(&ids)?.dims(), [1, 3, 41]);
        assert_eq!(model.tokenizer()?.token(31).as_deref(), Some("the"));
    }
    Ok(())
}

#[test]
fn half_precision_comes_near() -> Test {
    let expected = tensors(folder("gguf").join("llama.f32.safetensors"));
    let model = Llama::from_gguf(path("llama.f32"), DType::BF16, &device())?;
    let logits = model.forward(&expected["ids"])?;
    assert_eq!(logits.dtype(), DType::BF16);
    let size = expected["logits"].abs()?.max_all()?.to_scalar::<f32>()?;
    assert_within("logits", &logits, &expected["logits"], 0., 0.06 * size);
    Ok(())
}

fn assert_tokenizes(tokenizer: &Tokenizer, table: &serde_json::Value, what: &str) -> Test {
    let lines = table.as_array().unwrap();
    assert!(lines.len() >= 3);
    for line in lines {
        let ids: Vec<u32> = serde_json::from_value(line["ids"].clone())?;
        let text = line["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text)?, ids, "{what}: {text:?}");
        assert_eq!(tokenizer.decode(&ids)?, line["back"].as_str().unwrap(), "{what}");
    }
    Ok(())
}

#[test]
fn the_tokenizer_of_a_file_is_that_of_its_tokenizer_json() -> Test {
    let table: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder("gguf").join("tokenized.json"))?)?;
    for name in FILES {
        assert_tokenizes(model(name).tokenizer()?, &table, name)?;
    }
    Ok(())
}

#[test]
fn texts_are_split_as_the_file_says() -> Test {
    let folder = folder("tokenizers");
    let table: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("tokenized.json"))?)?;
    for kind in ["gpt-2", "smollm", "llama-bpe", "qwen2", "spm"] {
        let tokenizer = Tokenizer::from_gguf(folder.join(format!("{kind}.gguf")))?;
        assert_tokenizes(&tokenizer, &table[kind], kind)?;
    }
    Ok(())
}
