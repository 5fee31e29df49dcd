//! Gradients at every point: what they are, what hooks make of them, and what happens where there is none.
//!
//! The device comes from `HOOKPOINT_DEVICE` (`cpu`, `cuda:0`, `metal`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Finite differences at every point of a model.
mod finite;
/// The models that several modules use, and short ways to make tensors.
mod models;

/// The models of `hookpoint-models` in double precision.
mod bundled;
/// Every point of many models against finite differences.
mod differences;
/// Against candle's own backward on models with variables.
mod reference;

/// Hooks that see and change gradients, and those that see whole calls.
mod hooks;
/// Which points there are, and what is kept of their gradients.
mod points;
/// Together with hooks, patches and caches of the forward pass.
mod together;

/// What points contribute, against patching them.
mod attribution;

/// Every kind of error, and where gradients are lost.
mod errors;
/// Threads, panics, nested runs, memory.
mod robustness;
/// From the gradients of a run into candle's optimizers.
mod training;
