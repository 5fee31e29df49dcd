//! Runs the comparison and judges what it reports.

use std::collections::BTreeSet;
use std::fmt;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use serde_json::Value;

use crate::build::Build;
use crate::generate::Workspace;

/// How many models are at least compared.
const MODELS: usize = 100;

/// What the program reports.
pub struct Report {
    models: Vec<Model>,
    /// Call sites whose module was one of the model's points, and call sites where it was not, of all
    /// models together.
    known: BTreeSet<String>,
    unknown: BTreeSet<String>,
}

/// What it says of one model.
struct Model {
    name: String,
    error: Option<String>,
    differs: Vec<String>,
    /// Modules, layers and parameters.
    points: usize,
    /// Values inside forward code.
    values: usize,
    /// Modules that were used, but not by a method called `forward*`.
    entered: Vec<String>,
    /// Points that nothing was seen of.
    unreached: Vec<String>,
    cached: usize,
    known: Vec<String>,
    unknown: Vec<String>,
    /// The whole model is a closure: there is nothing in it to be hooked.
    is_opaque: bool,
}

impl Report {
    /// Runs the program that `build` made.
    pub fn run(workspace: &Workspace, build: &Build) -> Result<Self> {
        let program = build.program.as_ref().context("the program that compares")?;
        let output = Command::new(program).current_dir(&workspace.root).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "the program that compares ended with {}", output.status);
        let text = String::from_utf8(output.stdout)?;
        let models = text.lines().map(|line| Ok(Model::read(&serde_json::from_str(line)?)));
        let models = models.collect::<Result<Vec<Model>>>()?;
        let known: BTreeSet<String> = models.iter().flat_map(|model| model.known.clone()).collect();
        let unknown = models.iter().flat_map(|model| model.unknown.clone()).collect();
        Ok(Self { models, known, unknown })
    }

    /// The share of call sites whose module was found, among those that were executed.
    fn share(&self) -> f64 {
        let executed = self.known.union(&self.unknown).count();
        1. - self.unknown.len() as f64 / executed.max(1) as f64
    }

    /// Everything that is not as it must be.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.models.iter().flat_map(Model::problems).collect();
        if self.models.len() < MODELS {
            problems.push(format!("only {} models were compared, not {MODELS}", self.models.len()));
        }
        if self.share() < 0.98 {
            problems.push(format!("only {:.2} % of the executed calls are hooked", self.share() * 100.));
        }
        problems
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for model in &self.models {
            writeln!(f, "{model}")?;
        }
        let sum = |number: fn(&Model) -> usize| self.models.iter().map(number).sum::<usize>();
        let (points, fired, values) =
            (sum(|model| model.points), sum(Model::fired), sum(|model| model.values));
        let (entered, unreached) = (sum(|model| model.entered.len()), sum(|model| model.unreached.len()));
        let (models, same) = (self.models.len(), self.models.iter().filter(|model| model.is_same()).count());
        writeln!(f, "{models} models, {same} with equal bits in every way of running them")?;
        writeln!(f, "{points} points: {fired} fired, {entered} entered by other methods than forward,")?;
        writeln!(f, "  {unreached} not reached; {values} values seen")?;
        let (known, unknown, percent) = (self.known.len(), self.unknown.len(), self.share() * 100.);
        writeln!(f, "executed call sites: {known} hooked, {unknown} unknown ({percent:.2} % hooked)")?;
        self.unknown.iter().try_for_each(|site| writeln!(f, "  {site}"))
    }
}

impl Model {
    fn read(line: &Value) -> Self {
        let list = |value: &Value| {
            let items = value.as_array().into_iter().flatten();
            items.map(|item| item.as_str().unwrap_or_default().to_string()).collect::<Vec<String>>()
        };
        let number = |value: &Value| value.as_u64().unwrap_or_default() as usize;
        Self {
            name: line["name"].as_str().unwrap_or_default().to_string(),
            error: line["error"].as_str().map(str::to_string),
            differs: list(&line["differs"]),
            points: number(&line["points"]),
            values: number(&line["values"]),
            entered: list(&line["entered"]),
            unreached: list(&line["unreached"]),
            cached: number(&line["cached"]),
            known: list(&line["known"]),
            unknown: list(&line["unknown"]),
            is_opaque: line["is_opaque"] == true,
        }
    }

    /// How many points fired.
    fn fired(&self) -> usize {
        self.points - self.unreached.len() - self.entered.len()
    }

    fn is_same(&self) -> bool {
        self.error.is_none() && self.differs.is_empty()
    }

    fn problems(&self) -> Vec<String> {
        let name = &self.name;
        if let Some(error) = &self.error {
            return vec![format!("{name}: {error}")];
        }
        let mut problems = Vec::new();
        problems.extend(self.differs.iter().map(|way| format!("{name}: the output differs {way}")));
        if self.is_opaque {
            return problems;
        }
        if self.unreached.len() * 2 > self.points {
            problems.push(format!("{name}: most points are not reached: {}", self.unreached.join(" ")));
        }
        if self.values == 0 || self.cached < self.fired() {
            problems.push(format!("{name}: {} values, {} cached", self.values, self.cached));
        }
        problems
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, points, values, entered, unreached, cached, unknown, .. } = self;
        let fired = self.fired();
        write!(f, "{name:24} {points:4} points {fired:4} fired {values:5} values {cached:5} cached")?;
        match &self.error {
            Some(error) => write!(f, "  error: {error}")?,
            None if self.differs.is_empty() => write!(f, "  same bits")?,
            None => write!(f, "  differs {}", self.differs.join(", "))?,
        }
        if self.is_opaque {
            write!(f, ", built of closures")?;
        }
        if !entered.is_empty() {
            write!(f, "\n    entered: {}", names(entered))?;
        }
        if !unreached.is_empty() {
            write!(f, "\n    not reached: {}", names(unreached))?;
        }
        if !unknown.is_empty() {
            write!(f, "\n    unknown calls: {}", unknown.join(", "))?;
        }
        Ok(())
    }
}

/// Names in a row, and the root too.
fn names(names: &[String]) -> String {
    let shown = |name: &String| if name.is_empty() { "(root)".to_string() } else { name.clone() };
    names.iter().map(shown).collect::<Vec<String>>().join(" ")
}
