//! `hookpoint generate`: texts from a model, as they are or steered.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use hookpoint_interp::{SteeringVector, Transformer};
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};
use serde::Serialize;

use crate::args::{At, ModelArgs, Past, PromptsArgs, WritingArgs, PROMPT};
use crate::render::{self, screen::Screen, words};
use crate::steering;

/// The arguments of `hookpoint generate`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint generate --prompt \"Monday Tuesday Wednesday\" --tokens 3
  hookpoint generate --prompt \"After Nora and Hugo went to\" --temperature 0.9 --top-k 20 --seed 3
  hookpoint generate model.gguf --prompts questions.jsonl --field question --json > answers.jsonl
  hookpoint generate --steer happy.safetensors --strength 3 --at new --prompt \"Today\"

Prompts of a file are continued one after another, each in a line of its own: with --json, a JSON document.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// What the text begins with
    #[arg(long, value_name = "TEXT", conflicts_with = "prompts")]
    prompt: Option<String>,

    #[command(flatten)]
    prompts: PromptsArgs,

    #[command(flatten)]
    writing: WritingArgs,

    /// Add the direction in this file, as `hookpoint steer --out` writes it
    #[arg(long, value_name = "FILE")]
    steer: Option<PathBuf>,

    /// How many times the direction is added
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1.,
        allow_negative_numbers = true,
        requires = "steer"
    )]
    strength: f64,

    /// At which tokens it is added: every, prompt, new, or steps such as 1..4
    #[arg(long, value_name = "STEPS", default_value = "every", requires = "steer")]
    at: At,

    /// What steps remember
    #[arg(long, value_enum, default_value_t)]
    past: Past,

    /// Print a JSON document in a line for each prompt
    #[arg(long)]
    json: bool,
}

/// A text, and what was added to it.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Generated {
    /// The model.
    pub model: String,
    /// The line of the prompt in its file.
    pub line: Option<usize>,
    /// What it began with.
    pub prompt: String,
    /// What the model wrote.
    pub added: String,
    /// The tokens of the prompt and what was written.
    pub tokens: Vec<u32>,
    /// How many of them are the prompt.
    pub prompt_tokens: usize,
    /// Whether the text ended by itself.
    pub ended: bool,
}

/// Generates.
///
/// # Errors
///
/// If the model cannot be loaded or given a prompt, or standard output cannot be written to.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.model.run(args)?;
    Ok(ExitCode::SUCCESS)
}

impl Task for &Args {
    type Output = Result<()>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<()> {
        let vector =
            self.steer.as_deref().map(|path| steering::load(path, subject.model.device())).transpose()?;
        let Some(mut prompts) = self.prompts.open()? else {
            let prompt = self.prompt.as_deref().unwrap_or(PROMPT);
            return self.print(&self.write(&subject, vector.as_ref(), prompt, None)?);
        };
        while let Some(prompt) = prompts.next().transpose()? {
            let written = self.write(&subject, vector.as_ref(), &prompt.text, Some(prompt.line));
            self.print(&written.with_context(|| format!("in {}", prompts.place(&prompt)))?)?;
        }
        Ok(())
    }
}

impl Args {
    fn write<M: LanguageModel + Transformer>(
        &self,
        subject: &Subject<M>,
        vector: Option<&SteeringVector>,
        prompt: &str,
        line: Option<usize>,
    ) -> Result<Generated> {
        let tokens = subject.encode(prompt, self.writing.tokens.saturating_sub(1))?;
        let generation = self.past.of(self.writing.generation());
        let mut plan = subject.model.plan();
        if let Some(vector) = vector {
            let hook = self.at.steps().limit(vector.hook(self.strength));
            plan = plan.hook(steering::point(vector)?.as_str(), hook)?;
        }
        let texts = plan.run(|m| m.generate(&[&tokens], &generation))?.output;
        let all = texts.into_iter().next().unwrap_or_default();
        let new = all.get(tokens.len()..).unwrap_or_default();
        Ok(Generated {
            model: subject.name.clone(),
            line,
            prompt: prompt.to_string(),
            added: subject.written(new)?,
            ended: new.last().is_some_and(|last| subject.model.ends().contains(last)),
            prompt_tokens: tokens.len(),
            tokens: all,
        })
    }

    fn print(&self, text: &Generated) -> Result<()> {
        if self.json {
            return render::json(text);
        }
        let screen = Screen::of_stdout();
        let line = format!("{}{}\n", words::visible(&text.prompt), screen.bold(&words::visible(&text.added)));
        Ok(render::print(&line)?)
    }
}
