//! What of a point's tensor is a row.

use candle_core::{DType, Device, Tensor, WithDType};
use hookpoint::{ActivationCache, Error, Result};
use serde::{Deserialize, Serialize};

use super::manifest::PointInfo;

/// What a row is. All points of a store give as many rows as each other, so that row 7 of one and row 7 of another
/// belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// The last dimension is a row: `[batch, pos, d_model]` gives `batch * pos` rows of shape `[d_model]`. What a
    /// sparse autoencoder is trained on.
    #[default]
    Vectors,
    /// Every position of every prompt is a row: `[batch, pos, head, d_head]` gives `batch * pos` rows of shape
    /// `[head, d_head]`.
    Positions,
    /// Every prompt is a row: `[batch, pos, d_model]` gives `batch` rows of shape `[pos, d_model]`, which has to be
    /// the same in all batches.
    Prompts,
}

impl Rows {
    /// How many rows a tensor has, and their shape.
    fn of<'t>(self, name: &str, dims: &'t [usize]) -> Result<(usize, &'t [usize])> {
        let leading = match self {
            Self::Vectors => dims.len().checked_sub(1),
            Self::Positions => Some(2),
            Self::Prompts => Some(1),
        };
        match leading.and_then(|leading| dims.split_at_checked(leading)) {
            Some((leading, shape)) => Ok((leading.iter().product(), shape)),
            None => Err(Error::msg(format!(
                "`{name}` has shape {dims:?}, which does not have enough dimensions for rows that are {self:?}\n  \
                 choose other `Rows`"
            ))),
        }
    }
}

/// A number type of a store.
pub(super) trait Number: WithDType + bytemuck::Pod {}
impl Number for f32 {}
impl Number for f64 {}
impl Number for half::f16 {}
impl Number for half::bf16 {}

/// Calls a generic function for the number type of a dtype that stores can have.
macro_rules! for_dtype {
    ($dtype:expr, $function:ident, $($argument:expr),*) => {
        match $dtype {
            candle_core::DType::F16 => $function::<half::f16>($($argument),*),
            candle_core::DType::BF16 => $function::<half::bf16>($($argument),*),
            candle_core::DType::F64 => $function::<f64>($($argument),*),
            _ => $function::<f32>($($argument),*),
        }
    };
}
pub(super) use for_dtype;

pub(super) fn check_dtype(dtype: DType) -> Result<()> {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Ok(()),
        other => {
            Err(Error::msg(format!("a store cannot hold {}: use F32, F16, BF16 or F64", other.as_str())))
        }
    }
}

/// What one batch adds to a store: the same number of rows of every point.
pub(super) struct Batch {
    pub dtype: DType,
    pub rows: usize,
    /// In the order of the cache.
    pub points: Vec<PointInfo>,
    /// Of each point.
    pub data: Vec<Vec<u8>>,
}

impl Batch {
    pub(super) fn of(cache: &ActivationCache, rows: Rows, dtype: Option<DType>) -> Result<Self> {
        let mut batch = Self { dtype: DType::F32, rows: 0, points: Vec::new(), data: Vec::new() };
        for name in cache.keys() {
            let calls = cache.calls(name);
            let [tensor] = calls.as_slice() else {
                return Err(Error::msg(format!(
                    "`{name}` was reached {} times in one run, and a store keeps one value of each\n  say which, as \
                     in `{name}#0`",
                    calls.len()
                )));
            };
            let dtype = dtype.unwrap_or(tensor.dtype());
            check_dtype(dtype).map_err(|error| Error::msg(format!("`{name}`: {error}")))?;
            let (count, shape) = rows.of(name, tensor.dims())?;
            match batch.points.first() {
                None => (batch.dtype, batch.rows) = (dtype, count),
                Some(first) if batch.rows != count || batch.dtype != dtype => {
                    return Err(Error::msg(format!(
                        "`{name}` gives {count} rows of {}, and `{}` {} rows of {}\n  record them into stores of \
                         their own, or choose other `Rows`",
                        dtype.as_str(),
                        first.name,
                        batch.rows,
                        batch.dtype.as_str()
                    )))
                }
                Some(_) => {}
            }
            batch.points.push(PointInfo { name: name.to_string(), shape: shape.to_vec() });
            batch.data.push(for_dtype!(dtype, bytes, name, tensor, dtype)?);
        }
        match batch.points.is_empty() {
            true => {
                Err(Error::msg("the run has cached nothing\n  ask the plan for points with `.cache(..)`"))
            }
            false => Ok(batch),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.data.iter().map(Vec::len).sum()
    }

    /// What the model has made of these prompts.
    pub(super) fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (point, data) in self.points.iter().zip(&self.data) {
            hasher.update(point.name.as_bytes());
            hasher.update(data);
        }
        hasher.finalize().to_hex().to_string()
    }
}

fn bytes<T: Number>(name: &str, tensor: &Tensor, dtype: DType) -> Result<Vec<u8>> {
    let tensor = tensor.to_device(&Device::Cpu)?;
    if dtype == DType::F16 && tensor.dtype() != DType::F16 && tensor.elem_count() > 0 {
        let largest = tensor.to_dtype(DType::F32)?.abs()?.max_all()?.to_scalar::<f32>()?;
        if largest.is_finite() && half::f16::from_f32(largest).is_infinite() {
            return Err(Error::msg(format!(
                "`{name}` has the value {largest}, which F16 cannot hold\n  record in BF16 or F32"
            )));
        }
    }
    let numbers = tensor.to_dtype(dtype)?.flatten_all()?.to_vec1::<T>()?;
    Ok(bytemuck::cast_slice(&numbers).to_vec())
}

/// Rows from their bytes.
pub(super) fn tensor<T: Number>(
    bytes: &[u8],
    rows: usize,
    shape: &[usize],
    device: &Device,
) -> Result<Tensor> {
    let mut numbers: Vec<T> = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    bytemuck::cast_slice_mut::<T, u8>(&mut numbers).copy_from_slice(bytes);
    let dims: Vec<usize> = std::iter::once(rows).chain(shape.iter().copied()).collect();
    Ok(Tensor::from_vec(numbers, dims, device)?)
}
