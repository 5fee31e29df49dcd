//! Softmax.

use candle_core::{Result, Tensor, D};

use super::node::attach;
use super::shape::precise;

/// [`candle_nn::ops::softmax_last_dim`] with a gradient.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
///
/// let x = Var::new(&[[1f32, 2., 4.]], &Device::Cpu)?;
/// let first = hookpoint_grad::softmax_last_dim(&x)?.narrow(1, 0, 1)?.sum_all()?;
/// assert!(first.backward()?.get(&x).is_some());
///
/// // Candle's own gives none, and no error.
/// let first = candle_nn::ops::softmax_last_dim(&x)?.narrow(1, 0, 1)?.sum_all()?;
/// assert!(first.backward()?.get(&x).is_none());
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn softmax_last_dim(x: &Tensor) -> Result<Tensor> {
    softmax_rule(x, candle_nn::ops::softmax_last_dim(&x.detach())?)
}

/// dx = y (dy - sum(dy y))
pub(crate) fn softmax_rule(x: &Tensor, value: Tensor) -> Result<Tensor> {
    attach("softmax_last_dim", value, [x], |step| {
        let (y, grad) = (precise(&step.value)?, precise(step.grad)?);
        let weighted = (&grad * &y)?;
        let dx = (weighted.clone() - y.broadcast_mul(&weighted.sum_keepdim(D::Minus1)?)?)?;
        Ok([Some(dx.to_dtype(step.value.dtype())?)])
    })
}
