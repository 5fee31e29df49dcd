//! Tests of the annotator from outside. The command has its own, and those on all of candle-transformers.
//!
//! - `rules`: one test per rule, on a few lines of source
//! - `objects`: traits behind trait objects
//! - `sources`: files and folders, as a build script uses them
//! - `golden`: whole files, before and after, with `\n` and with `\r\n`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test is a panic")]

mod golden;
mod objects;
mod rules;
mod sources;
