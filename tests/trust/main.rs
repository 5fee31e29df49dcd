//! Small honest models, each of which breaks one assumption that hookpoint might make. What comes out is right, or an
//! error that says what to do. `docs/guarantees.md` has the promises, one file here each.
//!
//! The device comes from `HOOKPOINT_DEVICE` (`cpu`, `cuda:0`, `metal`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Gradients: what loses or bends one.
mod gradients;
/// Many threads, panics and runs inside of runs, on one model.
mod load;
/// What the self-check says a model is fit for.
mod reliance;
/// Sweeps whose cells share a run: rows that influence each other.
mod rows;
/// Texts that were changed at random.
mod text;

#[global_allocator]
static COUNTING: hookpoint_counting::Counting = hookpoint_counting::Counting;
