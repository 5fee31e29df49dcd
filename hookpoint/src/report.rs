//! What a check of a model found, and how it prints. It stands below the errors, one of which carries it.

use std::fmt;

/// What [`check_auto_hook`](crate::check_auto_hook) looks at, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// Names are unique, each point is found by its name and by `name.hook_point`, and kinds and types are
    /// those of the model.
    Names,
    /// The model gives the same output when it is run again. Where it does not, most checks cannot be made.
    Repeats,
    /// The output holds tensors, and no NaN, in which no change could be seen.
    Output,
    /// Noting, caching, and hooks that return `None` leave the output as it is, bit for bit; a cache has every
    /// point that was reached.
    Reading,
    /// Every module that forward code calls is a point.
    Calls,
    /// Every module and parameter is reached.
    Reached,
    /// Hooks that return what they were given leave the output as it is, bit for bit.
    Identity,
    /// What was cached can be patched back, all at once and point by point, and nothing changes.
    Patches,
    /// Adding 1 at a point changes the output, point by point.
    Effects,
    /// Caches can be converted, and patches of other float types are taken.
    DTypes,
    /// After all this the model gives the same output as before, and has the same names, types and weights.
    Left,
    /// Gradients agree with finite differences. Made where it is [asked for](crate::check::SelfCheck::gradients).
    Gradients,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Check::Names => "names",
            Check::Repeats => "repeats",
            Check::Output => "output",
            Check::Reading => "reading",
            Check::Calls => "calls",
            Check::Reached => "reached",
            Check::Identity => "identity",
            Check::Patches => "patches",
            Check::Effects => "effects",
            Check::DTypes => "dtypes",
            Check::Left => "left",
            Check::Gradients => "gradient",
        })
    }
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// As it should.
    Passed,
    /// With at least one failure.
    Failed,
    /// It could not be made, because of what another check found.
    NotMade,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "FAILED",
            Outcome::NotMade => "not made",
        })
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub(crate) point: Option<String>,
    pub(crate) problem: String,
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self { point: None, problem: problem.into(), remedy: None }
    }

    pub(crate) fn at(point: &str, problem: impl Into<String>) -> Self {
        Self { point: Some(point.to_string()), ..Self::new(problem) }
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The point that it is about, if it is about one.
    pub fn point(&self) -> Option<&str> {
        self.point.as_deref()
    }

    /// What is the matter.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to do about it.
    pub fn remedy_text(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}

/// One check, and what it found.
#[derive(Clone, Debug)]
pub struct Checked {
    pub(crate) check: Check,
    pub(crate) outcome: Outcome,
    pub(crate) summary: String,
    pub(crate) failures: Vec<Finding>,
    pub(crate) notes: Vec<Finding>,
}

impl Checked {
    /// Which check.
    pub fn check(&self) -> Check {
        self.check
    }

    /// How it ended.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The result in a few words.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// What is wrong.
    pub fn failures(&self) -> &[Finding] {
        &self.failures
    }

    /// What is not wrong and should be known: points that were left out, and why.
    pub fn notes(&self) -> &[Finding] {
        &self.notes
    }
}

/// What hookpoint can do with a model, if the model lets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// What is cached stays as it was, whatever the model does later.
    Caches,
    /// A patch has the same effect each time, and the model leaves its tensor alone.
    Patches,
    /// A run that replays a recording gives what a full run gives.
    Replay,
    /// Rows of a batch do not influence each other, so that a sweep may put cells side by side.
    Sweeps,
    /// Runs inside of runs leave each other alone; so do those of several threads.
    Threads,
    /// Gradients agree with how the output changes.
    Gradients,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Feature::Caches => "caches",
            Feature::Patches => "patches",
            Feature::Replay => "replay",
            Feature::Sweeps => "sweeps",
            Feature::Threads => "threads",
            Feature::Gradients => "gradients",
        })
    }
}

/// Whether a feature may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Relied {
    /// It was tried, and right.
    Yes,
    /// It was tried, and is wrong, or refuses.
    No,
    /// It could not be tried with this input.
    Unknown,
}

impl fmt::Display for Relied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Relied::Yes => "yes",
            Relied::No => "no",
            Relied::Unknown => "unknown",
        })
    }
}

/// Whether a feature of hookpoint may be relied on for a model, and why.
#[derive(Clone, Debug)]
pub struct Reliance {
    pub(crate) feature: Feature,
    pub(crate) relied: Relied,
    pub(crate) reason: String,
}

impl Reliance {
    /// Which feature.
    pub fn feature(&self) -> Feature {
        self.feature
    }

    /// May it be relied on?
    pub fn relied(&self) -> Relied {
        self.relied
    }

    /// What was tried, or what is the matter.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// What [`check_auto_hook`](crate::check_auto_hook) found. It prints as a list of the checks, each failure with
/// what to do about it.
#[derive(Clone, Debug)]
pub struct CheckReport {
    pub(crate) model: String,
    pub(crate) points: usize,
    pub(crate) runs: usize,
    pub(crate) trials: usize,
    pub(crate) checks: Vec<Checked>,
    pub(crate) reliance: Vec<Reliance>,
}

impl CheckReport {
    /// Which features of hookpoint may be relied on for this model, with this input. It has no say in whether the
    /// check [passed](Self::passed): a model whose rows influence each other is a model like others.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint::check::{Feature, Relied};
    /// use hookpoint::check_auto_hook;
    ///
    /// let report = check_auto_hook(&model).run(|m| m.forward(&x))?;
    /// assert_eq!(report.may_rely_on(Feature::Replay).unwrap().relied(), Relied::Yes);
    /// // One row says nothing about others.
    /// assert_eq!(report.may_rely_on(Feature::Sweeps).unwrap().relied(), Relied::Unknown);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn reliance(&self) -> impl Iterator<Item = &Reliance> {
        self.reliance.iter()
    }

    /// One of them; none where the model could not be tried at all.
    pub fn may_rely_on(&self, feature: Feature) -> Option<&Reliance> {
        self.reliance.iter().find(|reliance| reliance.feature == feature)
    }

    /// Did nothing fail, and was every check made?
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|checked| checked.outcome == Outcome::Passed)
    }

    /// Every check, in order.
    pub fn checks(&self) -> impl Iterator<Item = &Checked> {
        self.checks.iter()
    }

    /// One of them.
    pub fn check(&self, check: Check) -> Option<&Checked> {
        self.checks.iter().find(|checked| checked.check == check)
    }

    /// Everything that failed.
    pub fn failures(&self) -> impl Iterator<Item = (Check, &Finding)> {
        self.checks.iter().flat_map(|checked| checked.failures.iter().map(|found| (checked.check, found)))
    }

    /// Everything else that should be known, such as points that were left out.
    pub fn notes(&self) -> impl Iterator<Item = (Check, &Finding)> {
        self.checks.iter().flat_map(|checked| checked.notes.iter().map(|found| (checked.check, found)))
    }

    /// How many points the model has, values inside forward code included.
    pub fn points(&self) -> usize {
        self.points
    }

    /// How often the model was run for the checks.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// How often it was run besides, to see [what may be relied on](Self::reliance).
    pub fn trials(&self) -> usize {
        self.trials
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |outcome| self.checks.iter().filter(|checked| checked.outcome == outcome).count();
        let verdict = match (count(Outcome::Failed), count(Outcome::NotMade)) {
            (0, 0) => format!("all {} checks passed", self.checks.len()),
            (failed, 0) => format!("{failed} of {} checks failed", self.checks.len()),
            (failed, not) => {
                format!("{failed} of {} checks failed, {not} could not be made", self.checks.len())
            }
        };
        let Self { model, points, runs, trials, .. } = self;
        write!(f, "check of {model}: {verdict} ({points} points, {runs} runs")?;
        match trials {
            0 => write!(f, ")")?,
            trials => write!(f, ", {trials} to try features)")?,
        }
        for checked in &self.checks {
            write!(f, "\n  {:8}  {:8}  {}", checked.outcome, checked.check, checked.summary)?;
            show(f, "", &checked.failures)?;
            show(f, "note: ", &checked.notes)?;
        }
        if !self.reliance.is_empty() {
            write!(f, "\n  may be relied on, with this input:")?;
        }
        for Reliance { feature, relied, reason } in &self.reliance {
            write!(f, "\n    {feature:9}  {relied:7}  {}", reason.replace('\n', "\n      "))?;
        }
        Ok(())
    }
}

/// Findings below their check. Of those that say the same of several points, the points are listed together.
fn show(f: &mut fmt::Formatter<'_>, label: &str, findings: &[Finding]) -> fmt::Result {
    let mut shown: Vec<(&Finding, Vec<String>)> = Vec::new();
    for finding in findings {
        let name = finding.point.as_ref().map(|point| match point.as_str() {
            "" => "the root".to_string(),
            name => format!("`{name}`"),
        });
        let same = |(other, _): &&mut (&Finding, Vec<String>)| {
            other.point.is_some() == finding.point.is_some()
                && other.problem == finding.problem
                && other.remedy == finding.remedy
        };
        match shown.iter_mut().find(same) {
            Some((_, names)) => names.extend(name),
            None => shown.push((finding, name.into_iter().collect())),
        }
    }
    for (finding, names) in shown {
        let colon = if names.is_empty() { "" } else { ": " };
        write!(f, "\n    {label}{}{colon}{}", names.join(", "), finding.problem.replace('\n', "\n      "))?;
        if let Some(remedy) = &finding.remedy {
            write!(f, "\n      {}", remedy.replace('\n', "\n      "))?;
        }
    }
    Ok(())
}
