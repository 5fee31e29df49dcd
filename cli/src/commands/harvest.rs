//! `hookpoint harvest`: the commands of `hookpoint-harvest`, for the models that come with hookpoint.

use std::process::ExitCode;

use hookpoint_harvest::program::{execute, load_bundled, Command};

/// What to do with a harvest.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Does it. The exit codes are those that engines understand.
pub fn run(args: &Args) -> ExitCode {
    execute(&args.command, &load_bundled, &["harvest"]).into()
}
