//! Runs the comparison of gradients with finite differences, and judges what it reports.

use std::fmt;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use serde_json::Value;

use crate::build::Build;
use crate::generate::Workspace;

/// Models that take longer than all others together.
const SLOW: [&str; 2] = ["dinov2reg4", "segment_anything"];

/// Models that differences cannot follow in the precision that their code fixes, and why.
const UNSTEADY: [(&str, &str); 1] = [
    // `:r` comes before that sine; the points behind it agree.
    ("wuerstchen_prior", "it takes the sine of 10,000 times its input in single precision"),
];

/// What the program reports.
pub struct Gradients(Vec<Model>);

/// What it says of one model.
struct Model {
    name: String,
    outcome: Outcome,
    points: usize,
    worst: f64,
    seconds: f64,
}

/// What became of one model, from the best to the worst.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// All gradients agree, in double precision to four digits.
    Double,
    /// All gradients agree, as far as single precision shows. Why the model is not made in double precision.
    Single(String),
    /// A gradient was asked for that cannot pass, and the error says where.
    Refused(String),
    /// The model is one closure, or its values are rounded, or it cannot be run again.
    NotComparable(String),
    /// A gradient is wrong.
    Wrong(String),
    /// Any other error.
    Failed(String),
}

impl Gradients {
    /// Runs the program that `build` made with all models but the slow ones.
    pub fn run(workspace: &Workspace, build: &Build) -> Result<Self> {
        let program = build.program.as_ref().context("the program that compares")?;
        let mut command = Command::new(program);
        command.args(["gradients", "--without"]).args(SLOW).current_dir(&workspace.root);
        let output = command.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "the program that compares ended with {}", output.status);
        let text = String::from_utf8(output.stdout)?;
        let models = text.lines().map(|line| Ok(Model::read(&serde_json::from_str(line)?)));
        let mut models = models.collect::<Result<Vec<Model>>>()?;
        models.sort_by(|a, b| (&a.outcome, &a.name).cmp(&(&b.outcome, &b.name)));
        Ok(Self(models))
    }

    /// How many models agree in double precision, and how many agree at all.
    pub fn agreeing(&self) -> (usize, usize) {
        let count = |f: fn(&Outcome) -> bool| self.0.iter().filter(|model| f(&model.outcome)).count();
        let double = count(|outcome| matches!(outcome, Outcome::Double));
        (double, double + count(|outcome| matches!(outcome, Outcome::Single(_))))
    }

    /// Everything that is not as it must be.
    pub fn problems(&self) -> Vec<String> {
        let bad = |model: &&Model| matches!(model.outcome, Outcome::Wrong(_) | Outcome::Failed(_));
        self.0.iter().filter(bad).map(Model::to_string).collect()
    }
}

impl Outcome {
    fn read(name: &str, line: &Value) -> Self {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_string();
        let first_line = |text: String| text.lines().next().unwrap_or_default().to_string();
        let points = line["points"].as_u64().unwrap_or_default();
        if let Some(error) = line["error"].as_str() {
            let error = first_line(error.to_string());
            return match line["kind"].as_str() {
                Some("lost") => Outcome::Refused(error),
                Some("state") => Outcome::NotComparable(error),
                _ => Outcome::Failed(error),
            };
        }
        if line["passed"] == true {
            let why = first_line(text("not_double"));
            return if line["double"] == true { Outcome::Double } else { Outcome::Single(why) };
        }
        if points == 0 {
            return Outcome::NotComparable("it is one closure, and has no points inside".into());
        }
        // Their products round what they are given to 8 bits: the loss is a staircase, and the gradient that of
        // the weights as they are stored.
        if name.starts_with("quantized_") {
            let reason = "its products round to 8 bits, so that differences say nothing of a slope";
            return Outcome::NotComparable(reason.into());
        }
        match UNSTEADY.iter().find(|(unsteady, _)| *unsteady == name) {
            Some((_, reason)) => Outcome::NotComparable((*reason).into()),
            None => Outcome::Wrong(text("report")),
        }
    }
}

impl Model {
    fn read(line: &Value) -> Self {
        let name = line["gradients"].as_str().unwrap_or_default().to_string();
        Self {
            outcome: Outcome::read(&name, line),
            name,
            points: line["points"].as_u64().unwrap_or_default() as usize,
            // What is not a number is not in JSON.
            worst: line["worst"].as_f64().unwrap_or(f64::INFINITY),
            seconds: line["seconds"].as_f64().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (double, all) = self.agreeing();
        writeln!(
            f,
            "{} models: {double} agree in double precision, {} in single precision",
            self.0.len(),
            all - double
        )?;
        self.0.iter().try_for_each(|model| writeln!(f, "{model}"))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, outcome, points, worst, seconds } = self;
        write!(f, "{name:24} {seconds:5.1} s  ")?;
        match outcome {
            Outcome::Double => write!(f, "f64, {points} points, off by {worst:.1e} at most"),
            Outcome::Single(why) => {
                write!(f, "f32, {points} points, off by {worst:.1e} at most; not in f64: {why}")
            }
            Outcome::Refused(reason) => write!(f, "refused: {reason}"),
            Outcome::NotComparable(reason) => write!(f, "not comparable: {reason}"),
            Outcome::Wrong(report) => write!(f, "WRONG: {report}"),
            Outcome::Failed(error) => write!(f, "FAILED: {error}"),
        }
    }
}
