//! A transformer taken apart, offline, in one command, as a page to browse:
//!
//! ```sh
//! cargo run --release --example gpt2
//! cargo run --release --example gpt2 -- --out gpt2.html    # a page to browse
//! cargo run --release --example gpt2 -- --json             # all of it as numbers
//! cargo run --release --example gpt2 -- --prompt "Monday Tuesday Wednesday"
//! cargo run --release --example gpt2 -- --model path/to/gpt2 --top 10
//! cargo run --release --example gpt2 -- --model path/to/SmolLM2-135M-Instruct.gguf
//! ```
//!
//! `hookpoint_interp::look` computes everything, for any `Transformer`. It is what `hookpoint look` shows in a
//! terminal; `page` makes one file for the browser of it.

mod args;
mod page;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use hookpoint_cli::render;
use hookpoint_examples::{exit, Screen};
use hookpoint_interp::look::Findings;

use args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    exit(run(&args, &Screen::of_stdout(), &mut io::stdout()))
}

/// Looks into the model, writes the page if one is wanted, and shows the rest on `out`.
fn run(args: &Args, screen: &Screen, out: &mut dyn Write) -> Result<()> {
    let findings = look(args)?;
    if let Some(path) = &args.out {
        std::fs::write(path, page::text(&findings)?)
            .with_context(|| format!("cannot write the page to {}", path.display()))?;
    }
    let text = match args.json {
        true => serde_json::to_string(&findings)? + "\n",
        false => render::look::text(&findings, args.top, screen) + "\n" + &closing(&findings, args, screen),
    };
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn look(args: &Args) -> Result<Findings> {
    hookpoint_cli::commands::look::find(&args.model.for_command(), &args.question, args.top)
}

fn closing(findings: &Findings, args: &Args, screen: &Screen) -> String {
    let points = findings.points.len();
    let mut lines = vec![format!(
        "All of this was read and changed through {points} hook points, such as `blocks.0.attn.hook_pattern`."
    )];
    match &args.out {
        Some(path) => lines.push(format!("The page is in {}.", path.display())),
        None => {
            lines.push("`--out gpt2.html` makes a page to browse, `--json` gives the numbers.".to_string())
        }
    }
    let lines = lines.iter().flat_map(|line| render::words::wrapped(line, screen.width));
    lines.map(|line| screen.dim(&line) + "\n").collect()
}
