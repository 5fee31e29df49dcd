//! Language models against what transformers computed with the same checkpoints. The scripts under
//! `scripts/fixtures` say what is expected under which name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use candle_core::{IndexOp, Tensor};
use hookpoint::prelude::*;
use hookpoint_models::language::{Generation, LanguageModel, Past};

use crate::compare::{assert_close, assert_same_gradient, assert_within, row, Expected, Test};

/// The points that [`check_points`] and [`check_gradients`] look at.
const POINTS: [&str; 3] = ["**", "blocks.*:resid_pre", "blocks.*.attn:pattern"];

/// The point here of what `expected` has under `name`, if it is one. `module` gives the name that a module of
/// transformers has here.
fn point(name: &str, layers: usize, module: impl Fn(&str) -> String) -> Option<String> {
    if let Some(name) = name.strip_prefix("module.") {
        return Some(module(name));
    }
    if let Some(layer) = name.strip_prefix("attentions.") {
        return Some(format!("blocks.{layer}.attn.hook_pattern"));
    }
    let layer: usize = name.strip_prefix("hidden_states.")?.parse().ok()?;
    // The last one of transformers is behind the final norm.
    Some(if layer == layers { "ln_final".to_string() } else { format!("blocks.{layer}.hook_resid_pre") })
}

/// Logits, hidden states, patterns and the outputs of modules. Gives how many modules there were.
pub fn check_points<M: LanguageModel>(
    case: &str,
    model: &Hooked<M>,
    expected: &Expected,
    layers: usize,
    module: impl Fn(&str) -> String,
) -> anyhow::Result<usize> {
    let mut past = Past::none();
    let (logits, cache) = model.run_with_cache(POINTS, |m| m.forward_after(&expected["ids"], &mut past))?;
    assert_close(&format!("{case}: logits"), &logits, &expected["logits"]);
    let mut modules = 0;
    for (name, wanted) in expected {
        let Some(point) = point(name, layers, &module) else { continue };
        let found = &cache[point.as_str()];
        // Transformers computes what depends on positions alone once for the whole batch.
        let wanted = if wanted.rank() > found.rank() { wanted.squeeze(0)? } else { wanted.clone() };
        // It has the angles twice, once for each half of a head.
        let twice = name.ends_with("rotary_emb");
        let wanted = if twice { wanted.narrow(1, 0, wanted.dim(1)? / 2)? } else { wanted };
        assert_close(&format!("{case}: {name}"), found, &wanted);
        modules += usize::from(name.starts_with("module."));
    }
    Ok(modules)
}

/// The mean loss of predicting each next token.
pub fn loss(logits: &Tensor, ids: &Tensor) -> candle_core::Result<Tensor> {
    let (batch, pos) = ids.dims2()?;
    let predicted = logits.narrow(1, 0, pos - 1)?.reshape((batch * (pos - 1), ()))?;
    let targets = ids.narrow(1, 1, pos - 1)?.flatten_all()?.contiguous()?;
    candle_nn::loss::cross_entropy(&predicted, &targets)
}

/// The loss, and its gradients at hidden states, patterns and modules. Gives how many modules there were.
pub fn check_gradients<M: LanguageModel>(
    case: &str,
    model: &Hooked<M>,
    expected: &Expected,
    layers: usize,
    module: impl Fn(&str) -> String,
) -> anyhow::Result<usize> {
    let ids = &expected["ids"];
    let run = model
        .plan()
        .cache_grad(POINTS)?
        .backward(|m| loss(&m.forward_after(ids, &mut Past::none())?, ids))?;
    assert_within(&format!("{case}: loss"), &run.loss, &expected["loss"], 1e-4, 0.);
    let (mut patterns, mut states, mut modules) = (0, 0, 0);
    for (name, wanted) in expected {
        let Some(name) = name.strip_prefix("grad.") else { continue };
        let Some(point) = point(name, layers, &module) else { continue };
        let found = &run.grads[point.as_str()];
        let wanted = if wanted.rank() > found.rank() { wanted.squeeze(0)? } else { wanted.clone() };
        assert_same_gradient(&format!("{case}: the gradient of {name}"), found, &wanted);
        match name.split('.').next() {
            Some("attentions") => patterns += 1,
            Some("hidden_states") => states += 1,
            _ => modules += 1,
        }
    }
    assert_eq!((patterns, states), (layers, layers + 1), "{case}");
    Ok(modules)
}

/// The loss alone.
pub fn check_loss(case: &str, model: &impl LanguageModel, expected: &Expected) -> Test {
    let ids = &expected["ids"];
    let found = loss(&model.forward_after(ids, &mut Past::none())?, ids)?;
    assert_close(&format!("{case}: loss"), &found, &expected["loss"]);
    Ok(())
}

/// The first row, continued greedily.
pub fn check_greedy(case: &str, model: &impl LanguageModel, expected: &Expected) -> Test {
    let prompt = row(&expected["ids"], 0);
    let text = model.generate(&[&prompt], &Generation::new(8))?;
    assert_eq!(text[0], row(&expected["greedy"], 0), "{case}");
    Ok(())
}

/// Rows behind padding: logits, and how they are continued.
pub fn check_padded(case: &str, model: &impl LanguageModel, expected: &Expected) -> Test {
    let padding: Vec<usize> =
        expected["padded_by"].to_vec1::<i64>()?.iter().map(|padding| *padding as usize).collect();
    let mut past = Past::none().padded(&padding);
    let logits = model.forward_after(&expected["padded_ids"], &mut past)?;
    let mut prompts = Vec::new();
    for (number, padding) in padding.iter().enumerate() {
        let what = format!("{case}: logits of row {number}");
        let wanted = expected["padded_logits"].i((number, *padding..))?;
        assert_close(&what, &logits.i((number, *padding..))?, &wanted);
        prompts.push(row(&expected["padded_ids"], number)[*padding..].to_vec());
    }
    let texts = model.generate(&prompts, &Generation::new(8))?;
    for (number, padding) in padding.iter().enumerate() {
        assert_eq!(texts[number], row(&expected["padded_greedy"], number)[*padding..], "{case}");
    }
    Ok(())
}

/// Every point of TransformerLens has its name, shape and value here. Gives how many there were.
pub fn check_lens<M: LanguageModel>(
    model: &Hooked<M>,
    ids: &Tensor,
    lens: &Expected,
) -> anyhow::Result<usize> {
    for (name, wanted) in lens {
        let (_, cache) = model.run_with_cache(name.as_str(), |m| m.forward_after(ids, &mut Past::none()))?;
        assert_close(name, &cache[name.as_str()], wanted);
    }
    Ok(lens.len())
}
