//! What a model does without one of its heads, head by head:
//!
//! ```sh
//! cargo run --release --example ablate_heads
//! cargo run --release --example ablate_heads -- --task induction --how zero --prompts 50
//! cargo run --release --example ablate_heads -- --model path/to/gpt2 --prompts 4
//! ```
//!
//! A head is taken away in three ways: it says nothing (zero), what it says on average (mean), or what it says to
//! another prompt (resample).

mod ablation;
mod questions;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use clap::Parser;
use hookpoint_examples::{exit, grid, words, ModelArgs, Progress, Screen, Subject, Task};
use hookpoint_interp::{Head, Transformer};
use hookpoint_models::language::LanguageModel;

use ablation::{How, Losses};
use questions::{Questions, Skill};

/// Takes away each head of a model in turn, and shows what that does to a task.
#[derive(Parser, Clone, Debug)]
#[command(name = "ablate_heads")]
struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// What the model is tried on; may be said several times [default: all]
    #[arg(long, value_enum)]
    task: Vec<Skill>,

    /// How a head is taken away; may be said several times [default: all]
    #[arg(long, value_enum)]
    how: Vec<How>,

    /// How many prompts of each task
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = RangedU64ValueParser::<usize>::new().range(2..=1000))]
    prompts: usize,

    /// Equal seeds give equal prompts
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// What was found.
#[derive(Debug)]
struct Found {
    model: String,
    layers: usize,
    heads: usize,
    tasks: Vec<OnTask>,
}

#[derive(Debug)]
struct OnTask {
    skill: Skill,
    prompts: usize,
    /// With all heads.
    whole: f64,
    losses: Vec<Losses>,
}

impl Task for &Args {
    type Output = Found;

    fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<Found> {
        let (layers, heads) = (subject.model.n_layers(), subject.model.n_heads());
        let skills =
            if self.task.is_empty() { &[Skill::IndirectObject, Skill::Induction] } else { &self.task[..] };
        let hows = if self.how.is_empty() { &[How::Zero, How::Mean, How::Resample] } else { &self.how[..] };
        let progress = Progress::new();
        progress.begin("ablating", skills.len() * hows.len() * layers * heads);
        let mut tasks = Vec::new();
        for skill in skills {
            let questions = Questions::new(subject, *skill, self.prompts, self.seed)?;
            let whole = questions.score(&subject.model, |m, ids| Ok(m.logits(ids)?))?;
            let losses =
                hows.iter().map(|how| Losses::of(&subject.model, &questions, *how, whole, &progress));
            let losses = losses.collect::<Result<_>>()?;
            tasks.push(OnTask { skill: *skill, prompts: questions.len(), whole, losses });
        }
        Ok(Found { model: subject.name.clone(), layers, heads, tasks })
    }
}

fn main() -> ExitCode {
    exit(run(&Args::parse(), &Screen::of_stdout()))
}

fn run(args: &Args, screen: &Screen) -> Result<()> {
    let found = args.model.run(args)?;
    Ok(io::stdout().write_all(text(&found, screen).as_bytes())?)
}

fn text(found: &Found, screen: &Screen) -> String {
    let Found { model, layers, heads, tasks } = found;
    let mut text = screen.opening(&format!("{model}: {layers} layers of {heads} heads"));
    for task in tasks {
        let meaning = format!(
            "{} Over {} prompts: {}. How much of it is lost without each head, in %; blue is gained, dots are less \
             than 1 %.",
            task.skill.meaning(),
            task.prompts,
            task.skill.shown(task.whole)
        );
        let _ = write!(text, "\n{}", screen.heading(task.skill.title(), &meaning));
        let maps: Vec<String> =
            task.losses.iter().map(|losses| map(losses, (*layers, *heads), screen)).collect();
        text += &grid::beside(&maps, screen);
        text += &format!("\n{}", screen.note(&most(task)));
    }
    text
}

fn map(losses: &Losses, size: (usize, usize), screen: &Screen) -> String {
    const CELL: usize = 5;
    let cells = grid::by_layer_and_head(size, CELL, screen, |layer, head| {
        let lost = losses.of_head(Head { layer, head });
        match lost.abs() < 0.01 {
            true => screen.dim(&words::cell("·", CELL)),
            false => screen.heat(&words::cell(&format!("{:.0}", lost * 100.), CELL), lost),
        }
    });
    format!("  {}\n{cells}", screen.bold(losses.how.title()))
}

/// The head that is missed most.
fn most(task: &OnTask) -> String {
    let worst = task.losses.iter().filter_map(|losses| Some((losses.how, losses.most()?)));
    let shown = worst.map(|(how, (head, lost))| format!("{head} ({}, {:.0} %)", how.title(), lost * 100.));
    format!("Missed most: {}.", shown.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(list: &[&str]) -> Found {
        let args = Args::try_parse_from(["ablate_heads"].iter().chain(list)).unwrap();
        args.model.run(&args).unwrap()
    }

    #[test]
    fn without_its_induction_head_the_model_does_not_repeat() {
        let found = found(&["--task", "induction", "--prompts", "6"]);
        let task = &found.tasks[0];
        assert!(task.whole > 0.9, "{}", task.whole);
        for losses in &task.losses {
            let (head, lost) = losses.most().unwrap();
            // The heads that the detectors call so: an induction head and the previous token head before it.
            assert!(["L1H0", "L0H0"].contains(&head.to_string().as_str()) && lost > 0.5, "{losses:?}");
        }
    }

    #[test]
    fn no_single_head_of_the_first_layer_knows_the_indirect_object() {
        let found = found(&["--task", "indirect-object", "--how", "zero", "--prompts", "6"]);
        let task = &found.tasks[0];
        assert!(task.whole > 5., "{}", task.whole);
        let (head, lost) = task.losses[0].most().unwrap();
        assert!(head.layer > 0 && lost > 0.05, "{:?}", task.losses);
    }

    #[test]
    fn equal_seeds_give_equal_losses() {
        let list = ["--task", "induction", "--prompts", "2", "--how", "resample", "--seed"];
        let with = |seed: &'static str| format!("{:?}", found(&[&list[..], &[seed]].concat()).tasks);
        assert_eq!(with("1"), with("1"));
        assert_ne!(with("1"), with("2"));
    }

    #[test]
    fn tables_fit_and_are_plain_where_they_have_to_be() {
        let found = found(&["--prompts", "2"]);
        for width in [40, 80, 100] {
            let plain = text(&found, &Screen::plain(width));
            assert!(!plain.contains('\u{1b}'));
            assert!(plain.lines().all(|line| words::width(line) <= width), "{plain}");
        }
    }
}
