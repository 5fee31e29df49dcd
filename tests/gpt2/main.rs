//! GPT-2 against Hugging Face transformers and TransformerLens, whose numbers `scripts/fixtures/gpt2.py`
//! has put into `tests/fixtures/gpt2`; generation; and what happens with bad input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The checkpoints, what is expected of them, and how numbers are compared.
mod fixtures;

/// Logits, modules, hidden states, patterns, loss and greedy texts are those of transformers.
mod parity;

/// Gradients at hidden states, patterns and modules are those of PyTorch.
mod gradients;

/// Points have the names, shapes and values that TransformerLens gives them.
mod names;

/// Generation: KV cache, padding, sampling, hooks at every step.
mod generation;

/// Files, configs and prompts that are wrong.
mod bad_input;

/// The synthetic English that the embedded model was trained on.
mod english;

/// The embedded model does its tasks, and the tools find how.
mod embedded;

/// A hub on this machine.
#[cfg(feature = "hub")]
mod hub;
