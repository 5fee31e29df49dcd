//! Tests of the annotator from outside.
//!
//! - `rules`: one test per rule, on a few lines of source
//! - `golden`: whole files, before and after, with `\n` and with `\r\n`
//! - `corpus`: all of candle-transformers
//! - `command`: the binary, as a user meets it
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test is a panic")]

mod command;
mod corpus;
mod golden;
mod rules;
