//! Sparse autoencoders: against SAELens, whose numbers `scripts/fixtures/sae.py` has put into
//! `tests/fixtures/sae`; spliced into models; what is measured of them; and bad input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Every value of every architecture is SAELens' own.
mod parity;

/// In a running model, with and without the error term, with edited features.
mod splice;

/// Planted features are found; a stopped training goes on bit for bit.
mod training;

/// L0, explained variance, densities, losses.
mod metrics;

/// Files and configs that are wrong.
mod bad_input;
