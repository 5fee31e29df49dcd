//! `hookpoint completions` and `hookpoint man`: what shells and `man` know of the command.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use crate::pending::Pending;
use crate::render;

/// The arguments of `hookpoint completions`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint completions bash > ~/.local/share/bash-completion/completions/hookpoint
  hookpoint completions zsh > ~/.zfunc/_hookpoint
  hookpoint completions fish > ~/.config/fish/completions/hookpoint.fish")]
pub struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints what a shell needs to complete the command.
///
/// # Errors
///
/// If standard output cannot be written to.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hookpoint", &mut script);
    render::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// The arguments of `hookpoint man`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint man | man -l -
  hookpoint man --out ~/.local/share/man/man1      a page for the command, and one for each subcommand")]
pub struct ManArgs {
    /// Write pages for the command and every subcommand into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Prints the man page, or writes all of them.
///
/// # Errors
///
/// If they cannot be written.
pub fn man(args: &ManArgs) -> Result<ExitCode> {
    let mut command = Cli::command();
    // Subcommands get their whole names.
    command.build();
    let Some(folder) = &args.out else {
        render::print(&page(command)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut all = vec![command];
    while let Some(command) = all.pop() {
        all.extend(command.get_subcommands().filter(|one| one.get_name() != "help").cloned());
        let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
        let path = folder.join(format!("{name}.1"));
        let pending = Pending::file(&path)?;
        std::fs::write(pending.path(), page(command)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        pending.finish()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(command: clap::Command) -> Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
