//! Small honest models, each of which breaks one assumption that hookpoint might make. What comes out is right, or an
//! error that says what to do. `docs/guarantees.md` has the promises, one file here each.
//!
//! The device comes from `HOOKPOINT_DEVICE` (`cpu`, `cuda:0`, `metal`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Gradients: what loses or bends one.
mod gradients;
