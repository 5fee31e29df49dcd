//! Images and sequences made larger or smaller.

use candle_core::{DType, Device, Result, Tensor};

use super::node::{attach, with_right_gradient};

/// [`Tensor::upsample_nearest1d`] with the right gradient, for any target size.
pub fn upsample_nearest1d(x: &Tensor, size: usize) -> Result<Tensor> {
    nearest1d_rule(x, x.detach().upsample_nearest1d(size)?)
}

/// [`Tensor::upsample_nearest2d`] with the right gradient, for any target size.
pub fn upsample_nearest2d(x: &Tensor, height: usize, width: usize) -> Result<Tensor> {
    nearest2d_rule(x, x.detach().upsample_nearest2d(height, width)?)
}

/// [`Tensor::upsample_bilinear2d`] with a gradient.
pub fn upsample_bilinear2d(x: &Tensor, height: usize, width: usize, align_corners: bool) -> Result<Tensor> {
    let value = x.detach().upsample_bilinear2d(height, width, align_corners)?;
    bilinear_rule(x, Bilinear { align_corners, scale: None }, value)
}

/// [`Tensor::upsample_bilinear2d_with_scale`] with a gradient.
pub fn upsample_bilinear2d_with_scale(
    x: &Tensor,
    height: f64,
    width: f64,
    align_corners: bool,
) -> Result<Tensor> {
    let value = x.detach().upsample_bilinear2d_with_scale(height, width, align_corners)?;
    bilinear_rule(x, Bilinear { align_corners, scale: Some((height, width)) }, value)
}

/// Which element each new one is a copy of. Numbers are resampled to learn it, so that the rule is the
/// device's own.
fn sources(from: usize, to: usize, device: &Device) -> Result<Tensor> {
    let numbers = Tensor::arange(0, from as u32, device)?.to_dtype(DType::F32)?;
    numbers.reshape((1, 1, from, 1))?.upsample_nearest2d(to, 1)?.flatten_all()?.to_dtype(DType::U32)
}

pub(crate) fn nearest1d_rule(x: &Tensor, value: Tensor) -> Result<Tensor> {
    let input = x.detach();
    let attached = attach("upsample_nearest1d", value, [x], move |step| {
        let (from, to) = (input.dim(2)?, step.value.dim(2)?);
        let numbers = Tensor::arange(0, from as u32, input.device())?.to_dtype(DType::F32)?;
        let sources = numbers.reshape((1, 1, from))?.upsample_nearest1d(to)?.flatten_all()?;
        let sources = sources.to_dtype(DType::U32)?;
        Ok([Some(input.zeros_like()?.index_add(&sources, step.grad, 2)?)])
    });
    attached.map(with_right_gradient)
}

pub(crate) fn nearest2d_rule(x: &Tensor, value: Tensor) -> Result<Tensor> {
    let input = x.detach();
    let attached = attach("upsample_nearest2d", value, [x], move |step| {
        let (_, _, height, width) = input.dims4()?;
        let (batch, channels, new_height, new_width) = step.value.dims4()?;
        let rows = sources(height, new_height, input.device())?;
        let columns = sources(width, new_width, input.device())?;
        let lines = Tensor::zeros((batch, channels, height, new_width), input.dtype(), input.device())?;
        let lines = lines.index_add(&rows, step.grad, 2)?;
        Ok([Some(input.zeros_like()?.index_add(&columns, &lines, 3)?)])
    });
    attached.map(with_right_gradient)
}

#[derive(Clone, Copy)]
pub(crate) struct Bilinear {
    pub align_corners: bool,
    pub scale: Option<(f64, f64)>,
}

impl Bilinear {
    /// What makes a column of `to` out of one of `from`: `[to, from]`, learned from the unit vectors.
    fn matrix(
        self,
        from: usize,
        to: usize,
        scale: impl Fn((f64, f64)) -> f64,
        like: &Tensor,
    ) -> Result<Tensor> {
        let units = Tensor::eye(from, DType::F32, like.device())?.reshape((1, 1, from, from))?;
        let grown = match self.scale {
            None => units.upsample_bilinear2d(to, from, self.align_corners)?,
            Some(both) => units.upsample_bilinear2d_with_scale(scale(both), 1., self.align_corners)?,
        };
        grown.reshape((to, from))?.to_dtype(like.dtype())
    }
}

pub(crate) fn bilinear_rule(x: &Tensor, how: Bilinear, value: Tensor) -> Result<Tensor> {
    let input = x.detach();
    attach("upsample_bilinear2d", value, [x], move |step| {
        let (_, _, height, width) = input.dims4()?;
        let (_, _, new_height, new_width) = step.value.dims4()?;
        let rows = how.matrix(height, new_height, |both| both.0, &input)?;
        let columns = how.matrix(width, new_width, |both| both.1, &input)?;
        // [.., new_height, new_width] -> [.., new_height, width] -> [.., height, width]
        let lines = step.grad.broadcast_matmul(&columns)?;
        Ok([Some(rows.t()?.broadcast_matmul(&lines)?)])
    })
}
