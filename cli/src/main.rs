//! The `hookpoint` command.
//!
//! Exit codes: 0 done, 1 the answer is no (`annotate --check` found something to annotate, `points --match` selects
//! nothing), 2 an error, 130 ended by Ctrl-C.

use std::alloc::System;
use std::process::ExitCode;

use clap::Parser;
use hookpoint::memory::CountingAllocator;
use hookpoint_cli::commands::Cli;
use hookpoint_cli::{pending, render};

/// It counts, so that sweeps know what their runs take.
#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator::new(System);

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.color.apply();
    match pending::handle_interrupts().and_then(|()| cli.command.run()) {
        Ok(code) => code,
        Err(error) => {
            render::error::print(&error);
            ExitCode::from(2)
        }
    }
}
