//! A model of one's own, hooked twice: by the two annotations (`annotated.rs`), and by hand
//! (`by_hand.rs`), which shows what the annotations do. Both have the same points and compute the
//! same bits, with hooks and without.
//!
//! ```text
//! cargo run --release --example own_model
//! cargo run --release --example own_model -- --device cuda:0
//! ```

mod annotated;
mod by_hand;

use std::collections::HashMap;

use anyhow::{bail, ensure, Result};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use hookpoint::prelude::*;

/// Different tokens.
const TOKENS: usize = 10;
/// The width of the residual stream.
const WIDTH: usize = 4;
/// The width inside an mlp.
const HIDDEN: usize = 8;
/// How many mlps there are.
const BLOCKS: usize = 2;

fn main() -> Result<()> {
    let device = device()?;
    let weights = weights(&device)?;
    // [batch, pos]
    let ids = Tensor::new(&[[3u32, 1, 4, 1, 5]], &device)?;

    let model = Hooked::new(annotated::Model::load(weights.clone())?);
    show(&model, &ids)?;

    let by_hand = Hooked::new(by_hand::Model::load(weights)?);
    let points = compare(&model, &by_hand, &ids)?;
    println!("Annotated and by hand: {points} points, all of them equal, bit for bit.");
    Ok(())
}

/// What a newcomer wants to see: the points, a cache, a patch and a hook.
fn show(model: &Hooked<annotated::Model>, ids: &Tensor) -> Result<()> {
    println!("The points of the model: its modules and parameters.\n");
    println!("{}", model.hook_dict());

    println!("After a run also the values inside its forward code, with shapes.\n");
    println!("{}", model.scan(|m| m.forward(ids))?.dict);

    println!("A cache of some of them: every block's output, and what is inside the first.\n");
    let (scores, cache) = model.run_with_cache(["blocks.*", "blocks.0:*"], |m| m.forward(ids))?;
    for (name, tensor) in cache.iter() {
        println!("  {name:16} {:?}  mean {:+.4}", tensor.dims(), mean(tensor)?);
    }

    println!("\nA patch: the second block says nothing at the last position.\n");
    let silent = Tensor::zeros(WIDTH, DType::F32, ids.device())?;
    let patched = model.plan().patch("blocks.1[:, -1]", &silent)?.run(|m| m.forward(ids))?;
    changes(&scores, &patched.output)?;

    println!("\nA hook: the hidden values of every block, doubled.\n");
    let doubled = model.plan().hook("blocks.*:hidden", |ctx, hidden| {
        println!("  the hook is at {} and sees {:?}", ctx.path(), hidden.dims());
        Ok(Some((hidden * 2.)?))
    })?;
    changes(&scores, &doubled.run(|m| m.forward(ids))?.output)?;

    println!("\nAnd without any, the model computes what it always did.\n");
    changes(&scores, &model.forward(ids)?)?;
    println!();
    Ok(())
}

/// Prints how far the scores at each position moved.
fn changes(before: &Tensor, after: &Tensor) -> Result<()> {
    // [batch, pos, token] -> [pos]
    let moved = (after - before)?.abs()?.max(2)?.squeeze(0)?.to_vec1::<f32>()?;
    let moved: Vec<String> = moved.iter().map(|by| format!("{by:.4}")).collect();
    println!("  scores moved, by position: {}", moved.join("  "));
    Ok(())
}

fn mean(tensor: &Tensor) -> Result<f32> {
    Ok(tensor.mean_all()?.to_scalar::<f32>()?)
}

/// Checks that both models have the same points and compute the same bits; gives the number of points.
fn compare(
    annotated: &Hooked<annotated::Model>,
    by_hand: &Hooked<by_hand::Model>,
    ids: &Tensor,
) -> Result<usize> {
    ensure!(annotated.hook_dict().to_string() == by_hand.hook_dict().to_string(), "other points");
    // With the values inside forward code, their shapes, and how often each was reached.
    let (one, other) = (annotated.scan(|m| m.forward(ids))?, by_hand.scan(|m| m.forward(ids))?);
    ensure!(one.dict.to_string() == other.dict.to_string(), "other values");

    ensure!(bits(&annotated.forward(ids)?)? == bits(&by_hand.forward(ids)?)?, "other scores");
    let everything = ["**", "**:*"];
    let (scores, cache) = annotated.run_with_cache(everything, |m| m.forward(ids))?;
    let (by_hand_scores, by_hand_cache) = by_hand.run_with_cache(everything, |m| m.forward(ids))?;
    ensure!(bits(&scores)? == bits(&by_hand_scores)?, "other scores with a cache");
    ensure!(cache.keys().eq(by_hand_cache.keys()), "other keys");
    for name in cache.keys() {
        let (one, other) = (cache.calls(name), by_hand_cache.calls(name));
        ensure!(one.len() == other.len(), "`{name}` was reached a different number of times");
        for (one, other) in one.into_iter().zip(other) {
            ensure!(bits(one)? == bits(other)?, "other bits at `{name}`");
        }
    }

    let half = |m: &HookCtx<'_>, x: &Tensor| match m.call() {
        0 => Ok(Some((x * 0.5)?)),
        _ => Ok(None),
    };
    let at = ["embed", "blocks.0", "blocks.1:x", "blocks.*.down:in", "blocks.1.scale", ":stream"];
    for at in at {
        let hooked = annotated.plan().hook(at, half)?.run(|m| m.forward(ids))?;
        let by_hand_hooked = by_hand.plan().hook(at, half)?.run(|m| m.forward(ids))?;
        ensure!(bits(&hooked.output)? == bits(&by_hand_hooked.output)?, "other bits with a hook at `{at}`");
        ensure!(bits(&hooked.output)? != bits(&scores)?, "the hook at `{at}` did nothing");
    }
    Ok(one.dict.len())
}

fn bits(tensor: &Tensor) -> Result<Vec<u32>> {
    let numbers = tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
    Ok(numbers.into_iter().map(f32::to_bits).collect())
}

/// Weights that are the same in every run, by the names that the model loads.
fn weights(device: &Device) -> Result<VarBuilder<'static>> {
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("embed.weight".into(), vec![TOKENS, WIDTH]),
        ("head.weight".into(), vec![TOKENS, WIDTH]),
        ("head.bias".into(), vec![TOKENS]),
    ];
    for block in 0..BLOCKS {
        for (name, shape) in [
            ("up.weight", vec![HIDDEN, WIDTH]),
            ("up.bias", vec![HIDDEN]),
            ("down.weight", vec![WIDTH, HIDDEN]),
            ("down.bias", vec![WIDTH]),
            ("scale", vec![WIDTH]),
        ] {
            shapes.push((format!("blocks.{block}.{name}"), shape));
        }
    }
    let mut tensors = HashMap::new();
    for (number, (name, shape)) in shapes.into_iter().enumerate() {
        let count: usize = shape.iter().product();
        let data: Vec<f32> = (0..count).map(|i| ((i * 37 + number * 101) as f32).sin()).collect();
        tensors.insert(name, Tensor::from_vec(data, shape, device)?);
    }
    Ok(VarBuilder::from_tensors(tensors, DType::F32, device))
}

/// The device that `--device` names, or else the environment variable `HOOKPOINT_DEVICE`, or else the CPU.
fn device() -> Result<Device> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Ok(hookpoint::device_from_env()?),
        ["--device", name] => Ok(hookpoint::device(name)?),
        _ => bail!("usage: own_model [--device cpu | cuda:0 | metal]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotated_and_by_hand_have_equal_points_and_equal_bits() -> Result<()> {
        let device = hookpoint::device_from_env()?;
        let weights = weights(&device)?;
        let ids = Tensor::new(&[[3u32, 1, 4, 1, 5], [9, 2, 6, 5, 3]], &device)?;
        let annotated = Hooked::new(annotated::Model::load(weights.clone())?);
        let by_hand = Hooked::new(by_hand::Model::load(weights)?);
        compare(&annotated, &by_hand, &ids)?;
        Ok(())
    }

    #[test]
    fn everything_that_the_example_shows_works() -> Result<()> {
        let device = hookpoint::device_from_env()?;
        let model = Hooked::new(annotated::Model::load(weights(&device)?)?);
        show(&model, &Tensor::new(&[[3u32, 1, 4, 1, 5]], &device)?)
    }
}
