//! Small honest models, each of which breaks one assumption that hookpoint might make. What comes out is right, or an
//! error that says what to do. `docs/guarantees.md` has the promises, one file here each.
//!
//! The device comes from `HOOKPOINT_DEVICE` (`cpu`, `cuda:0`, `metal`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The models and tensors of the engine's tests.
#[path = "../engine/models.rs"]
#[allow(dead_code)]
mod models;

/// Gradients: what loses or bends one.
mod gradients;
/// Many threads, panics and runs inside of runs, on one model.
mod load;
/// A patch is the user's: the model never writes to it.
mod patch;
/// A cache is a photograph: what was cached does not change.
mod photograph;
/// A pattern reaches all that it selects, or says so.
mod reached;
/// What the self-check says a model is fit for.
mod reliance;
/// A recording answers only what would come out again.
mod replay;
/// Sweeps whose cells share a run: rows that influence each other.
mod rows;
/// Shapes and numbers are checked.
mod shapes;
/// A skipped module keeps its state.
mod skip;
/// Texts that were changed at random.
mod text;

#[global_allocator]
static COUNTING: hookpoint_counting::Counting = hookpoint_counting::Counting;
