//! Tests of the command from outside. The rules of annotation have theirs in the crate `hookpoint-annotate`.
//!
//! - `corpus`: all of candle-transformers
//! - `command`: the binary, as a user meets it
//! - `safety`: what a write that fails, a link, or a change in between does to the files
//! - `folders`: what is read of a folder, and what is left alone
//! - `streams`: standard input, standard output, and files of any size
//! - `look`, `points`, `cache`: the subcommands of these names
//! - `sweeps`: `patch`, `ablate`, `attribute`; `writing`: `steer`, `generate`; `shells`: completions, man pages, `profile`;
//!   `sae`: its own subcommands
//! - `output`: colours, pipes, full disks, Ctrl-C
//! - `schemas`: what `--json` prints is what the schemas say
//!
//! `place` is the folder that they run the command in.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test is a panic")]

mod cache;
mod command;
mod corpus;
mod folders;
mod look;
mod output;
mod place;
mod points;
mod sae;
mod safety;
mod schemas;
mod shells;
mod streams;
mod sweeps;
mod writing;
