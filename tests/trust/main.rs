//! Attacks: small honest models that each break one assumption. What comes out is right, or an error that says what to do.
//!
//! One module for each promise of `docs/guarantees.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The models and tensors of the engine's tests.
#[path = "../engine/models.rs"]
#[allow(dead_code)]
mod models;

/// A cache is a photograph: what was cached does not change.
mod photograph;

/// A patch is the user's: the model never writes to it.
mod patch;

/// A pattern reaches all that it selects, or says so.
mod reached;

/// A recording answers only what would come out again.
mod replay;

/// Shapes and numbers are checked.
mod shapes;

/// A skipped module keeps its state.
mod skip;
