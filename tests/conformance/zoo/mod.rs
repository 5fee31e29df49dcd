//! Models of many kinds on small configurations, with reproducible weights and fixed inputs.
//!
//! The same text is compiled once for every crate that offers the models. The module that declares
//! this one says which, and what to do with each model:
//!
//! - `transformers`: candle-transformers, or a copy of it under another name;
//! - `Visit`: a trait with the two methods that [`visit_all`] calls, `shared` for models whose
//!   forward code takes `&self`, `exclusive` for those that take `&mut self`. Both get the model's
//!   name, a function that makes a new copy (equal weights every time) and a function that runs it
//!   on a fixed input and returns all its outputs; `exclusive` is also told whether a copy may run
//!   [`AGAIN`] with the same result or must be [`FRESH`]. The bound on the model's type is theirs.

mod audio;
mod convolution;
mod diffusion;
mod encoder;
mod experts;
mod inputs;
mod language;
mod multimodal;
mod quantized;
mod segmentation;
mod sequence;
mod state_space;
mod vision;
pub mod weights;

use super::{transformers, Visit};

/// The model keeps no state from one run to the next, or clears it first.
pub const AGAIN: bool = false;

/// The model keeps state that cannot be cleared: every run needs a new copy.
pub const FRESH: bool = true;

/// Shows every model to `visitor`, always in the same order.
pub fn visit_all(visitor: &mut impl Visit) {
    language::visit(visitor);
    experts::visit(visitor);
    state_space::visit(visitor);
    encoder::visit(visitor);
    sequence::visit(visitor);
    multimodal::visit(visitor);
    vision::visit(visitor);
    convolution::visit(visitor);
    segmentation::visit(visitor);
    audio::visit(visitor);
    diffusion::visit(visitor);
    quantized::visit(visitor);
}
