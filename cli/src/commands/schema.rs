//! `hookpoint schema`: what `--json` prints, for programs that read it.

use std::process::ExitCode;

use anyhow::{bail, Result};

use crate::{render, schema};

/// The arguments of `hookpoint schema`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The command, as in `look` [default: list them]
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

/// Prints a schema, or the names of all.
///
/// # Errors
///
/// If there is no such command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let all = schema::all();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let Some(command) = &args.command else {
        render::print(&(names.join("\n") + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    };
    let Some((_, schema)) = all.iter().find(|(name, _)| name == command) else {
        bail!("`{command}` is no command with --json\n  they are {}", names.join(", "));
    };
    render::print(&(serde_json::to_string_pretty(schema)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
