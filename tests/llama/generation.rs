use candle_core::{DType, IndexOp, Tensor};
use hookpoint::prelude::*;
use hookpoint_models::llama::{Config, Generation, Llama, Past, Sampling, Windowed};
use hookpoint_tests::compare::{assert_close, device, numbers, row, Test};

use crate::fixtures::{expected, folder, model, CASES};

fn prompt(case: &str) -> Vec<u32> {
    row(&expected(case)["ids"], 0)[..5].to_vec()
}

fn random(seed: u64) -> Sampling {
    Sampling::Random { temperature: 1.3, top_k: Some(30), top_p: Some(0.95), seed }
}

/// Something to steer with, `[d_model]`.
fn direction(model: &Llama) -> Tensor {
    let numbers: Vec<f32> = (0..model.config().hidden_size).map(|n| (n as f32 * 1.7).sin() * 2.).collect();
    Tensor::new(numbers, &device()).unwrap()
}

#[test]
fn a_kv_cache_changes_nothing_but_the_time() -> Test {
    for case in CASES {
        let model = model(case);
        for sampling in [Sampling::Greedy, random(1), random(2)] {
            let generation = Generation::new(12).sampling(sampling);
            let with = model.generate(&[prompt(case)], &generation)?;
            let without = model.generate(&[prompt(case)], &generation.without_kv_cache())?;
            assert_eq!(with, without, "{case}");
            assert_eq!(with[0].len(), 5 + 12);
        }
    }
    Ok(())
}

#[test]
fn hooks_act_at_every_step() -> Test {
    for case in ["base", "qwen2", "mistral"] {
        let model = Hooked::new(model(case));
        let steering = direction(&model);
        let generation = Generation::new(12).sampling(random(3));
        let steer = |generation: &Generation| -> anyhow::Result<Vec<Vec<u32>>> {
            let hook = |_: &HookCtx<'_>, x: &Tensor| Ok(Some(x.broadcast_add(&steering)?));
            let plan = model.plan().hook("blocks.0:resid_post", hook)?;
            Ok(plan.run(|m| m.generate(&[prompt(case)], generation))?.output)
        };
        let steered = steer(&generation)?;
        assert_eq!(steered, steer(&generation.clone().without_kv_cache())?, "{case}");
        assert_ne!(steered, model.generate(&[prompt(case)], &generation)?, "{case}");
    }
    Ok(())
}

#[test]
fn what_steps_see_is_what_one_pass_sees() -> Test {
    for case in ["base", "qwen2", "mistral"] {
        let model = Hooked::new(model(case));
        let points = ["blocks.1:resid_post", "blocks.1.attn:pattern", "blocks.1.attn:rot_k"];
        let run = model.plan().cache(points)?.run(|m| m.generate(&[prompt(case)], &Generation::new(6)))?;
        let text = &run.output[0];
        // The last token was never looked at.
        let ids = Tensor::new(&text[..text.len() - 1], &device())?.unsqueeze(0)?;
        let (_, whole) = model.run_with_cache(points, |m| m.forward(&ids))?;
        for point in ["blocks.1:resid_post", "blocks.1.attn:rot_k"] {
            assert_close(&format!("{case}: {point}"), &run.cache.join(point, 1)?, &whole[point]);
        }
        let patterns = run.cache.join_padded("blocks.1.attn:pattern", 2, 0.)?;
        assert_close(&format!("{case}: patterns"), &patterns, &whole["blocks.1.attn:pattern"]);
    }
    Ok(())
}

#[test]
fn prompts_of_different_length_give_what_each_gives_alone() -> Test {
    for case in CASES {
        let model = model(case);
        let ids = row(&expected(case)["ids"], 0);
        let prompts = [ids[..2].to_vec(), ids.clone(), ids[3..8].to_vec(), ids[..1].to_vec()];
        for generation in [Generation::new(8), Generation::new(8).without_kv_cache()] {
            let together = model.generate(&prompts, &generation)?;
            for (number, prompt) in prompts.iter().enumerate() {
                let alone = model.generate(std::slice::from_ref(prompt), &generation)?;
                assert_eq!(together[number], alone[0], "{case}, prompt {number}");
            }
        }
    }
    Ok(())
}

#[test]
fn padding_leaves_no_trace_inside_either() -> Test {
    for case in ["base", "mistral"] {
        let model = Hooked::new(model(case));
        let ids = expected(case)["ids"].i((.., 0..6))?.contiguous()?;
        let padded = Tensor::cat(&[&Tensor::full(7i64, (2, 3), &device())?, &ids], 1)?;
        let points = ["blocks.*:{resid_pre,resid_post}", "blocks.*.attn:{pattern,rot_q,rot_k}", "**"];
        let (_, alone) = model.run_with_cache(points, |m| m.forward(&ids))?;
        let (_, among) =
            model.run_with_cache(points, |m| m.forward_after(&padded, &mut Past::none().padded(&[3, 3])))?;
        for name in
            ["blocks.1:resid_post", "blocks.1.attn:rot_q", "blocks.1.attn:rot_k", "ln_final", "unembed"]
        {
            assert_close(name, &among[name].narrow(1, 3, 6)?, &alone[name]);
        }
        let pattern = &among["blocks.1.attn:pattern"];
        assert_close("pattern", &pattern.i((.., .., 3.., 3..))?, &alone["blocks.1.attn:pattern"]);
        // Nothing looks at padding, and padding is made of numbers.
        assert!(numbers(&pattern.i((.., .., 3.., ..3))?.contiguous()?).iter().all(|weight| *weight == 0.));
        assert!(among.iter().all(|(_, tensor)| numbers(tensor).iter().all(|number| !number.is_nan())));
    }
    Ok(())
}

/// With a window a query sees its own position and the few before it, in the blocks that have one.
#[test]
fn a_window_is_as_long_as_the_config_says() -> Test {
    let model = Hooked::new(model("qwen2"));
    assert_eq!((model.config().window(0), model.config().window(1)), (None, Some(4)));
    let ids = &expected("qwen2")["ids"];
    let (_, cache) = model.run_with_cache("blocks.*.attn:pattern", |m| m.forward(ids))?;
    for (layer, window) in [(0, 9), (1, 4)] {
        let pattern =
            cache[format!("blocks.{layer}.attn:pattern").as_str()].get(0)?.get(0)?.to_vec2::<f32>()?;
        for (query, weights) in pattern.iter().enumerate() {
            for (key, weight) in weights.iter().enumerate() {
                let seen = key <= query && query - key < window;
                assert_eq!(*weight > 0., seen, "block {layer}, query {query}, key {key}: {weight}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_text_ends_with_any_of_the_tokens_that_end_texts() -> Test {
    let config = Config {
        vocab_size: 4,
        max_position_embeddings: 64,
        hidden_size: 8,
        intermediate_size: 8,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 4,
        windowed: Windowed::From(0),
        eos_token_id: vec![2, 3],
        ..Config::default()
    };
    let model = Llama::random(&config, 0, &device())?;
    let texts = model.generate(&[[0], [1], [0]], &Generation::new(60).sampling(Sampling::random(0)))?;
    for text in texts {
        let end = text.iter().position(|token| *token >= 2);
        assert_eq!(end, Some(text.len() - 1), "{text:?}");
    }
    Ok(())
}

#[test]
fn texts_are_completed_with_the_tokenizer() -> Test {
    let model = model("base");
    let tokenizer = model.tokenizer()?.clone();
    let added = model.complete("the cat", &Generation::new(3))?;
    let ids = model.generate(&[tokenizer.encode("the cat")?], &Generation::new(3))?;
    assert_eq!(added, tokenizer.decode(&ids[0][ids[0].len() - 3..])?);
    Ok(())
}

#[test]
fn half_precision_generates() -> Test {
    for dtype in [DType::F16, DType::BF16] {
        let model = Llama::from_dir(folder("qwen2"), dtype, &device())?;
        let texts = model.generate(&[prompt("qwen2"), prompt("qwen2")[..2].to_vec()], &Generation::new(5))?;
        assert_eq!((texts[0].len(), texts[1].len()), (10, 7));
    }
    Ok(())
}
