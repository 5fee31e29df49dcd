//! Harvests: planned, computed by workers that fail in every way, sealed and read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// A corpus, plans over it, and what is compared.
mod corpus;

/// Storage that fails in ways that a test chooses.
mod faulty;

/// The same bytes, whoever computes them and in which order.
mod same;

/// Killed, overtaken, and disturbed by their storage: workers.
mod workers;

/// Refused: other models, other corpora, other programs, damaged files.
mod refused;

/// The commands.
mod commands;

/// A sealed store as it is read.
mod read;
