//! A layer that draws.

use candle_core::{Result, Tensor};
use hookpoint::{auto_hook, AutoHook};

use super::distribution::Distribution;
use super::random::Random;
use super::Layer;

/// Draws a sample from the distribution that it is given.
///
/// The random part is the named value `noise`: patch it to have the same sample in another run. With a
/// seed, every call draws the same noise, so that equal inputs give equal outputs, in whatever order and on
/// whatever thread.
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use hookpoint_layers::{Lambda, Normal, Sample, Sequential};
/// use hookpoint::prelude::*;
///
/// let noisy = |sample| {
///     let normal = Lambda::new(|mean: &Tensor| Normal::new(mean, 1.));
///     Sequential::new().then("normal", normal)?.then("sample", sample)
/// };
/// let x = Tensor::zeros(3, DType::F32, &Device::Cpu)?;
///
/// // Two runs differ, unless the noise of one is put into the other.
/// let model = Hooked::new(noisy(Sample::new())?);
/// let (first, cache) = model.run_with_cache("sample:noise", |m| m.forward(&x))?;
/// let second = model.plan().patch_all(&cache)?.run(|m| m.forward(&x))?.output;
/// assert_eq!(first.to_vec1::<f32>()?, second.to_vec1::<f32>()?);
/// assert_ne!(first.to_vec1::<f32>()?, model.forward(&x)?.to_vec1::<f32>()?);
///
/// // With a seed they do not.
/// let model = noisy(Sample::seeded(7))?;
/// assert_eq!(model.forward(&x)?.to_vec1::<f32>()?, model.forward(&x)?.to_vec1::<f32>()?);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(AutoHook, Clone, Debug, Default)]
pub struct Sample {
    seed: Option<u64>,
    gradient: Gradient,
}

/// Does a gradient go through a sample?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gradient {
    #[default]
    Stops,
    Passes,
}

impl Sample {
    /// Draws anew at every call. No gradient goes through it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Draws the same noise at every call. No gradient goes through it.
    pub fn seeded(seed: u64) -> Self {
        Self { seed: Some(seed), ..Self::default() }
    }

    /// Lets gradients through to the parameters of the distribution, where the distribution can.
    pub fn differentiable(self) -> Self {
        Self { gradient: Gradient::Passes, ..self }
    }

    fn random(&self) -> Random {
        self.seed.map_or_else(Random::new, Random::seeded)
    }

    fn stopped(&self, sample: Tensor) -> Tensor {
        match self.gradient {
            Gradient::Stops => sample.detach(),
            Gradient::Passes => sample,
        }
    }
}

#[auto_hook]
impl<D: Distribution> Layer<D> for Sample {
    type Output = Tensor;

    fn forward_value(&self, distribution: &D) -> Result<Tensor> {
        let noise = distribution.noise(&mut self.random())?;
        Ok(self.stopped(distribution.sample(&noise)?))
    }
}
