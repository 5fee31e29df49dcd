//! What samples are drawn from.

use candle_core::{Result, Tensor};
use hookpoint::{Error, HookValue};

use super::random::Random;

/// Something that samples are drawn from, by a [`Sample`](super::Sample) layer.
///
/// A draw has two steps, so that the random part of it is a value of its own, which a run can keep and put
/// into another run: first noise is drawn, then it is made into a sample.
///
/// ```
/// use candle_core::{Device, Module, Result, Tensor};
/// use hookpoint_layers::{Distribution, Lambda, Random, Sample, Sequential};
/// use hookpoint::prelude::*;
///
/// /// 1 with a probability, else 0.
/// #[derive(Clone, HookValue)]
/// struct Bernoulli { probability: Tensor }
///
/// impl Distribution for Bernoulli {
///     fn noise(&self, random: &mut Random) -> Result<Tensor> {
///         random.uniform(self.probability.shape(), self.probability.dtype(), self.probability.device())
///     }
///
///     fn sample(&self, noise: &Tensor) -> Result<Tensor> {
///         noise.lt(&self.probability)?.to_dtype(noise.dtype())
///     }
/// }
///
/// let coin = Lambda::new(|x: &Tensor| Ok(Bernoulli { probability: x.clone() }));
/// let model = Sequential::new().then("coin", coin)?.then("toss", Sample::new())?;
/// let x = Tensor::new(&[0f32, 1.], &Device::Cpu)?;
/// assert_eq!(model.forward(&x)?.to_vec1::<f32>()?, [0., 1.]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub trait Distribution {
    /// Draws the noise of one sample.
    fn noise(&self, random: &mut Random) -> Result<Tensor>;

    /// The sample that belongs to this noise. Where it is differentiable, its gradients reach the
    /// parameters of the distribution.
    fn sample(&self, noise: &Tensor) -> Result<Tensor>;
}

/// Independent normal distributions. Its parts are the points `out.mean` and `out.std` of a layer that
/// gives one.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint_layers::{Distribution, Normal, Random};
///
/// let normal = Normal::new(&Tensor::new(&[1f32, 100.], &Device::Cpu)?, 0.)?;
/// let noise = normal.noise(&mut Random::new())?;
/// assert_eq!(normal.sample(&noise)?.to_vec1::<f32>()?, [1., 100.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug, HookValue)]
pub struct Normal {
    mean: Tensor,
    std: Tensor,
}

impl Normal {
    /// Normal distributions around these means, with one standard deviation.
    pub fn new(mean: &Tensor, std: f64) -> Result<Self> {
        if !(std >= 0. && std.is_finite()) {
            return Err(Error::msg(format!("{std} is no standard deviation: give one of 0 or more")).into());
        }
        Ok(Self { mean: mean.clone(), std: mean.detach().zeros_like()?.affine(1., std)? })
    }

    /// Normal distributions around these means, each with its standard deviation.
    pub fn with_std(mean: &Tensor, std: &Tensor) -> Result<Self> {
        Ok(Self { mean: mean.clone(), std: std.broadcast_as(mean.shape())?.contiguous()? })
    }

    /// The means.
    pub fn mean(&self) -> &Tensor {
        &self.mean
    }

    /// The standard deviations.
    pub fn std(&self) -> &Tensor {
        &self.std
    }
}

impl Distribution for Normal {
    fn noise(&self, random: &mut Random) -> Result<Tensor> {
        random.normal(self.mean.shape(), self.mean.dtype(), self.mean.device())
    }

    fn sample(&self, noise: &Tensor) -> Result<Tensor> {
        &self.mean + (&self.std * noise)?
    }
}
