//! `hookpoint ablate`: what a model does without its parts.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, Context, Result};
use candle_core::Tensor;
use clap::ValueEnum;
use hookpoint::track::{Over, Tracker};
use hookpoint::HookCtx;
use hookpoint_interp::lens::Target;
use hookpoint_interp::look::Question;
use hookpoint_interp::sweep::transformer::{self as sweeps, LogitMetric};
use hookpoint_interp::sweep::SweepResult;
use hookpoint_interp::{ablate, Sweep, Transformer};
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};

use crate::args::{ModelArgs, PartName, PartsArgs, Prompts, QuestionArgs};
use crate::map::{Format, Map, Maps};
use crate::render::bar::Bar;

/// The arguments of `hookpoint ablate`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint ablate
  hookpoint ablate --part mlp --cells all --prompt \"The capital of France is\"
  hookpoint ablate --how resample --corrupt \"When Mary and John went to the store, Mary gave a drink to\"
  hookpoint ablate --how mean --means prompts.txt --part head --json")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    question: QuestionArgs,

    #[command(flatten)]
    parts: PartsArgs,

    /// What stands in the place of a part
    #[arg(long, value_enum, default_value_t)]
    how: How,

    /// For --how mean: a file of prompts, one in every line, over which the means are taken
    #[arg(long, value_name = "FILE")]
    means: Option<PathBuf>,

    #[command(flatten)]
    format: Format,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
enum How {
    /// Nothing
    #[default]
    Zero,
    /// What it is on average, over positions and the prompts of --means
    Mean,
    /// What it is with the corrupted prompt
    Resample,
}

/// Takes parts away, and prints what that did.
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
        self.check()?;
        let question = self.question.ask(&subject)?;
        let target = Target::token(question.answer()).against(question.wrong());
        let ablation = Ablation {
            args: self,
            metric: LogitMetric::of(&*subject.model, target)?,
            ids: subject.ids(question.prompt())?,
            subject: &subject,
            question: &question,
        };
        let method = match self.how {
            How::Zero => "ablate zero",
            How::Mean => "ablate mean",
            How::Resample => "ablate resample",
        };
        let (mut maps, bar) = (Maps::new(&subject, method, &question), Bar::new());
        let mut add = |name: &str, patterns: Vec<String>, sweep: Sweep<'_, M>| -> Result<()> {
            let sweep = sweep.progress(|progress| {
                bar.show("ablating", name, progress.done, progress.total);
                ControlFlow::Continue(())
            });
            let found = ablation.of(sweep, &patterns)?;
            maps.clean = found.baseline;
            maps.maps.push(Map::of(name, &found));
            Ok(())
        };
        for pattern in &self.parts.points {
            add(pattern, vec![pattern.clone()], Sweep::over(&subject.model, pattern.as_str())?)?;
        }
        if self.parts.points.is_empty() {
            for part in self.parts.or(&[PartName::Head, PartName::Mlp]) {
                let (library, cells) = (part.part(), self.parts.cells_of(part));
                let patterns = sweeps::patterns(&*subject.model, library, cells);
                let sweep = sweeps::over(&subject.model, library, cells);
                add(part.title(), patterns, sweep.with_context(|| format!("in the {}", part.title()))?)?;
            }
        }
        Ok(maps)
    }
}

impl Args {
    /// What goes with which way of ablation.
    fn check(&self) -> Result<()> {
        match (self.how, self.question.prompts().1, &self.means) {
            (How::Resample, None, _) => {
                bail!("--how resample needs a second prompt\n  give one with --corrupt")
            }
            (How::Mean, _, None) => {
                bail!("--how mean needs prompts to take means over\n  give a file with --means")
            }
            (How::Zero | How::Resample, _, Some(_)) => bail!("--means goes with --how mean only"),
            _ => Ok(()),
        }
    }
}

/// What an ablation needs, whichever part it is of.
struct Ablation<'a, M> {
    args: &'a Args,
    subject: &'a Subject<M>,
    question: &'a Question,
    metric: LogitMetric,
    ids: Tensor,
}

impl<M: LanguageModel + Transformer> Ablation<'_, M> {
    fn of(&self, sweep: Sweep<'_, M>, patterns: &[String]) -> Result<SweepResult> {
        Ok(match self.args.how {
            How::Zero => self.metric.edit(sweep, ablate::zero(), &self.ids)?,
            How::Mean => {
                let means = self.means(patterns)?;
                self.metric.edit(sweep, |ctx, value| at_all_positions(ctx, value, &means), &self.ids)?
            }
            How::Resample => {
                let other = self.subject.ids(self.question.corrupted().unwrap_or_default())?;
                let donors = self.subject.model.plan().cache(patterns)?.collect(|m| m.logits(&other))?;
                self.metric.edit(sweep, ablate::resample(&donors), &self.ids)?
            }
        })
    }

    /// The means at the points of these patterns, over all positions of all prompts.
    fn means(&self, patterns: &[String]) -> Result<Tracker> {
        let over: Vec<String> = patterns.iter().map(|pattern| with_all_positions(pattern)).collect();
        let mut means = Tracker::new().reduce(over, Over::Dims(vec![0, 1]))?;
        let Some(path) = &self.args.means else { bail!("--how mean needs --means") };
        let mut prompts = Prompts::open(path, None)?;
        let mut count = 0;
        while let Some(prompt) = prompts.next().transpose()? {
            let place = prompts.place(&prompt);
            let ids = self.subject.encode(&prompt.text, 0).with_context(|| format!("in {place}"))?;
            let ids = self.subject.ids(&ids)?;
            means.run(&self.subject.model, |m| m.logits(&ids))?;
            count += 1;
        }
        if count == 0 {
            bail!("there are no prompts in {}\n  write one in every line", path.display());
        }
        Ok(means)
    }
}

/// The pattern of the means for cells of another one: those of a position are over all of them, `a[:, *, *]` is given
/// `a[:, :, *]`.
fn with_all_positions(pattern: &str) -> String {
    let Some((point, index)) = pattern.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) else {
        return pattern.to_string();
    };
    let mut parts: Vec<&str> = index.split(',').map(str::trim).collect();
    if let Some(position) = parts.get_mut(1) {
        *position = ":";
    }
    while parts.last() == Some(&":") {
        parts.pop();
    }
    match parts.is_empty() {
        true => point.to_string(),
        false => format!("{point}[{}]", parts.join(", ")),
    }
}

/// The mean in the place of a value, which may be that of one position.
fn at_all_positions(ctx: &HookCtx<'_>, value: &Tensor, means: &Tracker) -> hookpoint::Result<Option<Tensor>> {
    let path = with_all_positions(ctx.path());
    let mean = means.stats(&path)?.mean().to_dtype(value.dtype())?.to_device(value.device())?;
    if !value.dims().ends_with(mean.dims()) {
        return Err(hookpoint::ErrorKind::Shape {
            point: path,
            what: "the mean".to_string(),
            expected: value.dims().to_vec(),
            found: mean.dims().to_vec(),
            remedy: "take means of values that have the same features at every position".to_string(),
        }
        .into());
    }
    Ok(Some(mean.broadcast_as(value.shape())?.contiguous()?))
}

#[cfg(test)]
mod tests {
    use super::with_all_positions;

    #[test]
    fn means_are_over_all_positions() {
        for (pattern, means) in [
            ("a", "a"),
            ("a[:, *]", "a"),
            ("a[:, 3]", "a"),
            ("a[:, :, *]", "a[:, :, *]"),
            ("a[:, *, *]", "a[:, :, *]"),
            ("a[:, 3, 1]", "a[:, :, 1]"),
        ] {
            assert_eq!(with_all_positions(pattern), means);
        }
    }
}
