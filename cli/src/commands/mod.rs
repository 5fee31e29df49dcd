//! The subcommands, one file each.
//!
//! Such a file has the arguments as a struct, with the texts of `--help`, and `run`, which does it. It is listed here
//! three times: as a module, as a [`Command`], and in [`Command::run`].

pub mod annotate;
pub mod harvest;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// What the command `hookpoint` can do.
#[derive(Subcommand)]
pub enum Command {
    /// Add hookpoint's annotations to Rust source that somebody else wrote
    ///
    /// Modules get `#[derive(AutoHook)]`, their `impl` blocks and functions that are given tensors `#[auto_hook]`,
    /// structs that carry tensors out of forward code `#[derive(HookValue)]`, and every file that needs it a
    /// `use hookpoint::..`. All the rest stays as it is, byte for byte, and what is annotated already is left
    /// alone.
    Annotate(annotate::Args),
    /// Compute activations of a corpus, here or on many machines, and store them
    Harvest(harvest::Args),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    ///
    /// If it cannot be done; the error says why, and what to do instead.
    pub fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Annotate(args) => annotate::run(args),
            Self::Harvest(args) => Ok(harvest::run(args)),
        }
    }
}
