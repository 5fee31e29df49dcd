//! Gradients of broadcast arguments, and precision.

use candle_core::{DType, Result, Shape, Tensor};

/// Sums a gradient down to the shape of an argument that was broadcast.
pub(super) fn sum_to(grad: &Tensor, shape: &Shape) -> Result<Tensor> {
    let left = grad.rank().saturating_sub(shape.rank());
    let inner = grad.dims().iter().skip(left).zip(shape.dims());
    let inner = inner.enumerate().filter(|(_, (of, to))| of != to).map(|(dim, _)| dim + left);
    let summed: Vec<usize> = (0..left).chain(inner).collect();
    if summed.is_empty() {
        return Ok(grad.clone());
    }
    grad.sum_keepdim(summed)?.reshape(shape)
}

/// Half floats are computed with as single ones, as candle's own kernels do.
pub(super) fn precise(tensor: &Tensor) -> Result<Tensor> {
    match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.to_dtype(DType::F32),
        _ => Ok(tensor.clone()),
    }
}

/// `[.., width]` as `[rows, width]`.
pub(super) fn rows(tensor: &Tensor) -> Result<Tensor> {
    let width = tensor.dim(candle_core::D::Minus1)?;
    let rows = tensor.elem_count().checked_div(width).unwrap_or(0);
    tensor.contiguous()?.reshape((rows, width))
}
