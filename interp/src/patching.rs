//! Activation patching: which activations make the difference between two inputs.

use std::fmt;

use candle_core::{Device, Tensor};
use hookpoint::{Activations, AutoHook, BoxedError, Error, ErrorKind, Hooked, IntoPatterns, Result};

use crate::sweep::{Batch, Sweep, SweepCell};

/// What single activations of a clean input do in a run with a corrupted one.
///
/// Every point that the patterns select is patched in a run of its own. With `*` in an index every element
/// is: `blocks.*:resid_pre[:, *]` patches each position of each block, `blocks.*.attn:z[:, :, *]` each head.
/// A point that is reached several times is patched call by call, as `point#0`, `point#1` and so on.
///
/// This is a [`Sweep`] for a measure that runs the model by itself, so each patch has a run of its own. Where running
/// and measuring can be told apart, [`Sweep::patch`] lays them side by side.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint_interp::Patching;
///
/// let clean = Tensor::new(&[[1f32, 3.]], &Device::Cpu)?;
/// let patching = Patching::run(&model, "up[:, *]", &clean, &x, |m, x| {
///     // How it went is one number: the second output.
///     m.forward(x)?.get(0)?.get(1)?.to_scalar::<f32>().map(f64::from)
/// })?;
/// assert_eq!((patching.clean, patching.corrupted), (3., 0.));
/// let effects: Vec<_> = patching.effects.iter().map(|effect| (effect.point.as_str(), effect.value)).collect();
/// assert_eq!(effects, [("up[:, 0]", 0.), ("up[:, 1]", 3.)]);
/// assert_eq!(patching.recovered("up[:, 1]")?, 1.);
/// println!("{patching}");
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Patching {
    /// What was measured with the clean input.
    pub clean: f64,
    /// What was measured with the corrupted input.
    pub corrupted: f64,
    /// What was measured with each patch, in the order in which the clean run reached the points.
    pub effects: Vec<Effect>,
}

/// What one patch did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Effect {
    /// The point, with its index.
    pub point: String,
    /// What was measured with the corrupted input and this patch.
    pub value: f64,
}

impl Patching {
    /// Runs the model with both inputs, and with the corrupted one again for every point. `measure` runs the
    /// model and says how it went: a difference of logits, a loss.
    pub fn run<M, X: ?Sized, E>(
        model: &Hooked<M>,
        patterns: impl IntoPatterns,
        clean: &X,
        corrupted: &X,
        measure: impl Fn(&M, &X) -> std::result::Result<f64, E>,
    ) -> Result<Self>
    where
        M: AutoHook,
        E: Into<BoxedError>,
    {
        let (clean, cache) = model.run_with_cache(patterns, |m| measure(m, clean))?;
        let mut sets: Vec<(String, Vec<(String, Tensor)>)> = Vec::with_capacity(cache.len());
        cache.each_activation(&mut |point, tensor| {
            sets.push((point.to_string(), vec![(point.to_string(), tensor.clone())]));
            Ok(())
        })?;
        let points: Vec<String> = sets.iter().map(|(point, _)| point.clone()).collect();
        let run = |m: &M, Alone(input): &Alone<'_, X>| -> Result<Tensor> {
            let value = measure(m, input).map_err(|error| Error::other(error))?;
            Ok(Tensor::new(value, &Device::Cpu)?)
        };
        let sweep = Sweep::sets(model, sets)?.one_by_one();
        let found = sweep.measure(&Alone(corrupted), run, |value| value.to_scalar::<f64>())?;
        let effect = |(point, cell): (String, SweepCell<'_>)| Effect { point, value: cell.value };
        let effects = points.into_iter().zip(found.cells()).map(effect).collect();
        Ok(Self { clean, corrupted: found.baseline, effects })
    }

    /// How much of the difference between the inputs a patch makes up for: 0 as corrupted, 1 as clean.
    pub fn recovered(&self, point: &str) -> Result<f64> {
        let found = self.effects.iter().find(|effect| effect.point == point);
        let effect = found.ok_or_else(|| {
            let known = self.effects.iter().map(|effect| effect.point.as_str());
            Error::from(ErrorKind::MissingKey {
                key: point.to_string(),
                nearest: hookpoint::error::nearest(point, known),
            })
        })?;
        self.share(effect).ok_or_else(|| ErrorKind::NothingToRecover { value: self.clean }.into())
    }

    /// The points with the largest effects first, each with the share that it
    /// [makes up for](Self::recovered). Empty where both inputs give the same.
    pub fn ranked(&self) -> Vec<(&str, f64)> {
        let shares =
            self.effects.iter().filter_map(|effect| Some((effect.point.as_str(), self.share(effect)?)));
        let mut ranked: Vec<_> = shares.collect();
        ranked.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        ranked
    }

    fn share(&self, effect: &Effect) -> Option<f64> {
        let share = (effect.value - self.corrupted) / (self.clean - self.corrupted);
        share.is_finite().then_some(share)
    }
}

/// An input that stays as it is.
struct Alone<'x, X: ?Sized>(&'x X);

impl<X: ?Sized> Batch for Alone<'_, X> {
    fn repeat(&self, _: usize) -> Result<Self> {
        Err(ErrorKind::NothingToRepeat.into())
    }
}

impl fmt::Display for Patching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.effects.iter().map(|effect| effect.point.len()).max().unwrap_or(0).max(9);
        writeln!(f, "{:width$}  {:>10}  recovered", "point", "value")?;
        writeln!(f, "{:width$}  {:>10.4}", "clean", self.clean)?;
        write!(f, "{:width$}  {:>10.4}", "corrupted", self.corrupted)?;
        for effect in &self.effects {
            write!(f, "\n{:width$}  {:>10.4}", effect.point, effect.value)?;
            if let Some(share) = self.share(effect) {
                write!(f, "  {:>8.1}%", share * 100.)?;
            }
        }
        Ok(())
    }
}
