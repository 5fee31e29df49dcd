//! The `hookpoint` command.
//!
//! Exit codes: 0 done, 1 the answer is no (`annotate --check` found something to annotate), 2 an error.

use std::process::ExitCode;

use clap::Parser;
use hookpoint_cli::commands::Command;
use hookpoint_cli::render;

/// Hook points for Candle models.
#[derive(Parser)]
#[command(name = "hookpoint", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(code) => code,
        Err(error) => {
            render::error::print(&error);
            ExitCode::from(2)
        }
    }
}
