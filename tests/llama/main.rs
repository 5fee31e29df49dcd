//! The Llama family against Hugging Face transformers and TransformerLens, whose numbers
//! `scripts/fixtures/llama.py` has put into `tests/fixtures/llama`; generation; and what happens with bad input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The checkpoints, and what is expected of them.
mod fixtures;

/// Logits, modules, hidden states, patterns, loss and greedy texts are those of transformers.
mod parity;

/// Points have the names, shapes and values that TransformerLens gives them; lenses.
mod names;

/// Generation: KV cache, padding, windows, hooks at every step.
mod generation;

/// Files, configs and prompts that are wrong.
mod bad_input;

/// GGUF files: models, tokenizers.
mod gguf;

/// GGUF files that are wrong.
mod bad_gguf;
