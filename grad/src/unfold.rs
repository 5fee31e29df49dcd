//! Windows along a dimension. Candle lays their gradient out as if windows were rows, which is an error where they overlap,
//! and gives wrong numbers along any dimension but the last.

use candle_core::shape::Dim;
use candle_core::{Result, Tensor};

use super::node::attach;

/// [`Tensor::unfold`] with the right gradient.
pub fn unfold(x: &Tensor, dim: impl Dim, size: usize, step: usize) -> Result<Tensor> {
    let dim = dim.to_index(x.shape(), "unfold")?;
    unfold_rule(x, dim, size, step, x.detach().unfold(dim, size, step)?)
}

/// `[.., length, ..]` became `[.., windows, .., size]`: an element gets what every window that has it got.
pub(crate) fn unfold_rule(x: &Tensor, dim: usize, size: usize, step: usize, value: Tensor) -> Result<Tensor> {
    let (input, last) = (x.detach(), x.rank());
    let windows = value.dim(dim)?;
    attach("unfold", value, [x], move |given| {
        let mut dx = input.zeros_like()?;
        for place in 0..size {
            let at = (0..windows).map(|window| (window * step + place) as u32).collect::<Vec<_>>();
            let at = Tensor::from_vec(at, windows, input.device())?;
            let part = given.grad.narrow(last, place, 1)?.squeeze(last)?.contiguous()?;
            dx = dx.index_add(&at, &part, dim)?;
        }
        Ok([Some(dx)])
    })
}
