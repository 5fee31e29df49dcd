//! Running reductions, which keep sums and not tensors.
//!
//! The values of one batch are reduced on the spot, in f64, to a count, a mean, a sum of squared differences
//! from it, a least and a greatest. Two such summaries become one by the formulas of Chan, Golub and
//! LeVeque, which do not lose digits as sums of squares do.

use candle_core::{DType, Device, Tensor};

use crate::error::{ErrorKind, Result};

/// Over which dimensions a running reduction goes; the others stay.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::track::{Over, Tracker};
///
/// let mut tracker = Tracker::new().reduce("up", Over::Dims(vec![0]))?.reduce("down", Over::All)?;
/// tracker.run(&model, |m| m.forward(&x))?;
/// tracker.run(&model, |m| m.forward(&Tensor::cat(&[&x, &x.neg()?], 0)?))?;
///
/// // Three rows of `up`: [1, -2], [1, -2], [-1, 2].
/// let up = tracker.stats("up")?;
/// assert_eq!(up.count(), 3);
/// assert_eq!(up.max().to_vec1::<f64>()?, [1., 2.]);
/// assert!((up.mean().to_vec1::<f64>()?[0] - 1. / 3.).abs() < 1e-12);
/// assert_eq!(tracker.stats("down")?.mean().to_scalar::<f64>()?, 4. / 6.);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Over {
    /// All dimensions: one number for each point.
    All,
    /// These dimensions, negative ones counted from the end; those that stay must have the same size in
    /// every batch.
    Dims(Vec<isize>),
    /// All but the last: one number for each feature.
    AllButLast,
}

impl Over {
    /// The dimensions, in ascending order.
    fn dims(&self, point: &str, shape: &[usize]) -> Result<Vec<usize>> {
        let rank = shape.len();
        let wanted: Vec<isize> = match self {
            Over::All => (0..rank as isize).collect(),
            Over::AllButLast => (0..rank.saturating_sub(1) as isize).collect(),
            Over::Dims(dims) => dims.clone(),
        };
        let mut found = Vec::new();
        for dim in wanted {
            let from_start = if dim < 0 { dim + rank as isize } else { dim };
            match usize::try_from(from_start).ok().filter(|dim| *dim < rank) {
                Some(dim) => found.push(dim),
                None => {
                    let (least, most) = (-(rank as isize), rank as isize - 1);
                    let remedy = format!("name dimensions from {least} to {most}");
                    let (point, shape) = (point.to_string(), shape.to_vec());
                    return Err(ErrorKind::NoDimension { point, dim, shape, remedy }.into());
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

/// Count, mean, variance, least and greatest of everything that passed a point so far, in f64. Nothing of
/// what passed is kept.
///
/// A value that is not a number makes mean and variance so, as it does in a sum.
#[derive(Clone, Debug)]
pub struct Stats {
    count: usize,
    mean: Tensor,
    /// The sum of squared differences from the mean.
    squares: Tensor,
    min: Tensor,
    max: Tensor,
}

impl Stats {
    /// Of one batch; none where it is empty.
    pub(super) fn of(point: &str, tensor: &Tensor, over: &Over) -> Result<Option<Self>> {
        let dims = over.dims(point, tensor.dims())?;
        let count: usize = dims.iter().filter_map(|dim| tensor.dims().get(*dim)).product();
        if count == 0 || tensor.elem_count() == 0 {
            return Ok(None);
        }
        // A gradient is of no use here, and would keep what it needs alive.
        let tensor = in_f64(&tensor.detach())?;
        let mean = (tensor.sum_keepdim(dims.as_slice())? / count as f64)?;
        let squares = tensor.broadcast_sub(&mean)?.sqr()?.sum_keepdim(dims.as_slice())?;
        let (mut min, mut max) = (tensor.clone(), tensor);
        for dim in &dims {
            min = min.min_keepdim(*dim)?;
            max = max.max_keepdim(*dim)?;
        }
        let without = |tensor: Tensor| -> Result<Tensor> {
            let squeezed = dims.iter().rev().try_fold(tensor, |tensor, dim| tensor.squeeze(*dim))?;
            // Not a view of the whole batch.
            Ok(squeezed.force_contiguous()?)
        };
        let (mean, squares) = (without(mean)?, without(squares)?);
        Ok(Some(Self { count, mean, squares, min: without(min)?, max: without(max)? }))
    }

    /// Of what both have seen.
    pub(super) fn and(&self, point: &str, other: &Self) -> Result<Self> {
        if self.mean.dims() != other.mean.dims() {
            return Err(ErrorKind::Shape {
                point: point.to_string(),
                what: "a reduced value".to_string(),
                expected: self.mean.dims().to_vec(),
                found: other.mean.dims().to_vec(),
                remedy: "reduce over the dimensions that vary from batch to batch".to_string(),
            }
            .into());
        }
        let count = self.count + other.count;
        let part = other.count as f64 / count as f64;
        let difference = (&other.mean - &self.mean)?;
        let between = (difference.sqr()? * (self.count as f64 * part))?;
        Ok(Self {
            count,
            mean: (&self.mean + (&difference * part)?)?,
            squares: ((&self.squares + &other.squares)? + between)?,
            min: self.min.minimum(&other.min)?,
            max: self.max.maximum(&other.max)?,
        })
    }

    /// How many values each number stands for.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The mean.
    pub fn mean(&self) -> &Tensor {
        &self.mean
    }

    /// The variance of the values themselves: divided by their number.
    pub fn variance(&self) -> Result<Tensor> {
        Ok((&self.squares / self.count as f64)?)
    }

    /// The variance that they suggest of what they were drawn from: divided by their number less one.
    /// An error for a single value.
    pub fn sample_variance(&self) -> Result<Tensor> {
        if self.count < 2 {
            return Err(ErrorKind::TooFew {
                what: "values".to_string(),
                purpose: "a sample variance".to_string(),
                least: 2,
                count: self.count,
                remedy: "use `variance`".to_string(),
            }
            .into());
        }
        Ok((&self.squares / (self.count - 1) as f64)?)
    }

    /// The square root of the [variance](Self::variance).
    pub fn std(&self) -> Result<Tensor> {
        Ok(self.variance()?.sqrt()?)
    }

    /// The least.
    pub fn min(&self) -> &Tensor {
        &self.min
    }

    /// The greatest.
    pub fn max(&self) -> &Tensor {
        &self.max
    }
}

/// In double precision, where it is, if there is such a thing there.
fn in_f64(tensor: &Tensor) -> Result<Tensor> {
    let tensor = if tensor.device().is_metal() { tensor.to_device(&Device::Cpu)? } else { tensor.clone() };
    Ok(tensor.to_dtype(DType::F64)?)
}
