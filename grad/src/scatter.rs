//! Writing at indices. Candle's gradients of the two operations are those of each other.

use candle_core::shape::Dim;
use candle_core::{DType, Result, Tensor};

use super::node::attach;

/// [`Tensor::scatter`] with the right gradient: what was overwritten gets none.
pub fn scatter(x: &Tensor, indexes: &Tensor, source: &Tensor, dim: impl Dim) -> Result<Tensor> {
    let dim = dim.to_index(x.shape(), "scatter")?;
    scatter_rule(x, indexes, source, dim, x.detach().scatter(indexes, &source.detach(), dim)?)
}

/// [`Tensor::scatter_add`] with the right gradient.
pub fn scatter_add(x: &Tensor, indexes: &Tensor, source: &Tensor, dim: impl Dim) -> Result<Tensor> {
    let dim = dim.to_index(x.shape(), "scatter-add")?;
    scatter_add_rule(x, indexes, source, dim, x.detach().scatter_add(indexes, &source.detach(), dim)?)
}

/// Where several sources go to one place the last one stays, and the gradient is its own. Their numbers
/// are scattered to learn which.
pub(crate) fn scatter_rule(
    x: &Tensor,
    indexes: &Tensor,
    source: &Tensor,
    dim: usize,
    value: Tensor,
) -> Result<Tensor> {
    let (input, indexes) = (x.detach(), indexes.contiguous()?);
    let source_shape = source.shape().clone();
    attach("scatter", value, [x, source], move |step| {
        let dx = step.when(0, || {
            let zeros = Tensor::zeros(&source_shape, input.dtype(), input.device())?;
            step.grad.scatter(&indexes, &zeros, dim)
        })?;
        let dsource = step.when(1, || {
            let count = source_shape.elem_count() as u32;
            let numbers = Tensor::arange(1, count + 1, input.device())?.to_dtype(DType::F64)?;
            let numbers = numbers.reshape(&source_shape)?;
            let written = Tensor::zeros(input.shape(), DType::F64, input.device())?;
            let stays = written.scatter(&indexes, &numbers, dim)?.gather(&indexes, dim)?.eq(&numbers)?;
            step.grad.gather(&indexes, dim)? * stays.to_dtype(step.grad.dtype())?
        })?;
        Ok([dx, dsource])
    })
}

pub(crate) fn scatter_add_rule(
    x: &Tensor,
    indexes: &Tensor,
    source: &Tensor,
    dim: usize,
    value: Tensor,
) -> Result<Tensor> {
    let indexes = indexes.contiguous()?;
    attach("scatter_add", value, [x, source], move |step| {
        let dx = step.when(0, || Ok(step.grad.clone()))?;
        let dsource = step.when(1, || step.grad.gather(&indexes, dim))?;
        Ok([dx, dsource])
    })
}
