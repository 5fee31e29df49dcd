//! Values put back to where they were before a max pooling.

use candle_core::{DType, Device, Module, Tensor, ToUsize2};
use hookpoint::{auto_hook, AutoHook, Error, Result};

use super::max_indices::{as_i64, in_rows, Planes};
use super::window::Axis;

/// The reverse of [`MaxPool2d`](super::MaxPool2d): values go to where the maxima were, everything else is 0.
///
/// Output and gradients are those of PyTorch's `nn.MaxUnpool2d`. Where windows overlap and two values have
/// one index, the later one stays; the gradient goes to both, as in PyTorch.
///
/// The indices are given to [`forward_with_indices`](Self::forward_with_indices). As a `Module`, which has
/// one input, the layer asks the run for them: they are its named value `indices`, to be replaced by
/// [`use_indices_in_maxunpool`](super::use_indices_in_maxunpool), or by a patch or hook of your own. Without
/// that it is an error. Nothing is kept in the layer.
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use hookpoint_layers::MaxUnpool2d;
/// use hookpoint::prelude::*;
///
/// let x = Tensor::new(&[[[4f32]]], &Device::Cpu)?;
/// let indices = Tensor::new(&[[[3i64]]], &Device::Cpu)?;
/// let unpool = MaxUnpool2d::new(2)?;
/// let output = unpool.forward_with_indices(&x, &indices)?;
/// assert_eq!(output.to_vec3::<f32>()?, [[[0., 0.], [0., 4.]]]);
///
/// // From a run.
/// let unpool = Hooked::new(unpool);
/// let run = unpool.plan().patch(":indices", &indices)?.run(|m| m.forward(&x))?;
/// assert_eq!(run.output.to_vec3::<f32>()?, [[[0., 0.], [0., 4.]]]);
/// assert!(unpool.forward(&x).is_err());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(AutoHook, Clone, Debug, PartialEq)]
pub struct MaxUnpool2d {
    rows: Axis,
    columns: Axis,
    output_size: Option<(usize, usize)>,
}

impl MaxUnpool2d {
    /// The reverse of a pooling with windows of this size, side by side.
    pub fn new(kernel: impl ToUsize2) -> Result<Self> {
        let (height, width) = kernel.to_usize2();
        Ok(Self { rows: Axis::new(height)?, columns: Axis::new(width)?, output_size: None })
    }

    /// The stride of the pooling.
    pub fn with_stride(self, stride: impl ToUsize2) -> Result<Self> {
        let (rows, columns) = stride.to_usize2();
        Ok(Self { rows: self.rows.with_stride(rows)?, columns: self.columns.with_stride(columns)?, ..self })
    }

    /// The padding of the pooling.
    pub fn with_padding(self, padding: impl ToUsize2) -> Result<Self> {
        let (rows, columns) = padding.to_usize2();
        let (rows, columns) = (self.rows.with_padding(rows)?, self.columns.with_padding(columns)?);
        Ok(Self { rows, columns, ..self })
    }

    /// The size of what was pooled: inputs of several sizes pool to one. Without it, the smallest size that
    /// the windows fill. Indices of [`save_maxpool_indices`](super::save_maxpool_indices) bring it along.
    pub fn with_output_size(self, output_size: impl ToUsize2) -> Self {
        Self { output_size: Some(output_size.to_usize2()), ..self }
    }

    /// The size of the output for `x`, where nobody says another one.
    fn size(&self, x: &Tensor) -> Result<(usize, usize)> {
        let (height, width) = Planes::of("max unpooling", x)?.size();
        match self.output_size {
            Some(size) => Ok(size),
            None => Ok((smallest(&self.rows, height)?, smallest(&self.columns, width)?)),
        }
    }

    /// The size of the output as a named value, `[row, column]`, which a run may replace.
    fn asked_size(&self, x: &Tensor) -> Result<Tensor> {
        let (height, width) = self.size(x)?;
        Ok(Tensor::new(&[height as i64, width as i64], &Device::Cpu)?)
    }

    fn read_size(&self, size: &Tensor) -> Result<(usize, usize)> {
        let size = match size.to_vec1::<i64>()?.as_slice() {
            [height, width] => (usize::try_from(*height).ok(), usize::try_from(*width).ok()),
            _ => (None, None),
        };
        let (Some(height), Some(width)) = size else {
            return Err(Error::msg("the output size of max unpooling is not a height and a width"));
        };
        match self.output_size.filter(|own| *own != (height, width)) {
            None => Ok((height, width)),
            Some(own) => Err(Error::msg(format!(
                "the layer gives {} × {}, and the indices are those of an input of {height} × {width}\n  \
                 leave `with_output_size` away, or use the indices of another run",
                own.0, own.1
            ))),
        }
    }

    /// Puts `x` to `indices` in planes of this size.
    fn unpool(&self, x: &Tensor, indices: &Tensor, size: (usize, usize)) -> Result<Tensor> {
        let planes = Planes::of("max unpooling", x)?;
        let (height, width) = planes.size();
        check_size("height", &self.rows, height, size.0)?;
        check_size("width", &self.columns, width, size.1)?;
        if indices.dims() != x.dims() {
            return Err(Error::msg(format!(
                "max unpooling got indices of shape {:?} for values of shape {:?}\n  give the indices of the \
                 pooling that made these values",
                indices.dims(),
                x.dims()
            )));
        }
        let indices = as_i64(indices)?.ok_or_else(|| {
            Error::msg(format!(
                "max unpooling got indices of dtype {}\n  give them as I64 or U32",
                indices.dtype().as_str()
            ))
        })?;
        check_range(&indices, size)?;
        let (values, indices) = (in_rows(x)?, in_rows(&indices.to_device(x.device())?)?);
        let nothing = Tensor::zeros((values.dim(0)?, size.0 * size.1), x.dtype(), x.device())?;
        if values.elem_count() == 0 {
            return Ok(planes.restore(&nothing, size)?);
        }
        // Candle's gradient of `scatter` is wrong for what is written to and right for what is written,
        // and what is written to is a constant here.
        Ok(planes.restore(&nothing.scatter(&indices, &values, 1)?, size)?)
    }
}

/// Stands for indices that nobody gave.
const NOT_GIVEN: i64 = -1;

fn not_given(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::full(NOT_GIVEN, x.shape(), x.device())?)
}

/// An index outside of the plane would be written to wherever a GPU finds it.
fn check_range(indices: &Tensor, (height, width): (usize, usize)) -> Result<()> {
    let indices = indices.to_device(&Device::Cpu)?.to_dtype(DType::I64)?.flatten_all()?.to_vec1::<i64>()?;
    if !indices.is_empty() && indices.iter().all(|index| *index == NOT_GIVEN) {
        return Err(Error::msg(
            "a `MaxUnpool2d` was reached that has no indices\n  run the model with \
             `use_indices_in_maxunpool(..)`, patch its value `indices`, or call `forward_with_indices`",
        ));
    }
    let inside = |index: &&i64| usize::try_from(**index).is_ok_and(|index| index < height * width);
    match indices.iter().find(|index| !inside(index)) {
        None => Ok(()),
        Some(index) => Err(Error::msg(format!(
            "max unpooling got the index {index}, and a plane of {height} × {width} has the indices 0 to \
             {}\n  if what was pooled had another size, say so with `with_output_size`",
            (height * width).saturating_sub(1)
        ))),
    }
}

/// The smallest size that pools to `pooled`.
fn smallest(axis: &Axis, pooled: usize) -> Result<usize> {
    let size = pooled.checked_sub(1).and_then(|steps| {
        let end = steps.checked_mul(axis.stride)?.checked_add(axis.kernel)?;
        end.checked_sub(2 * axis.padding).filter(|size| *size > 0)
    });
    size.ok_or_else(|| {
        Error::msg(format!("nothing pools to a size of {pooled} with a padding of {}", axis.padding))
    })
}

/// As PyTorch does, takes sizes that differ from the smallest by less than a stride.
fn check_size(what: &str, axis: &Axis, pooled: usize, size: usize) -> Result<()> {
    let smallest = smallest(axis, pooled)?;
    if size.abs_diff(smallest) < axis.stride && size > 0 {
        return Ok(());
    }
    let least = smallest.saturating_sub(axis.stride - 1).max(1);
    let most = smallest.saturating_add(axis.stride - 1);
    Err(Error::msg(format!(
        "a {what} of {pooled} cannot be unpooled to {size} with a kernel of {} and a stride of {}\n  give a \
         {what} from {least} to {most}",
        axis.kernel, axis.stride
    )))
}

#[auto_hook]
impl MaxUnpool2d {
    /// Puts the values of `x` to where `maxima`, the indices of a pooling, say that they were.
    pub fn forward_with_indices(&self, x: &Tensor, maxima: &Tensor) -> candle_core::Result<Tensor> {
        Ok(self.unpool(x, maxima, self.size(x)?)?)
    }
}

#[auto_hook]
impl Module for MaxUnpool2d {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let output_size = self.asked_size(x)?;
        let indices = not_given(x)?;
        Ok(self.unpool(x, &indices, self.read_size(&output_size)?)?)
    }
}
