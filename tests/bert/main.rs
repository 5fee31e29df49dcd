//! BERT against Hugging Face transformers and TransformerLens, whose numbers `scripts/fixtures/bert.py` has put
//! into `tests/fixtures/bert`; vectors of sentences; and what happens with bad input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The checkpoints, and what is expected of them.
mod fixtures;

/// Modules, hidden states, patterns, gradients and points are those of the others.
mod parity;

/// Tokens, pairs, vectors of sentences.
mod sentences;

/// Files, configs and texts that are wrong.
mod bad_input;
