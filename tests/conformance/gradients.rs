//! Runs the comparison of gradients with finite differences, and judges what it reports.

use std::fmt;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use serde_json::Value;

use crate::build::Build;
use crate::generate::Workspace;

/// What the program reports.
pub struct Gradients(Vec<Model>);

/// What it says of one model.
struct Model {
    name: String,
    error: Option<String>,
    /// Was it made in double precision?
    double: bool,
    points: usize,
    passed: bool,
    worst: f64,
    report: String,
    seconds: f64,
}

impl Gradients {
    /// Runs the program that `build` made with the models of these names.
    pub fn run(workspace: &Workspace, build: &Build, models: &[&str]) -> Result<Self> {
        let program = build.program.as_ref().context("the program that compares")?;
        let mut command = Command::new(program);
        command.arg("gradients").args(models).current_dir(&workspace.root).stderr(Stdio::inherit());
        let output = command.output()?;
        ensure!(output.status.success(), "the program that compares ended with {}", output.status);
        let text = String::from_utf8(output.stdout)?;
        let models = text.lines().map(|line| Ok(Model::read(&serde_json::from_str(line)?)));
        Ok(Self(models.collect::<Result<_>>()?))
    }

    /// How many models were compared.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Everything that is not as it must be.
    pub fn problems(&self) -> Vec<String> {
        let bad = self.0.iter().filter(|model| !model.passed);
        bad.map(Model::to_string).collect()
    }
}

impl Model {
    fn read(line: &Value) -> Self {
        Self {
            name: line["gradients"].as_str().unwrap_or_default().to_string(),
            error: line["error"].as_str().map(str::to_string),
            double: line["double"] == true,
            points: line["points"].as_u64().unwrap_or_default() as usize,
            passed: line["passed"] == true,
            // What is not a number is not in JSON.
            worst: line["worst"].as_f64().unwrap_or(f64::INFINITY),
            report: line["report"].as_str().unwrap_or_default().to_string(),
            seconds: line["seconds"].as_f64().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|model| writeln!(f, "{model}"))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, error, double, points, passed, worst, report, seconds } = self;
        let precision = if *double { "f64" } else { "f32" };
        write!(f, "{name:24} {seconds:5.1} s  {precision} {points} points, off by {worst:.1e}")?;
        match error {
            Some(error) => write!(f, "  error: {error}"),
            None if *passed => Ok(()),
            None => write!(f, "  {report}"),
        }
    }
}
