//! The largest element of each window, and where it was.

use candle_core::{Module, Tensor, ToUsize2};
use hookpoint::{auto_hook, AutoHook, Result};

use super::max_indices::{in_rows, Planes, Windows};
use super::window::{Axis, Rounding};

/// Max pooling over the last two dimensions, which knows where its maxima were.
///
/// Output, indices and gradients are those of PyTorch's `nn.MaxPool2d`. An index counts through the plane
/// of the input, row by row; they are of type I64. They are the named value `indices`:
/// `plan.cache("pool:indices")` reads them, and [`save_maxpool_indices`](super::save_maxpool_indices)
/// those of all layers at once. Where several elements of a window are the largest, the first counts, and
/// it alone gets the gradient. The input is `[batch, channel, row, column]` or `[channel, row, column]`.
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use hookpoint_layers::MaxPool2d;
/// use hookpoint::prelude::*;
///
/// let x = Tensor::new(&[[[1f32, 2.], [3., 4.]]], &Device::Cpu)?;
/// let pool = MaxPool2d::new(2)?;
/// let (output, indices) = pool.forward_with_indices(&x)?;
/// assert_eq!(output.to_vec3::<f32>()?, [[[4.]]]);
/// assert_eq!(indices.to_vec3::<i64>()?, [[[3]]]);
///
/// // Heights and widths can differ.
/// let pool = MaxPool2d::new((2, 1))?.with_stride((1, 2))?.with_padding((1, 0))?;
/// assert_eq!(pool.forward(&x)?.to_vec3::<f32>()?, [[[1.], [3.], [3.]]]);
///
/// // As a point.
/// let pool = Hooked::new(pool);
/// let (_, cache) = pool.run_with_cache(":indices", |m| m.forward(&x))?;
/// assert_eq!(cache[":indices"].to_vec3::<i64>()?, [[[0], [2], [2]]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(AutoHook, Clone, Debug, PartialEq)]
pub struct MaxPool2d {
    rows: Axis,
    columns: Axis,
}

impl MaxPool2d {
    /// Windows of this size, given as a number or as height and width. They lie side by side.
    pub fn new(kernel: impl ToUsize2) -> Result<Self> {
        let (height, width) = kernel.to_usize2();
        Ok(Self { rows: Axis::new(height)?, columns: Axis::new(width)? })
    }

    /// How far it is from one window to the next.
    pub fn with_stride(self, stride: impl ToUsize2) -> Result<Self> {
        let (rows, columns) = stride.to_usize2();
        Ok(Self { rows: self.rows.with_stride(rows)?, columns: self.columns.with_stride(columns)? })
    }

    /// How many rows and columns that are never the largest are added on each side: half of the kernel or
    /// less.
    pub fn with_padding(self, padding: impl ToUsize2) -> Result<Self> {
        let (rows, columns) = padding.to_usize2();
        Ok(Self { rows: self.rows.with_padding(rows)?, columns: self.columns.with_padding(columns)? })
    }

    /// How far it is from one element of a window to the next.
    pub fn with_dilation(self, dilation: impl ToUsize2) -> Result<Self> {
        let (rows, columns) = dilation.to_usize2();
        Ok(Self { rows: self.rows.with_dilation(rows)?, columns: self.columns.with_dilation(columns)? })
    }

    /// Whether there are windows that the input fills only in part, at its end: PyTorch's `ceil_mode` is
    /// [`Rounding::Ceil`].
    pub fn with_rounding(self, rounding: Rounding) -> Self {
        let (rows, columns) = (Axis { rounding, ..self.rows }, Axis { rounding, ..self.columns });
        Self { rows, columns }
    }

    /// Where the maxima of `x` are.
    fn indices(&self, x: &Tensor) -> Result<Tensor> {
        let planes = Planes::of("max pooling", x)?;
        let windows = Windows::over(planes.size(), &self.rows, &self.columns)?;
        let indices = windows.max_indices(&planes.tensor)?;
        Ok(planes.restore(&indices, windows.count())?)
    }
}

/// The elements of `x` at `indices`. Candle's gradient of `gather` is right: it adds up what the windows
/// that share an element send back.
fn take(x: &Tensor, indices: &Tensor) -> Result<Tensor> {
    if indices.elem_count() == 0 {
        return Ok(Tensor::zeros(indices.shape(), x.dtype(), x.device())?);
    }
    Ok(in_rows(x)?.gather(&in_rows(indices)?, 1)?.reshape(indices.shape())?)
}

#[auto_hook]
impl MaxPool2d {
    /// The largest element of each window, and its index.
    pub fn forward_with_indices(&self, x: &Tensor) -> candle_core::Result<(Tensor, Tensor)> {
        let indices = self.indices(x)?;
        Ok((take(x, &indices)?, indices))
    }
}

#[auto_hook]
impl Module for MaxPool2d {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        Ok(self.forward_with_indices(x)?.0)
    }
}
