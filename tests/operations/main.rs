//! Gradients of operations: right, there where candle has none, and none for what is frozen.
//!
//! On the CPU, since finite differences want double precision.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Several lists are gone through by one index, and inputs are a list even where there is one.
#![allow(clippy::needless_range_loop, clippy::cloned_ref_to_slice_refs)]

/// Gradients against finite differences.
mod check;

/// Operations and layers in annotated models.
mod annotated;

/// What is taken for granted about the inside of candle.
mod assumptions;

/// Functions that annotated code calls.
mod callees;

/// What a frozen operand costs.
mod frozen;
/// The functions of `hookpoint_grad`.
mod functions;
/// Candle's layers.
mod layers;
/// Closures, trait objects, types that are not annotated.
mod opaque;
