//! Random numbers that are the same on every device.

use candle_core::{DType, Device, Result, Shape, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// A source of random numbers. One that was given a seed gives the same numbers everywhere, which
/// candle's own generators do not: the one of the CPU cannot be seeded.
///
/// The stream is that of `ChaCha8Rng::seed_from_u64(seed)` of the crate `rand_chacha`.
///
/// ```
/// use candle_core::{DType, Device};
/// use hookpoint_layers::Random;
///
/// let draw = |mut random: Random| random.normal((2, 3), DType::F64, &Device::Cpu)?.to_vec2::<f64>();
/// assert_eq!(draw(Random::seeded(7))?, draw(Random::seeded(7))?);
/// assert_ne!(draw(Random::seeded(7))?, draw(Random::seeded(8))?);
/// assert_ne!(draw(Random::new())?, draw(Random::new())?);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Numbers that nobody can foresee.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::seeded(rand::random())
    }

    /// The numbers that belong to this seed.
    pub fn seeded(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Numbers from 0 to 1, each as likely as the other. 1 is not among them.
    pub fn uniform(&mut self, shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        // Of a narrower type, a number next to 1 would be rounded up to it.
        let largest = match dtype {
            DType::F64 => 1. - f64::EPSILON / 2.,
            DType::F32 => f64::from(1. - f32::EPSILON / 2.),
            DType::F16 => 1. - 1. / 2048.,
            _ => 1. - 1. / 256.,
        };
        self.tensor(shape.into(), dtype, device, |random| random.random::<f64>().min(largest))
    }

    /// Numbers of the normal distribution with mean 0 and standard deviation 1.
    pub fn normal(&mut self, shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        self.tensor(shape.into(), dtype, device, |random| random.sample(StandardNormal))
    }

    fn tensor(
        &mut self,
        shape: Shape,
        dtype: DType,
        device: &Device,
        mut next: impl FnMut(&mut ChaCha8Rng) -> f64,
    ) -> Result<Tensor> {
        let numbers: Vec<f64> = (0..shape.elem_count()).map(|_| next(&mut self.0)).collect();
        Tensor::from_vec(numbers, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(numbers: &Tensor) -> (f64, f64) {
        let mean = numbers.mean_all().unwrap().to_scalar::<f64>().unwrap();
        (mean, (numbers - mean).unwrap().sqr().unwrap().mean_all().unwrap().to_scalar().unwrap())
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let numbers = Random::seeded(1).normal(100_000, DType::F64, &Device::Cpu).unwrap();
        let (mean, variance) = moments(&numbers);
        assert!(mean.abs() < 0.01 && (variance - 1.).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn uniform_numbers_fill_the_interval() {
        let numbers = Random::seeded(2).uniform(100_000, DType::F64, &Device::Cpu).unwrap();
        let (mean, variance) = moments(&numbers);
        assert!((mean - 0.5).abs() < 0.005 && (variance - 1. / 12.).abs() < 0.002, "{mean} {variance}");
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let narrow = Random::seeded(3).uniform(100_000, dtype, &Device::Cpu).unwrap();
            let numbers = narrow.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
            assert!(numbers.iter().all(|number| (0. ..1.).contains(number)), "{dtype:?}");
        }
    }
}
