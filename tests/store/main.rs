//! Activation stores: what is written and read back, writers that are killed, and files that are wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// A model, a corpus, and stores made of them.
mod corpus;

/// What a store holds is what the model computes.
mod record;

/// Writers that end early and go on, also with SIGKILL.
mod resume;

/// Reading: order, epochs, positions.
mod read;

/// Stores that are damaged, or want to be continued with something else.
mod bad_input;
