//! A value whose backward is an error.

use candle_core::{Error, Result, Tensor, Var};

use crate::node::{attach, Step};

/// The value, in memory of its own, with a backward that fails with this error.
///
/// Candle's `backward` of a tensor without a graph succeeds and finds nothing. Where that would be a mistake that
/// nobody sees, as with the loss of a run that is over, this says so.
///
/// ```
/// use candle_core::{bail, Device, Tensor};
///
/// let loss = Tensor::new(1f32, &Device::Cpu)?;
/// assert!(loss.backward().is_ok());
/// let loss = hookpoint_grad::refused(&loss, || candle_core::Error::Msg("differentiated before".into()))?;
/// assert!(loss.backward().is_err());
/// assert_eq!(loss.to_scalar::<f32>()?, 1.);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn refused(value: &Tensor, error: impl Fn() -> Error + Send + Sync + 'static) -> Result<Tensor> {
    // A variable makes candle's backward come by.
    let leaf = Var::zeros((), value.dtype(), value.device())?;
    let refuse = move |_: &Step<'_>| Err(error());
    attach("refused", value.detach().force_contiguous()?, [leaf.as_tensor()], refuse)
}
