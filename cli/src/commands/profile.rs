//! `hookpoint profile`: where the time of a model goes.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use hookpoint::listen::Profile;
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};
use serde::Serialize;

use crate::args::{ModelArgs, PROMPT};
use crate::pending;
use crate::render::{self, bar::Bar, screen::Screen};

/// The arguments of `hookpoint profile`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint profile
  hookpoint profile --runs 20 --trace trace.json         open it in ui.perfetto.dev
  hookpoint profile model.gguf --quantized --prompt \"The keys to the cabinet\"
  hookpoint profile --json | jq -r '.entries[] | [.own, .name] | @tsv' | sort -n")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// What the model is given
    #[arg(long, value_name = "TEXT", default_value = PROMPT)]
    prompt: String,

    /// How many runs are measured, after one that is not
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    runs: u16,

    /// Also write every call and operation, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Where the time went.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Profiled {
    /// The model.
    pub model: String,
    /// What it was given.
    pub prompt: String,
    /// How many runs were measured.
    pub runs: usize,
    /// How long they took together, in seconds.
    pub total: f64,
    /// Modules and operations, each before what is inside it.
    pub entries: Vec<Timed>,
}

/// A module or an operation, over all runs.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Timed {
    /// Its name.
    pub name: String,
    /// `run`, `module` or `operation`.
    pub what: String,
    /// How often it was called.
    pub calls: usize,
    /// In seconds, without what is inside it.
    pub own: f64,
    /// In seconds, with what is inside it.
    pub whole: f64,
    /// How many bytes its results have.
    pub output_bytes: usize,
    /// By how many bytes memory had grown when it was done.
    pub grown: Option<i64>,
}

/// Measures.
///
/// # Errors
///
/// If the model cannot be loaded or given the prompt, or the trace cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (model, profile) = args.model.run(args)?;
    if let Some(path) = &args.trace {
        pending::write(path, &profile.trace())?;
    }
    let entry = |entry: &hookpoint::listen::Entry| Timed {
        name: entry.name().to_string(),
        what: format!("{:?}", entry.what()).to_lowercase(),
        calls: entry.calls(),
        own: entry.own().as_secs_f64(),
        whole: entry.whole().as_secs_f64(),
        output_bytes: entry.output_bytes(),
        grown: entry.grown(),
    };
    let profiled = Profiled {
        model,
        prompt: args.prompt.clone(),
        runs: profile.runs(),
        total: profile.total().as_secs_f64(),
        entries: profile.entries().map(entry).collect(),
    };
    if args.json {
        render::json(&profiled)?;
        return Ok(ExitCode::SUCCESS);
    }
    let screen = Screen::of_stdout();
    let what =
        format!("{} runs of {:?}. Own time first: without what is inside.", profiled.runs, profiled.prompt);
    let mut text = screen.opening(&profiled.model) + "\n" + &screen.heading("Time", &what);
    text += &profile.to_string();
    text.push('\n');
    if let Some(path) = &args.trace {
        text += &screen.note(&format!("every call, in {}: open it in ui.perfetto.dev", path.display()));
    }
    render::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl Task for &Args {
    type Output = Result<(String, Profile)>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Self::Output {
        let ids = subject.ids(&subject.encode(&self.prompt, 0)?)?;
        let (model, bar) = (&subject.model, Bar::new());
        bar.begin("running", usize::from(self.runs));
        let mut profile = Profile::new();
        // The first run touches memory that later ones have warm.
        model.run(|m| m.logits(&ids))?;
        let plan = model.plan().listen(&mut profile)?;
        for _ in 0..self.runs {
            bar.run();
            plan.run(|m| m.logits(&ids))?;
        }
        drop(plan);
        Ok((subject.name.clone(), profile))
    }
}
