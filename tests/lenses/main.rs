//! The lenses against TransformerLens, whose numbers `scripts/fixtures/lenses.py` has put into
//! `tests/fixtures/lenses`; ablation, steering and patching of models; and what happens with bad input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The checkpoints, and how numbers are compared.
#[allow(dead_code, unused_imports)]
#[path = "../gpt2/fixtures.rs"]
mod fixtures;

/// What TransformerLens found in them.
mod expected;

/// Logit lens, direct logit attribution and head detectors are those of TransformerLens.
mod parity;

/// The parts of a logit add up to it, whatever the target.
mod sums;

/// A transformer of another kind, with names of its own.
mod other;

/// Ablation, steering vectors, activation patching.
mod changes;

/// How results are written out.
mod shown;

/// Targets, places, sequences and patterns that are wrong.
mod bad_input;
