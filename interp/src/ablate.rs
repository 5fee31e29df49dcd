//! Ablation: what a model does without a part of itself.
//!
//! Each function makes a hook, which takes the place of any other: in [`Plan::hook`](hookpoint::Plan::hook), at a
//! point or a part of it; in [`HookManager`](hookpoint::manage::HookManager), to stay; in
//! [`Steps::limit`](hookpoint::Steps::limit), for some steps of a generation.
//!
//! | hook | what stands in the place of the value |
//! | --- | --- |
//! | [`zero`] | nothing |
//! | [`mean`] | what it is on average, over many inputs |
//! | [`resample`] | what it was for another input |
//! | [`scale`] | so many times itself |
//! | [`add`] | itself and something besides |
//!
//! ```
#![doc = include_str!("two_layers.txt")]
//! // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
//! use hookpoint::track::{Over, Tracker};
//! use hookpoint_interp::ablate;
//!
//! let without = model.plan().hook("up[:, 0]", ablate::zero())?;
//! assert_eq!(without.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[0., 0.]]);
//!
//! // The mean over the rows of some inputs.
//! let mut means = Tracker::new().reduce("up", Over::Dims(vec![0]))?;
//! means.run_all(&model, [(&x * 3.)?, (&x * 5.)?], |m, x| m.forward(&x))?;
//! let average = model.plan().hook("up", ablate::mean(&means))?;
//! assert_eq!(average.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[4., 0.]]);
//!
//! // What another input gives.
//! let (_, other) = model.run_with_cache("up", |m| m.forward(&x.neg()?))?;
//! let resampled = model.plan().hook("up[:, 1]", ablate::resample(&other))?;
//! assert_eq!(resampled.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[1., 2.]]);
//! # Ok::<(), hookpoint::Error>(())
//! ```

use candle_core::Tensor;
use hookpoint::track::Tracker;
use hookpoint::{ActivationCache, Error, ErrorKind, HookCtx, Result};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Zeros in the place of the value.
pub fn zero() -> impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Clone + Send + Sync + 'static {
    |_, value| Ok(Some(value.zeros_like()?))
}

/// The value so many times.
pub fn scale(
    factor: f64,
) -> impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Clone + Send + Sync + 'static {
    move |_, value| Ok(Some((value * factor)?))
}

/// The value and `what`, which may have fewer dimensions: it is repeated along the first ones.
pub fn add(
    what: &Tensor,
) -> impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Clone + Send + Sync + 'static {
    let what = what.clone();
    move |ctx, value| {
        if !(what.rank() <= value.rank() && value.dims().ends_with(what.dims())) {
            let remedy = "give it the shape of the value, or of its last dimensions";
            return Err(misfit(ctx.path(), "what is added", &what, value, remedy));
        }
        let what = ctx.converted("what is added", &what, value.dtype())?.to_device(value.device())?;
        Ok(Some(value.broadcast_add(&what)?))
    }
}

/// The mean that a tracker has of the point, of the very name: means for `a[:, 1]` are those of a reduction
/// of `a[:, 1]`, or of `a[:, *]`.
///
/// What was reduced is repeated along the first dimensions. So reduce over the batch, `Over::Dims(vec![0])`,
/// or over batch and positions, `Over::Dims(vec![0, 1])`, where inputs differ in length.
pub fn mean(
    means: &Tracker,
) -> impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Clone + Send + Sync + 'static {
    let means = means.clone();
    move |ctx, value| {
        let mean = means.stats(ctx.path())?.mean();
        let fits = mean.rank() <= value.rank() && value.dims().ends_with(mean.dims());
        if !fits {
            let remedy = "reduce over the first dimensions, and over those that differ from input to input";
            return Err(misfit(ctx.path(), "the mean", mean, value, remedy));
        }
        let mean = ctx.converted("the mean", mean, value.dtype())?.to_device(value.device())?;
        Ok(Some(mean.broadcast_as(value.shape())?.contiguous()?))
    }
}

/// What `donors`, the cache of a run with other inputs, has at the point: each row of the batch that of the
/// same row there. [`shuffled`] mixes the rows first.
pub fn resample(
    donors: &ActivationCache,
) -> impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Clone + Send + Sync + 'static {
    let donors = donors.clone();
    move |ctx, value| {
        // A single value serves every call, several serve one each.
        let only = donors.try_get(ctx.path())?;
        let calls = donors.calls(ctx.path());
        let donor = match calls.len() {
            0 | 1 => only,
            many => calls.get(ctx.call()).copied().ok_or_else(|| {
                Error::from(ErrorKind::NoDonor { point: ctx.path().to_string(), calls: many })
            })?,
        };
        if donor.dims() != value.dims() {
            let remedy = "take the activations of inputs of the same shape";
            return Err(misfit(ctx.path(), "the activation", donor, value, remedy));
        }
        Ok(Some(ctx.converted("the activation", donor, value.dtype())?.to_device(value.device())?))
    }
}

/// The same activations with their rows, the first dimension, in another order: at all points the same, and
/// none where it was. Equal seeds give equal orders.
///
/// Together with [`resample`] a batch serves as its own donors:
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input.
/// use hookpoint_interp::ablate;
///
/// let x = Tensor::new(&[[1f32, 1.], [2., 2.], [3., 3.]], &Device::Cpu)?;
/// let (_, cache) = model.run_with_cache("up", |m| m.forward(&x))?;
/// let donors = ablate::shuffled(&cache, 0)?;
/// let run = model.plan().hook("up[:, 1]", ablate::resample(&donors))?.run(|m| m.forward(&x))?;
/// for row in run.output.to_vec2::<f32>()? {
///     assert_ne!(row[0], row[1]);
/// }
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn shuffled(donors: &ActivationCache, seed: u64) -> Result<ActivationCache> {
    let mut mixed = ActivationCache::new();
    for name in donors.keys() {
        for tensor in donors.calls(name) {
            let rows = tensor.dims().first().copied().unwrap_or(0);
            if rows < 2 {
                let (point, shape) = (name.to_string(), tensor.dims().to_vec());
                return Err(ErrorKind::NothingToExchange { point, shape }.into());
            }
            let order = Tensor::new(cycle(rows, seed), tensor.device())?;
            mixed.insert(name, tensor.contiguous()?.index_select(&order, 0)?);
        }
    }
    Ok(mixed)
}

/// A random order in which no number is at its own place: one cycle through all of them, by Sattolo.
fn cycle(count: usize, seed: u64) -> Vec<u32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        order.swap(last, random.random_range(0..last));
    }
    order
}

fn misfit(point: &str, what: &str, found: &Tensor, value: &Tensor, remedy: &str) -> Error {
    ErrorKind::Shape {
        point: point.to_string(),
        what: what.to_string(),
        expected: value.dims().to_vec(),
        found: found.dims().to_vec(),
        remedy: remedy.to_string(),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_leaves_nothing_where_it_was() {
        for count in 2..30 {
            for seed in 0..20 {
                let order = cycle(count, seed);
                assert!(order.iter().enumerate().all(|(place, from)| place != *from as usize));
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..count as u32).collect::<Vec<_>>());
            }
        }
        assert_ne!(cycle(20, 1), cycle(20, 2));
    }
}
