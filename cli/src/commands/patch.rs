//! `hookpoint patch`: which activations of the prompt, put into the corrupted one, bring the answer back.

use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::{bail, Context, Result};
use hookpoint_interp::lens::Target;
use hookpoint_interp::sweep::transformer::{self as sweeps, LogitMetric};
use hookpoint_interp::{Sweep, Transformer};
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};

use crate::args::{ModelArgs, PartName, PartsArgs, QuestionArgs};
use crate::map::{Format, Map, Maps};
use crate::render::bar::Bar;

/// The arguments of `hookpoint patch`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint patch
  hookpoint patch --prompt \"Anna and Bob ..\" --corrupt \"Anna and Eve ..\" --part resid,head
  hookpoint patch model.gguf --prompt \"..\" --corrupt \"..\" --part head --cells each --csv > heads.csv
  hookpoint patch --points \"blocks.*.mlp.hook_post[:, -1, *]\" --json | jq '.maps[0].cells | max_by(.recovered)'

The corrupted prompt is run with one activation of the prompt put into it, cell by cell.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    question: QuestionArgs,

    #[command(flatten)]
    parts: PartsArgs,

    #[command(flatten)]
    format: Format,
}

/// Patches, and prints what it did.
///
/// # Errors
///
/// If the model cannot be loaded or given the prompts.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.model.run(args)?.print(args.format)?;
    Ok(ExitCode::SUCCESS)
}

impl Task for &Args {
    type Output = Result<Maps>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<Maps> {
        let question = self.question.ask(&subject)?;
        let Some(corrupted) = question.corrupted() else {
            bail!("patching needs a second prompt\n  give one of as many tokens that leads elsewhere, with --corrupt");
        };
        let (clean, corrupted) = (subject.ids(question.prompt())?, subject.ids(corrupted)?);
        let model = &subject.model;
        let target = Target::token(question.answer()).against(question.wrong());
        let metric = LogitMetric::of(&**model, target)?;
        let (mut maps, bar) = (Maps::new(&subject, "patch", &question), Bar::new());
        let mut add = |name: &str, sweep: Sweep<'_, M>| -> Result<()> {
            let sweep = sweep.progress(|progress| {
                bar.show("patching", name, progress.done, progress.total);
                ControlFlow::Continue(())
            });
            let found = metric.patch(sweep, &clean, &corrupted)?;
            maps.clean = found.clean.unwrap_or(f64::NAN);
            maps.corrupted = Some(found.baseline);
            maps.maps.push(Map::of(name, &found));
            Ok(())
        };
        for pattern in &self.parts.points {
            add(pattern, Sweep::over(model, pattern.as_str())?)?;
        }
        if self.parts.points.is_empty() {
            for part in self.parts.or(&[PartName::Resid, PartName::Attn, PartName::Mlp, PartName::Head]) {
                let sweep = sweeps::over(model, part.part(), self.parts.cells_of(part));
                add(part.title(), sweep.with_context(|| format!("in the {}", part.title()))?)?;
            }
        }
        if maps.corrupted == Some(maps.clean) {
            bail!(
                "both prompts give the same metric, {:+.4}, so there is nothing to bring back\n  choose a corrupted \
                 prompt that leads elsewhere, or other tokens with --answer and --wrong",
                maps.clean
            );
        }
        Ok(maps)
    }
}
