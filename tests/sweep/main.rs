//! Sweeps and replay against one run after the other through the whole model.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Models that count how often their parts run.
mod models;

/// What is replayed, and what must not be.
mod replay;

/// Sweeps over models of our own.
mod grids;

/// Sweeps over the bundled models.
mod bundled;

/// Mistakes, and models that cannot be swept over.
mod mistakes;
