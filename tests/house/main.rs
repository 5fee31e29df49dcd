//! Where code may live: which crate may use which, and which room of the engine may use which. ARCHITECTURE.md has the
//! table of the crates.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The crates: who uses whom, on which surface, with which features; fit to be published.
mod crates;
/// Which module uses which, read from the source.
mod modules;
/// What a crate exports, read from its source.
mod public;
/// The rooms of the engine, from bottom to top.
mod rooms;
/// The public surface, pinned.
mod surface;
