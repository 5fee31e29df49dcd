use candle_core::{Device, IndexOp, Tensor};
use hookpoint::prelude::*;
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::{self, Cells, LogitMetric, Part};
use hookpoint_interp::sweep::{Sweep, SweepResult};
use hookpoint_models::bert::{self, Bert};
use hookpoint_models::gpt2::{self, Gpt2, Past};
use hookpoint_models::llama::{self, Llama};

use crate::models::{bits, Test};

fn last(logits: &Tensor) -> candle_core::Result<f64> {
    let last = logits.i((0, logits.dim(1)? - 1))?;
    (last.i(3)? - last.i(5)?)?.to_scalar::<f32>().map(f64::from)
}

/// How large the numbers of a sweep are.
fn scale(result: &SweepResult) -> f64 {
    result.baseline.abs().max(result.clean.unwrap().abs())
}

/// Equal up to the order in which numbers of this size were added.
#[track_caller]
fn assert_near(name: &str, found: f64, expected: f64, scale: f64) {
    let allowed = 1e-5 * expected.abs().max(scale);
    assert!((found - expected).abs() <= allowed, "{name}: {found} where {expected} is expected");
}

/// Compares sweeps with one plan after the other.
fn check<M: AutoHook>(
    model: &Hooked<M>,
    patterns: &[&str],
    run: impl Fn(&M, &Tensor) -> candle_core::Result<Tensor>,
) -> Test {
    let clean = Tensor::new(&[[1u32, 7, 3, 9, 2], [2, 4, 4, 0, 6]], &Device::Cpu)?;
    let corrupted = Tensor::new(&[[1u32, 5, 3, 9, 2], [2, 4, 1, 0, 6]], &Device::Cpu)?;
    for pattern in patterns {
        let exact = Sweep::over(model, *pattern)?.one_by_one().patch(&clean, &corrupted, &run, last)?;
        let batched = Sweep::over(model, *pattern)?.patch(&clean, &corrupted, &run, last)?;
        let cache = model.run_with_cache(*pattern, |m| run(m, &clean))?.1;
        assert_eq!(cache.len(), exact.cells().count(), "{pattern}");
        let scale = scale(&exact);
        for name in cache.keys() {
            let plan = model.plan().patch(name, &cache[name])?;
            let value = last(&plan.run(|m| run(m, &corrupted))?.output)?;
            assert_eq!(exact.get(name)?, value, "{name}");
            assert_near(name, batched.get(name)?, value, scale);
        }
        assert!(batched.work.forwards <= exact.work.forwards);
    }
    let (_, recording) = model.record(|m| run(m, &corrupted))?;
    let plan = model.plan().hook("blocks.1:resid_mid", |_, x| Ok(Some((x * 2.)?)))?.replay(&recording)?;
    let run = plan.run(|m| run(m, &corrupted))?;
    assert!(run.replayed().any(|name| name == "blocks.0"), "{:?}", run.replayed().collect::<Vec<_>>());
    Ok(())
}

/// What every transformer has.
const COMMON: [&str; 3] = ["blocks.*:resid_pre[:, *]", "blocks.*.attn:z[:, :, *]", "blocks.*.mlp[:, *]"];

fn small_gpt2(layers: usize) -> anyhow::Result<Hooked<Gpt2>> {
    let config = gpt2::Config {
        vocab_size: 20,
        n_positions: 8,
        n_embd: 12,
        n_head: 3,
        n_layer: layers,
        ..gpt2::Config::default()
    };
    Ok(Hooked::new(Gpt2::random(&config, 1, &Device::Cpu)?))
}

#[test]
fn gpt2_is_what_plans_give() -> Test {
    let others = [
        "blocks.*:resid_mid[:, *]",
        "blocks.*.attn:{q,k,v}[:, :, *]",
        "blocks.*.attn:pattern[:, *]",
        "blocks.*.attn",
        "blocks.*.attn:result[:, :, *]",
        "embed[:, *]",
    ];
    check(&small_gpt2(3)?, &[&COMMON[..], &others].concat(), |m, ids| m.forward(ids))
}

#[test]
fn llama_is_what_plans_give() -> Test {
    let text = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":20,"hidden_size":12,
        "intermediate_size":16,"num_hidden_layers":3,"num_attention_heads":2,"num_key_value_heads":1,
        "max_position_embeddings":16,"rms_norm_eps":1e-5,"hidden_act":"silu"}"#;
    let model = Llama::random(&llama::Config::from_json(text)?, 1, &Device::Cpu)?;
    check(&Hooked::new(model), &COMMON, |m, ids| m.forward(ids))
}

#[test]
fn bert_is_what_plans_give() -> Test {
    let config = bert::Config {
        vocab_size: 20,
        hidden_size: 12,
        num_hidden_layers: 3,
        num_attention_heads: 2,
        intermediate_size: 16,
        max_position_embeddings: 8,
        ..bert::Config::default()
    };
    check(&Hooked::new(Bert::random(&config, 1, &Device::Cpu)?), &COMMON, |m, ids| m.forward(ids))
}

#[test]
fn blocks_that_fill_a_cache_of_keys_and_values_run() -> Test {
    let model = small_gpt2(3)?;
    let ids = Tensor::new(&[[1u32, 7, 3, 9, 2]], &Device::Cpu)?;
    // Two positions, then three with what the first two have left.
    let run = |m: &Gpt2| {
        let mut past = Past::new();
        m.forward_after(&ids.narrow(1, 0, 2)?, &mut past)?;
        m.forward_after(&ids.narrow(1, 2, 3)?, &mut past)
    };
    let (_, recording) = model.record(run)?;
    let plan = || {
        model.plan().patch(
            "blocks.1:resid_mid#1[:, -1]",
            &Tensor::zeros((1, 12), candle_core::DType::F32, &Device::Cpu)?,
        )
    };
    let plain = plan()?.run(run)?.output;
    let replayed = plan()?.replay(&recording)?.run(run)?;
    assert_eq!(bits(&plain), bits(&replayed.output));
    let names: Vec<&str> = replayed.replayed().collect();
    assert!(names.contains(&"blocks.0.ln1") && names.contains(&"blocks.0.mlp"), "{names:?}");
    assert!(!names.contains(&"blocks.0") && !names.contains(&"blocks.0.attn"), "{names:?}");
    Ok(())
}

#[test]
fn ready_made_sweeps_have_the_axes_they_name() -> Test {
    let model = small_gpt2(2)?;
    let clean = Tensor::new(&[[1u32, 7, 3, 9, 2]], &Device::Cpu)?;
    let corrupted = Tensor::new(&[[1u32, 5, 3, 9, 2]], &Device::Cpu)?;
    let metric = LogitMetric::of(&*model, Target::token(3).against(5))?;
    for (part, each, all) in [
        (Part::ResidPre, vec![2, 5], vec![2]),
        (Part::ResidMid, vec![2, 5], vec![2]),
        (Part::AttnOut, vec![2, 5], vec![2]),
        (Part::MlpOut, vec![2, 5], vec![2]),
        (Part::HeadOut, vec![2, 5, 3], vec![2, 3]),
        (Part::Query, vec![2, 5, 3], vec![2, 3]),
        (Part::Key, vec![2, 5, 3], vec![2, 3]),
        (Part::Value, vec![2, 5, 3], vec![2, 3]),
        (Part::Pattern, vec![2, 3, 5], vec![2, 3]),
    ] {
        for (cells, shape) in [(Cells::Each, each), (Cells::All, all)] {
            let sweep = transformer::over(&model, part, cells)?.verify(3);
            let found = sweep.patch(&clean, &corrupted, |m, ids| m.forward(ids), last)?;
            assert_eq!(found.shape(), shape, "{part:?} {cells:?}");
            assert_eq!(found.axes()[0].name, "layer");
            assert_eq!(found.axes().len(), shape.len());
            // Without the unembedding it is the same.
            let short = metric.patch(transformer::over(&model, part, cells)?, &clean, &corrupted)?;
            let scale = scale(&found);
            for (cell, other) in found.cells().zip(short.cells()) {
                assert_near(cell.name, other.value, cell.value, scale);
            }
        }
    }
    // All of the residual stream of the first layer is all of the clean input.
    let found = transformer::over(&model, Part::ResidPre, Cells::All)?;
    let found = found.patch(&clean, &corrupted, |m, ids| m.forward(ids), last)?;
    assert!((found.normalized()?.i(0)?.to_scalar::<f64>()? - 1.).abs() < 1e-6);
    Ok(())
}
