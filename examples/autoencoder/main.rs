//! A sparse autoencoder for the embedded GPT-2, trained and looked at in one command:
//!
//! ```sh
//! cargo run --release --example autoencoder
//! cargo run --release --example autoencoder -- --out features.html    # a page to browse
//! cargo run --release --example autoencoder -- --save my-sae          # in the form of SAELens
//! ```
//!
//! `training` trains it on activations of a model that runs meanwhile, `findings` looks for what its features stand
//! for, `terminal` and `page` show that.

mod args;
mod findings;
mod page;
mod terminal;
#[cfg(test)]
mod tests;
mod texts;
mod training;

use std::io::{self, Write};

use anyhow::{Context, Result};
use candle_core::Device;
use clap::Parser;
use hookpoint::Hooked;
use hookpoint_examples::screen::Screen;
use hookpoint_models::gpt2::Gpt2;

use args::Args;
use findings::Findings;

fn main() -> Result<()> {
    let args = Args::parse();
    let findings = look(&args)?;
    let text = terminal::text(&findings, &args, &Screen::of_stdout());
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has seen enough: `autoencoder | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Trains, looks, and writes what is to be written.
fn look(args: &Args) -> Result<Findings> {
    let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
    let (sae, _) = training::train(&model, args)?;
    if let Some(folder) = &args.save {
        sae.save(folder)?;
    }
    let findings = Findings::of(&model, sae, args)?;
    if let Some(path) = &args.out {
        std::fs::write(path, page::text(&findings)?)
            .with_context(|| format!("cannot write the page to {}", path.display()))?;
    }
    Ok(findings)
}
