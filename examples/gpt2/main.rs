//! A transformer taken apart, offline, in one command:
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
//! `findings` computes everything, on hookpoint's public surface and for any `Transformer`. `terminal`, `json` and
//! `page` show what was found.

mod args;
mod findings;
mod json;
mod page;
mod question;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use hookpoint_examples::{exit, Progress, Screen, Subject, Task};
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;

use args::Args;
use findings::Findings;
use question::Question;

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
        true => json::text(&findings)?,
        false => terminal::text(&findings, args, screen),
    };
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn look(args: &Args) -> Result<Findings> {
    args.model.run(Look(args))
}

/// The same for every transformer.
struct Look<'a>(&'a Args);

impl Task for Look<'_> {
    type Output = Findings;

    fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<Findings> {
        let question = Question::of(subject, self.0)?;
        Findings::of(subject, &question, self.0.top, &Progress::new())
    }
}
