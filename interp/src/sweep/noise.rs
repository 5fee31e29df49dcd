//! How far two results of the same are apart, and how far rounding alone may take them.
//!
//! A row beside others is computed by another kernel than the same row alone: a product of larger matrices is cut
//! into other tiles, and adds its terms in another order. So two results may differ in their last bits, and a
//! model makes more of that on its way. Nobody can say beforehand how much; it can be measured.
//!
//! * The difference is counted in units: the machine epsilon of the result's dtype, times the largest number in it.
//!   Up to [`LAST_BITS`] of them are the rounding of the result itself.
//! * Beyond that the model is run once more by itself, while the last bit of everything that its modules give is
//!   turned up or down at random. So far apart as that takes the result, [`SHARE`] times, two orders of adding may
//!   take it, too, and no further. Other rows have no part in such a run, so what they do is never taken for noise.
//! * What is more than [`MOST`] of the largest number is a difference whatever rounding does.
//!
//! NaN is equal to nothing but a NaN in the same place of a run by itself, and infinity to the same infinity.

use candle_core::{DType, Device, Tensor};
use hookpoint::Result;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Units that the rounding of the result itself may make.
const LAST_BITS: f64 = 2.;
/// How much more than one turned bit for every value a sum in another order makes. A sum of thousands of terms is
/// several bits off; half precision is summed in a wider one and rounded once.
const SHARE: f64 = 16.;
const SHARE_OF_HALVES: f64 = 4.;
/// The largest share of a result that passes for rounding.
const MOST: f64 = 1e-2;

/// How far two results are apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apart {
    /// In units of the last place of the largest number.
    pub units: f64,
    /// As a share of the largest number.
    share: f64,
    /// The machine epsilon.
    epsilon: f64,
    /// The two numbers that differ most.
    pub numbers: (f64, f64),
}

impl Apart {
    const NOT: Self = Self { units: 0., share: 0., epsilon: 0., numbers: (0., 0.) };

    /// How far these are apart. `size` says how large numbers of this kind are when nothing is changed.
    pub fn of(ones: &[Tensor], others: &[Tensor], size: &[Tensor]) -> Result<Self> {
        let mut most = Self::NOT;
        for (at, (one, other)) in ones.iter().zip(others).enumerate() {
            let apart = Self::of_two(one, other, size.get(at))?;
            if apart.units > most.units {
                most = apart;
            }
        }
        Ok(most)
    }

    fn of_two(one: &Tensor, other: &Tensor, size: Option<&Tensor>) -> Result<Self> {
        // Whole numbers are exact.
        let epsilon = epsilon(one.dtype()).or(epsilon(DType::F64)).unwrap_or(f64::EPSILON);
        if one.dims() != other.dims() {
            let numbers = (one.elem_count() as f64, other.elem_count() as f64);
            return Ok(Self { units: f64::INFINITY, share: f64::INFINITY, epsilon, numbers });
        }
        let (ones, others) = (numbers(one)?, numbers(other)?);
        let largest = |numbers: &[f64]| {
            let finite = numbers.iter().filter(|number| number.is_finite());
            finite.fold(0f64, |most, number| most.max(number.abs()))
        };
        let usual = size.map(|size| Ok::<_, hookpoint::Error>(largest(&numbers(size)?))).transpose()?;
        let scale = largest(&ones).max(largest(&others)).max(usual.unwrap_or(0.));
        let (mut by, mut at) = (0f64, (0., 0.));
        for (one, other) in ones.into_iter().zip(others) {
            let here = match one == other || (one.is_nan() && other.is_nan()) {
                true => 0.,
                false if one.is_finite() && other.is_finite() => (one - other).abs() / scale,
                false => f64::INFINITY,
            };
            if here > by {
                (by, at) = (here, (one, other));
            }
        }
        Ok(Self { units: by / epsilon, share: by, epsilon, numbers: at })
    }

    /// No more than the last bits of the result.
    pub fn is_nothing(&self) -> bool {
        self.units <= LAST_BITS
    }

    /// No more than rounding makes, where turned bits have made so many units.
    pub fn is_rounding(&self, turned: f64) -> bool {
        let (share, most) = match self.epsilon > 1e-5 {
            true => (SHARE_OF_HALVES, self.epsilon.sqrt()),
            false => (SHARE, MOST),
        };
        self.is_nothing() || (self.units <= share * turned.max(1.) && self.share <= most)
    }
}

/// All numbers of a tensor.
pub(super) fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    // Not every device has numbers of 64 bits.
    Ok(tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?)
}

/// What one bit is worth; none where numbers are whole.
fn epsilon(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F64 => Some(f64::EPSILON),
        DType::F32 => Some(f64::from(f32::EPSILON)),
        DType::F16 => Some(2f64.powi(-10)),
        DType::BF16 => Some(2f64.powi(-7)),
        _ => None,
    }
}

/// The same with the last bit of every number turned up or down, each by itself; none where numbers are whole.
pub(super) fn with_bits_turned(path: &str, value: &Tensor) -> Result<Option<Tensor>> {
    let Some(epsilon) = epsilon(value.dtype()) else { return Ok(None) };
    // The same in every run, and at every point something else.
    let seed = path.bytes().fold(0u64, |seed, byte| seed.rotate_left(8) ^ u64::from(byte));
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut up_or_down = || if random.random() { 1. + epsilon } else { 1. - epsilon };
    let factors: Vec<f64> = (0..value.elem_count()).map(|_| up_or_down()).collect();
    let factors = Tensor::from_vec(factors, value.dims(), &Device::Cpu)?;
    Ok(Some((value * factors.to_dtype(value.dtype())?.to_device(value.device())?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(one: &[f32], other: &[f32]) -> Apart {
        let tensor =
            |numbers: &[f32]| Tensor::new(numbers, &Device::Cpu).unwrap_or_else(|error| panic!("{error}"));
        Apart::of(&[tensor(one)], &[tensor(other)], &[]).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn units_are_those_of_the_largest_number() {
        assert!(apart(&[1., 1000.], &[1.0001, 1000.]).is_nothing());
        assert!(!apart(&[1., 10.], &[1.0001, 10.]).is_nothing());
        assert!(!apart(&[1.], &[2.]).is_rounding(1e6));
    }

    #[test]
    fn what_is_no_number_is_equal_to_itself_alone() {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        assert!(apart(&[nan, 1., infinity], &[nan, 1., infinity]).is_nothing());
        for other in [[1., 1., infinity], [nan, nan, infinity], [nan, 1., -infinity], [nan, 1., 5.]] {
            assert!(!apart(&[nan, 1., infinity], &other).is_rounding(1e9), "{other:?}");
        }
    }

    #[test]
    fn one_bit_is_turned() -> Result<()> {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let value = Tensor::ones(64, DType::F64, &Device::Cpu)?.to_dtype(dtype)?;
            let Some(turned) = with_bits_turned("a", &value)? else { panic!("{dtype:?}") };
            let units = Apart::of(&[value], std::slice::from_ref(&turned), &[])?.units;
            assert!((0.9..=1.1).contains(&units), "{dtype:?}: {units}");
            let sum = (turned.to_dtype(DType::F64)? - 1.)?.sum_all()?.to_scalar::<f64>()?;
            assert!(sum.abs() < 40. * epsilon(dtype).unwrap_or(0.), "{dtype:?}: as many up as down");
        }
        assert!(with_bits_turned("a", &Tensor::new(&[1u32], &Device::Cpu)?)?.is_none());
        Ok(())
    }
}
