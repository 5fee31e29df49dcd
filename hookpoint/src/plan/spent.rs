//! A loss that was differentiated: it can be read, and refuses to be differentiated once more.
//!
//! Candle's `backward` of a tensor without a graph succeeds and finds nothing, so that an optimizer's
//! `backward_step` with the loss of a finished run would train nothing without a word.

use candle_core::Tensor;
use hookpoint_grad::refused;

use crate::error::{Error, ErrorKind, Result};

/// The number with a backward that refuses. It shares no memory with anything, and keeps nothing alive.
pub(super) fn spent(number: &Tensor) -> Result<Tensor> {
    Ok(refused(number, || Error::from(ErrorKind::AlreadyDifferentiated).into_candle())?)
}
