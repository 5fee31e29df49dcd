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

/// Models whose rows influence each other.
mod rows;

/// Mistakes, and models that cannot be swept over.
mod mistakes;
