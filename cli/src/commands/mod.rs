//! The subcommands, one file each.
//!
//! Such a file has the arguments as a struct, with the texts of `--help`, and `run`, which does it. It is listed here
//! three times: as a module, as a [`Command`], and in [`Command::run`].

pub mod ablate;
pub mod annotate;
pub mod attribute;
pub mod cache;
pub mod completions;
pub mod generate;
pub mod harvest;
pub mod look;
pub mod patch;
pub mod points;
pub mod profile;
pub mod sae;
pub mod schema;
pub mod steer;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::render::colour::Colour;

/// Looks into language models: what they say next and why, from the command line.
///
/// Without MODEL, the small GPT-2 that comes with hookpoint is meant: no files, no network.
#[derive(Parser)]
#[command(
    name = "hookpoint",
    version,
    after_help = "\
Examples:
  hookpoint look                                       the embedded model, taken apart for a prompt
  hookpoint look model.gguf --prompt \"The capital of France is\"
  hookpoint points --match \"blocks.*.attn:pattern\"     which points a pattern selects
  hookpoint look --json | jq .next

Exit codes: 0 done, 1 the answer is no (annotate --check, points --match), 2 an error, 130 ended by Ctrl-C."
)]
pub struct Cli {
    /// When output has colours; NO_COLOR turns them off, too
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Colour,

    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

/// What the command `hookpoint` can do.
#[derive(Subcommand)]
pub enum Command {
    /// Take a model apart for a prompt: next tokens, logit lens, heads, patching
    Look(look::Args),

    /// List the points of a model, or what a pattern selects of them
    Points(points::Args),

    /// Keep activations of one or many prompts in safetensors files
    Cache(cache::Args),

    /// Put activations of one prompt into a run of another, cell by cell: what brings the answer back?
    Patch(patch::Args),

    /// Take parts away, cell by cell: what is missed?
    Ablate(ablate::Args),

    /// Estimate with gradients what patching or ablating would show
    Attribute(attribute::Args),

    /// Make a direction of two sets of prompts, keep it, and add it while the model writes
    Steer(steer::Args),

    /// Continue texts, as they are or steered
    Generate(generate::Args),

    /// Measure where the time goes, module by module
    Profile(profile::Args),

    /// Train, judge and look into sparse autoencoders
    #[command(subcommand)]
    Sae(sae::Command),

    /// Print the JSON schema of what a command prints with --json
    Schema(schema::Args),

    /// Print what a shell needs to complete this command
    Completions(completions::Args),

    /// Print the man page
    Man(completions::ManArgs),

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
            Self::Look(args) => look::run(args),
            Self::Points(args) => points::run(args),
            Self::Cache(args) => cache::run(args),
            Self::Patch(args) => patch::run(args),
            Self::Ablate(args) => ablate::run(args),
            Self::Attribute(args) => attribute::run(args),
            Self::Steer(args) => steer::run(args),
            Self::Generate(args) => generate::run(args),
            Self::Profile(args) => profile::run(args),
            Self::Sae(command) => sae::run(command),
            Self::Completions(args) => completions::run(args),
            Self::Man(args) => completions::man(args),
            Self::Schema(args) => schema::run(args),
            Self::Annotate(args) => annotate::run(args),
            Self::Harvest(args) => Ok(harvest::run(args)),
        }
    }
}
