use std::cell::RefCell;

use candle_core::{DType, IndexOp, Tensor};
use hookpoint::prelude::*;
use hookpoint::{with_step, Step, Steps};
use hookpoint_models::gpt2::{Config, Generation, Gpt2, Past, Sampling};

use crate::fixtures::{assert_close, device, expected, model, numbers, row, Test};

fn prompt() -> Vec<u32> {
    row(&expected("base")["ids"], 0)[..5].to_vec()
}

fn random(seed: u64) -> Sampling {
    Sampling::Random { temperature: 1.3, top_k: Some(30), top_p: Some(0.95), seed }
}

/// Something to steer with, `[d_model]`.
fn direction(model: &Gpt2) -> Tensor {
    let numbers: Vec<f32> = (0..model.config().n_embd).map(|n| (n as f32 * 1.7).sin() * 2.).collect();
    Tensor::new(numbers, &device()).unwrap()
}

#[test]
fn a_kv_cache_changes_nothing_but_the_time() -> Test {
    for case in ["base", "by_layer", "upcast", "untied"] {
        let model = model(case);
        for sampling in [Sampling::Greedy, random(1), random(2)] {
            let generation = Generation::new(12).sampling(sampling);
            let with = model.generate(&[prompt()], &generation)?;
            let without = model.generate(&[prompt()], &generation.without_kv_cache())?;
            assert_eq!(with, without, "{case}");
            assert_eq!(with[0].len(), 5 + 12);
        }
    }
    Ok(())
}

#[test]
fn steering_gives_the_same_text_with_and_without_a_kv_cache() -> Test {
    let model = Hooked::new(model("base"));
    let steering = direction(&model);
    let generation = Generation::new(12).sampling(random(3));
    let steer = |generation: &Generation| -> anyhow::Result<Vec<Vec<u32>>> {
        let plan = model.plan().hook("blocks.0:resid_post", |_, x| Ok(Some(x.broadcast_add(&steering)?)))?;
        Ok(plan.run(|m| m.generate(&[prompt()], generation))?.output)
    };
    let steered = steer(&generation)?;
    assert_eq!(steered, steer(&generation.clone().without_kv_cache())?);
    assert_ne!(steered, model.generate(&[prompt()], &generation)?);
    Ok(())
}

/// Also where a hook acts on some positions only: on the prompt, on one step, on all that is generated.
#[test]
fn a_hook_limited_to_steps_gives_the_same_text_with_and_without_a_kv_cache() -> Test {
    let model = Hooked::new(model("base"));
    let steering = direction(&model);
    let generation = Generation::new(10).sampling(random(4));
    let every = Steps::every();
    let mut texts = Vec::new();
    for steps in [Steps::prompt(), Steps::only(2), Steps::between(1..usize::MAX), every] {
        let steer = |generation: &Generation| -> anyhow::Result<Vec<Vec<u32>>> {
            let hook = steps.clone().limit(|_, x| Ok(Some(x.broadcast_add(&steering)?)));
            let plan = model.plan().hook("blocks.0:resid_post", hook)?;
            Ok(plan.run(|m| m.generate(&[prompt()], generation))?.output)
        };
        let with = steer(&generation)?;
        assert_eq!(with, steer(&generation.clone().without_kv_cache())?, "{steps:?}");
        texts.push(with);
    }
    // They do different things.
    texts.push(model.generate(&[prompt()], &generation)?);
    for (number, text) in texts.iter().enumerate() {
        assert!(!texts[number + 1..].contains(text), "{texts:?}");
    }
    Ok(())
}

#[test]
fn a_hook_limited_to_a_step_sees_the_positions_of_that_step_alone() -> Test {
    let model = Hooked::new(model("base"));
    let seen = |steps: Steps, generation: Generation| -> anyhow::Result<Vec<Vec<usize>>> {
        let shapes = RefCell::new(Vec::new());
        let plan = model.plan().hook(
            "blocks.1:resid_pre",
            steps.limit(|_, x| {
                shapes.borrow_mut().push(x.dims().to_vec());
                Ok(None)
            }),
        )?;
        plan.run(|m| m.generate(&[prompt()], &generation))?;
        drop(plan);
        Ok(shapes.into_inner())
    };
    let generation = Generation::new(4);
    assert_eq!(seen(Steps::prompt(), generation.clone())?, [[1, 5, 12]]);
    assert_eq!(seen(Steps::only(3), generation.clone())?, [[1, 1, 12]]);
    assert_eq!(seen(Steps::every(), generation.clone())?, [[1, 5, 12], [1, 1, 12], [1, 1, 12], [1, 1, 12]]);
    let whole = generation.without_kv_cache();
    assert_eq!(seen(Steps::only(3), whole.clone())?, [[1, 1, 12]]);
    // Computed again at every later step, and so hooked again.
    assert_eq!(seen(Steps::only(2), whole.clone())?, [[1, 1, 12], [1, 1, 12]]);
    assert_eq!(seen(Steps::prompt(), whole)?, [[1, 5, 12]; 4]);
    Ok(())
}

#[test]
fn a_hook_for_a_step_that_never_comes_is_an_error() -> Test {
    let model = Hooked::new(model("base"));
    let plan = model.plan().hook("blocks.0", Steps::only(9).limit(|_, x| Ok(Some(x.clone()))))?;
    let error = plan.run(|m| m.generate(&[prompt()], &Generation::new(4))).unwrap_err();
    assert!(error.to_string().contains("never fired"), "{error}");
    // And so is a call number that is never reached.
    let plan = model.plan().cache("blocks.0#9")?;
    assert!(plan.run(|m| m.generate(&[prompt()], &Generation::new(4))).is_err());
    Ok(())
}

#[test]
fn positions_of_patterns_are_in_their_third_dimension() -> Test {
    let model = Hooked::new(model("base"));
    let ablate = |steps: Steps| -> hookpoint::Result<Vec<Vec<u32>>> {
        let hook = steps.limit(|_, pattern| Ok(Some(pattern.zeros_like()?)));
        let plan = model.plan().hook("blocks.0.attn:pattern", hook)?;
        Ok(plan.run(|m| m.generate(&[prompt()], &Generation::new(6)))?.output)
    };
    ablate(Steps::only(1).along(2))?;
    // There are 3 heads and 5 positions.
    let error = ablate(Steps::only(1)).unwrap_err().to_string();
    assert!(error.contains("does not count positions") && error.contains(".along(..)"), "{error}");
    let error = ablate(Steps::only(1).along(4)).unwrap_err().to_string();
    assert!(error.contains("no dimension 4"), "{error}");
    Ok(())
}

#[test]
fn hooks_are_told_step_and_absolute_position() -> Test {
    let model = Hooked::new(model("base"));
    let told = |generation: &Generation| -> anyhow::Result<Vec<(usize, usize, Step)>> {
        let told = RefCell::new(Vec::new());
        let plan = model.plan().hook("blocks.1.mlp", |ctx, _| {
            told.borrow_mut().push((ctx.call(), ctx.position(), ctx.step().unwrap().clone()));
            Ok(None)
        })?;
        plan.run(|m| m.generate(&[prompt()], generation))?;
        drop(plan);
        Ok(told.into_inner())
    };
    let step = |number, positions| Step { number, positions, prompt: 5 };
    let generation = Generation::new(3);
    let with = told(&generation)?;
    assert_eq!(with, [(0, 0, step(0, 0..5)), (1, 5, step(1, 5..6)), (2, 6, step(2, 6..7))]);
    let without = told(&generation.without_kv_cache())?;
    assert_eq!(without, [(0, 0, step(0, 0..5)), (1, 0, step(1, 0..6)), (2, 0, step(2, 0..7))]);
    // Outside of a generation there are no steps, and positions begin at 0.
    let plan = model.plan().hook("blocks.1.mlp", |ctx, _| {
        assert_eq!((ctx.step(), ctx.position()), (None, 0));
        Ok(None)
    })?;
    let ids = expected("base")["ids"].clone();
    plan.run(|m| m.forward(&ids))?;
    Ok(())
}

#[test]
fn a_step_ends_with_its_closure_also_when_that_fails() -> Test {
    let model = Hooked::new(model("base"));
    let ids = &expected("base")["ids"];
    let steps = RefCell::new(Vec::new());
    let plan = model.plan().hook("unembed", |ctx, _| {
        steps.borrow_mut().push(ctx.step().map(|step| step.number));
        Ok(None)
    })?;
    plan.run(|m| -> anyhow::Result<()> {
        let step = |number| Step { number, positions: 0..9, prompt: 9 };
        with_step(step(1), || with_step(step(2), || m.forward(ids)).and_then(|_| m.forward(ids)))?;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            with_step(step(3), || panic!("on purpose"))
        }));
        assert!(caught.is_err());
        m.forward(ids)?;
        Ok(())
    })?;
    drop(plan);
    assert_eq!(steps.into_inner(), [Some(2), Some(1), None]);
    Ok(())
}

#[test]
fn steps_can_be_joined_along_positions() -> Test {
    let model = Hooked::new(model("base"));
    let generation = Generation::new(6);
    let points = ["blocks.1:resid_post", "blocks.0.attn:pattern", "blocks.0.attn:attn_scores"];
    let run = model.plan().cache(points)?.run(|m| m.generate(&[prompt()], &generation))?;
    let text = &run.output[0];
    // What one pass over the same text sees; the last token was never looked at.
    let ids = Tensor::new(&text[..text.len() - 1], &device())?.unsqueeze(0)?;
    let (_, whole) = model.run_with_cache(points, |m| m.forward(&ids))?;
    assert_eq!(run.cache.calls("blocks.1:resid_post").len(), 6);
    assert_close(
        "residual stream",
        &run.cache.join("blocks.1:resid_post", 1)?,
        &whole["blocks.1:resid_post"],
    );
    let error = run.cache.join("blocks.0.attn:pattern", 2).unwrap_err().to_string();
    assert!(error.contains("join_padded"), "{error}");
    let patterns = run.cache.join_padded("blocks.0.attn:pattern", 2, 0.)?;
    assert_close("patterns", &patterns, &whole["blocks.0.attn:pattern"]);
    let scores = run.cache.join_padded("blocks.0.attn:attn_scores", 2, f64::NEG_INFINITY)?;
    assert_close("scores", &scores, &whole["blocks.0.attn:attn_scores"]);
    assert!(run.cache.join("blocks.7", 1).is_err());
    assert!(run.cache.join_padded("blocks.1:resid_post", 3, 0.).is_err());
    Ok(())
}

#[test]
fn patches_and_caches_can_be_limited_to_a_step() -> Test {
    let model = Hooked::new(model("base"));
    let generation = Generation::new(4).sampling(random(5));
    let (_, other) =
        model.run_with_cache("blocks.0:resid_post#2", |m| m.generate(&[prompt()], &generation))?;
    assert_eq!(other["blocks.0:resid_post#2"].dims(), [1, 1, 12]);
    let patch = direction(&model).reshape((1, 1, 12))?;
    let run = model
        .plan()
        .patch("blocks.0:resid_post#2", &patch)?
        .cache("blocks.1:resid_pre")?
        .run(|m| m.generate(&[prompt()], &generation))?;
    let calls = run.cache.calls("blocks.1:resid_pre");
    assert_eq!(numbers(calls[2]), numbers(&patch));
    assert_ne!(numbers(calls[1]), numbers(&patch));
    Ok(())
}

#[test]
fn prompts_of_different_length_give_what_each_gives_alone() -> Test {
    for case in ["base", "by_layer", "untied"] {
        let model = Hooked::new(model(case));
        let ids = row(&expected(case)["ids"], 0);
        let prompts = [ids[..2].to_vec(), ids.clone(), ids[3..8].to_vec(), ids[..1].to_vec()];
        let steering = direction(&model);
        for generation in [Generation::new(8), Generation::new(8).without_kv_cache()] {
            let steer = |prompts: &[Vec<u32>]| -> anyhow::Result<Vec<Vec<u32>>> {
                let plan =
                    model.plan().hook("blocks.0:resid_post", |_, x| Ok(Some(x.broadcast_add(&steering)?)))?;
                Ok(plan.run(|m| m.generate(prompts, &generation))?.output)
            };
            let together = model.generate(&prompts, &generation)?;
            let steered = steer(&prompts)?;
            for (number, prompt) in prompts.iter().enumerate() {
                let alone = std::slice::from_ref(prompt);
                assert_eq!(
                    together[number],
                    model.generate(alone, &generation)?[0],
                    "{case}, prompt {number}"
                );
                assert_eq!(steered[number], steer(alone)?[0], "{case}, prompt {number}");
            }
        }
    }
    Ok(())
}

#[test]
fn padding_leaves_no_trace_inside_either() -> Test {
    let model = Hooked::new(model("base"));
    let ids = expected("base")["ids"].i((.., 0..6))?.contiguous()?;
    let padding = Tensor::full(7i64, (2, 3), &device())?;
    let padded = Tensor::cat(&[&padding, &ids], 1)?;
    let points = ["blocks.*:{resid_pre,resid_post}", "blocks.*.attn:pattern", "**"];
    let (_, alone) = model.run_with_cache(points, |m| m.forward(&ids))?;
    let (_, among) =
        model.run_with_cache(points, |m| m.forward_after(&padded, &mut Past::none().padded(&[3, 3])))?;
    for name in ["blocks.1:resid_post", "blocks.0.mlp", "ln_final", "unembed"] {
        assert_close(name, &among[name].narrow(1, 3, 6)?, &alone[name]);
    }
    let pattern = &among["blocks.1.attn:pattern"];
    assert_close("pattern", &pattern.i((.., .., 3.., 3..))?, &alone["blocks.1.attn:pattern"]);
    // Nothing looks at padding, and padding is made of numbers.
    assert!(numbers(&pattern.i((.., .., 3.., ..3))?.contiguous()?).iter().all(|weight| *weight == 0.));
    assert!(among.iter().all(|(_, tensor)| numbers(tensor).iter().all(|number| !number.is_nan())));
    Ok(())
}

#[test]
fn seeds_decide_and_rows_differ() -> Test {
    let model = model("base");
    let text =
        |seed| model.generate(&[prompt(), prompt()], &Generation::new(15).sampling(Sampling::random(seed)));
    let texts = text(1)?;
    assert_eq!(texts, text(1)?);
    assert_ne!(texts, text(2)?);
    assert_ne!(texts[0], texts[1]);
    Ok(())
}

#[test]
fn a_row_ends_with_a_stop_token_and_the_others_go_on() -> Test {
    let model = model("base");
    let ids = &expected("base")["ids"];
    let prompts = [row(ids, 0), row(ids, 1)];
    let texts = model.generate(&prompts, &Generation::new(8))?;
    // The second new token of the first row, unless the other row has it, too.
    let stop = texts[0][10];
    let first = texts[0].iter().skip(9).position(|token| *token == stop).unwrap();
    let stopped = model.generate(&prompts, &Generation::new(8).stop(&[stop]))?;
    assert_eq!(stopped[0], texts[0][..9 + first + 1]);
    match texts[1].iter().skip(9).position(|token| *token == stop) {
        None => assert_eq!(stopped[1], texts[1]),
        Some(at) => assert_eq!(stopped[1], texts[1][..9 + at + 1]),
    }
    // The token that the config names ends a text, too.
    let config = Config {
        eos_token_id: Some(3),
        vocab_size: 4,
        n_positions: 64,
        n_embd: 8,
        n_layer: 1,
        n_head: 1,
        ..Config::default()
    };
    let small = Gpt2::random(&config, 0, &device())?;
    let texts = small.generate(&[[0], [1], [2]], &Generation::new(60).sampling(Sampling::random(0)))?;
    for text in texts {
        let end = text.iter().position(|token| *token == 3);
        assert!(end.is_none_or(|end| end == text.len() - 1), "{text:?}");
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

/// A call that fails half-way must not leave anything in the KV cache.
#[test]
fn a_failed_call_leaves_the_past_as_it_was() -> Test {
    let model = Hooked::new(model("base"));
    let ids = expected("base")["ids"].clone();
    let (first, second) = (ids.narrow(1, 0, 4)?, ids.narrow(1, 4, 5)?);
    let mut past = Past::new();
    model.forward_after(&first, &mut past)?;
    let plan = model.plan().hook("blocks.1.mlp", |_, _| Err(hookpoint::Error::msg("on purpose")))?;
    assert!(plan.run(|m| m.forward_after(&second, &mut past)).is_err());
    assert_eq!(past.len(), 4);
    let logits = model.forward_after(&second, &mut past)?;
    assert_close("logits", &logits, &expected("base")["logits"].narrow(1, 4, 5)?);
    Ok(())
}

#[test]
fn half_precision_generates() -> Test {
    for dtype in [DType::F16, DType::BF16] {
        let model = Gpt2::from_dir(crate::fixtures::folder("base"), dtype, &device())?;
        let with = model.generate(&[prompt(), prompt()[..2].to_vec()], &Generation::new(5))?;
        assert_eq!(with[0].len(), 10);
        assert_eq!(with[1].len(), 7);
    }
    Ok(())
}
