//! Where the time of a forward pass goes, module by module and operation by operation:
//!
//! ```sh
//! cargo run --release --example profile
//! cargo run --release --example profile -- --runs 20 --trace trace.json   # open it in ui.perfetto.dev
//! cargo run --release --example profile -- --model path/to/gpt2 --prompt "The keys to the cabinet"
//! ```
//!
//! All of it is a listener: `plan.listen(&mut profile)?`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::builder::RangedU64ValueParser;
use clap::Parser;
use hookpoint::listen::Profile;
use hookpoint_examples::{exit, ModelArgs, Screen, Subject, Task};
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;

/// Measures where the time of a model's runs goes.
#[derive(Parser, Clone, Debug)]
#[command(name = "profile")]
struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// What the model is given
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "When Mary and John went to the store, John gave a drink to"
    )]
    prompt: String,

    /// How many runs are measured, after one that is not
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    runs: usize,

    /// Also write every call and operation, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// What was measured.
struct Measured {
    model: String,
    profile: Profile,
}

impl Task for &Args {
    type Output = Measured;

    fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<Measured> {
        let ids = subject.ids(&subject.encode(&self.prompt, 0)?)?;
        let model = &subject.model;
        let mut profile = Profile::new();
        // The first run touches memory that later ones have warm.
        model.run(|m| m.logits(&ids))?;
        let plan = model.plan().listen(&mut profile)?;
        for _ in 0..self.runs {
            plan.run(|m| m.logits(&ids))?;
        }
        drop(plan);
        Ok(Measured { model: subject.name.clone(), profile })
    }
}

fn main() -> ExitCode {
    exit(run(&Args::parse(), &Screen::of_stdout()))
}

fn run(args: &Args, screen: &Screen) -> Result<()> {
    let measured = args.model.run(args)?;
    if let Some(path) = &args.trace {
        std::fs::write(path, measured.profile.trace())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(io::stdout().write_all(text(args, &measured, screen).as_bytes())?)
}

fn text(args: &Args, Measured { model, profile }: &Measured, screen: &Screen) -> String {
    let mut text = screen.opening(model) + "\n";
    let what = format!("{} runs of {:?}", args.runs, args.prompt);
    text += &screen.heading("Time", &format!("{what}. Own time first: without what is inside."));
    text += &profile.to_string();
    text.push('\n');
    if let Some(path) = &args.trace {
        let path = path.display().to_string();
        text += &screen.note(&format!("every call, in {path}: open it in ui.perfetto.dev"));
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn args(list: &[&str]) -> Args {
        Args::try_parse_from(["profile"].into_iter().chain(list.iter().copied())).unwrap()
    }

    #[test]
    fn every_module_of_the_model_is_in_the_tree_and_own_times_add_up() {
        let args = args(&["--runs", "2"]);
        let measured = args.model.run(&args).unwrap();
        let names: Vec<&str> = measured.profile.entries().map(|entry| entry.name()).collect();
        for name in ["blocks.0.attn", "blocks.2.mlp", "unembed"] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        let own: std::time::Duration = measured.profile.entries().map(|entry| entry.own()).sum();
        assert_eq!(own, measured.profile.total());
        assert_eq!(measured.profile.runs(), 2);
        let text = text(&args, &measured, &Screen::plain(100));
        assert!(text.contains("blocks.0.attn"), "{text}");
    }

    #[test]
    fn the_trace_is_a_file_that_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        run(&args(&["--runs", "1", "--trace", path.to_str().unwrap()]), &Screen::plain(100)).unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert!(events
            .iter()
            .any(|event| event["name"] == "blocks.1.mlp" && event["dur"].as_f64() > Some(0.)));
    }
}
