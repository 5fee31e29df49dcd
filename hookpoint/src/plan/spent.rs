//! A loss that was differentiated: it can be read, and refuses to be differentiated once more.
//!
//! Candle's `backward` of a tensor without a graph succeeds and finds nothing, so that an optimizer's
//! `backward_step` with the loss of a finished run would train nothing without a word. So the loss has a graph of
//! one operation, whose backward is an error that names the way.

use candle_core::{Result, Tensor, Var};

use crate::diff::{attach, Step};
use crate::error::{Error, ErrorKind};

/// The number with a backward that refuses. It shares no memory with anything, and keeps nothing alive.
pub(super) fn spent(number: &Tensor) -> Result<Tensor> {
    let leaf = Var::zeros((), number.dtype(), number.device())?;
    attach("loss of a finished run", number.detach().force_contiguous()?, [leaf.as_tensor()], refuse)
}

fn refuse(_: &Step<'_>) -> Result<[Option<Tensor>; 1]> {
    Err(Error::from(ErrorKind::AlreadyDifferentiated).into_candle())
}
