//! Sweeps and replay against one run after the other through the whole model.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Models that count how often their parts run.
mod models;

/// What is replayed, and what must not be.
mod replay;

/// Sweeps over models of our own.
mod grids;

/// Cells that are sets of patches.
mod sets;

/// Models whose forward takes `&mut self`.
mod exclusive;

/// Sweeps over the bundled models.
mod bundled;

/// From a sender to receivers, against two plain runs for each.
mod path;

/// TransformerLens's grids, which `scripts/fixtures/sweeps.py` has put into `tests/fixtures/sweeps`.
mod parity;

/// A model with something between its layers that may look at several rows.
mod mixed;

/// Rows that influence each other in such a model.
mod rows;

/// Whole models whose rows meet: without a batch, in training, in one of several branches.
mod meeting;

/// Rows that are by themselves, though they may not look so.
mod apart;

/// What the error says, which sweeps are checked, and numbers that are none.
mod refusals;

/// Mistakes, and models that cannot be swept over.
mod mistakes;
