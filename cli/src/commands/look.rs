//! `hookpoint look`: a model taken apart for a prompt.

use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use hookpoint_interp::look::{Findings, Look};
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};

use crate::args::{ModelArgs, QuestionArgs};
use crate::render::bar::Bar;
use crate::render::{self, screen::Screen};

/// The arguments of `hookpoint look`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint look
  hookpoint look --prompt \"Monday Tuesday Wednesday\" --top 10
  hookpoint look --prompt \"Anna and Bob ..\" --corrupt \"Anna and Eve ..\"
  hookpoint look path/to/gpt2 --answer Mary --wrong John
  hookpoint look path/to/model.gguf --json > findings.json")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    question: QuestionArgs,

    /// How many tokens and heads are shown in lists
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=50))]
    top: usize,

    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
}

/// Looks, and prints what was found.
///
/// # Errors
///
/// If the model cannot be loaded or given the prompt.
pub fn run(args: &Args) -> Result<ExitCode> {
    let findings = find(&args.model, &args.question, args.top)?;
    if args.json {
        render::json(&findings)?;
    } else {
        render::print(&render::look::text(&findings, args.top, &Screen::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is found in a model for a question; lists have `top` tokens.
///
/// # Errors
///
/// If the model cannot be loaded or given the prompt.
pub fn find(model: &ModelArgs, question: &QuestionArgs, top: usize) -> Result<Findings> {
    model.run(Find { question, top })
}

struct Find<'a> {
    question: &'a QuestionArgs,
    top: usize,
}

impl Task for Find<'_> {
    type Output = Result<Findings>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<Findings> {
        let question = self.question.ask(&subject)?;
        let bar = Bar::new();
        let look = Look::into(&subject.model)
            .name(&subject.name)
            .context(subject.model.n_positions())
            .top(self.top)
            .text(|id| subject.text(id))
            .progress(|done, all| {
                bar.show("patching", "", done, all);
                ControlFlow::Continue(())
            });
        Ok(look.ask(&question)?)
    }
}
