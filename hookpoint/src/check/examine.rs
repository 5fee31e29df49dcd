//! The checks in their order.

use std::collections::HashSet;

use candle_core::{DType, Tensor};

use super::gradients::GradientReport;
use super::names::{self, Weights};
use super::output::Output;
use super::subject::{Ask, Driver};
use super::CheckOptions;
use crate::cache::ActivationCache;
use crate::error::{Error, Result};
use crate::plan::Scan;
use crate::report::{Check, CheckReport, Checked, Finding, Outcome};
use crate::run::HookCtx;
use crate::select::no_match;
use crate::tree::{short_type, HookDict, HookEntry, Kind};

/// Checks the model that `driver` runs. Only a model that fails by itself is an error.
pub(super) fn examine(driver: &mut dyn Driver, options: &CheckOptions) -> Result<CheckReport> {
    let report = CheckReport {
        model: driver.model_name(),
        points: 0,
        runs: 0,
        trials: 0,
        checks: Vec::new(),
        reliance: Vec::new(),
    };
    let mut all = Examination { driver, options, report };
    let before = all.names();
    let (clean, state, usable) = all.repeats_and_output()?;
    let weights = Weights::of(&all.driver.weights(), &state)?;
    match all.reading(&clean, usable.as_ref()) {
        Some(scan) => {
            let points = Points::new(&scan.dict, &state, options)?;
            all.report.points = scan.dict.len();
            all.calls(&scan);
            all.reached(&scan, &points);
            let is_usable = usable.is_none();
            all.changes(&clean, &points, usable);
            if is_usable {
                all.rely(&clean, &points, &scan.dict);
            }
        }
        None => {
            let why = "the model failed while its points were noted";
            for check in
                [Check::Calls, Check::Reached, Check::Identity, Check::Patches, Check::Effects, Check::DTypes]
            {
                all.not_made(check, why);
            }
        }
    }
    let repeats = all.repeats();
    all.left(&before, &clean, &weights, &state, repeats)?;
    Ok(all.report)
}

pub(super) struct Examination<'a> {
    pub(super) driver: &'a mut dyn Driver,
    pub(super) options: &'a CheckOptions,
    pub(super) report: CheckReport,
}

/// The points that were reached, and those of them that are to be checked one by one.
pub(super) struct Points {
    /// All that were reached.
    pub reached: Vec<String>,
    /// What is checked one by one, with the dtype that was seen.
    pub single: Vec<(String, DType)>,
    /// What is not, and why.
    pub left_out: Vec<Finding>,
    /// What need not be reached, nor show.
    exempt: HashSet<String>,
}

impl Points {
    fn new(dict: &HookDict, state: &HashSet<String>, options: &CheckOptions) -> Result<Self> {
        let mut exempt = state.clone();
        let mut left_out = Vec::new();
        for pattern in &options.except {
            let Ok(selected) = dict.select(pattern) else {
                return Err(no_match(&pattern.to_string(), dict.keys()));
            };
            for name in selected.keys() {
                if exempt.insert(name.to_string()) {
                    left_out.push(Finding::at(name, "not checked: left out by `except`"));
                }
            }
        }
        let of_state = dict.keys().filter(|name| state.contains(*name));
        left_out
            .extend(of_state.map(|name| Finding::at(name, "not checked: state, which each run replaces")));
        let seen: Vec<&HookEntry> = dict.iter().filter(|entry| entry.calls() > 0).collect();
        let reached = seen.iter().map(|entry| entry.name().to_string()).collect();
        let single = seen.iter().filter(|entry| !exempt.contains(entry.name()));
        let mut single: Vec<(String, DType)> =
            single.map(|entry| (entry.name().to_string(), entry.dtype().unwrap_or(DType::F32))).collect();
        let over = single.split_off(single.len().min(options.at_most));
        let many = format!(
            "not checked: more than {} points; `CheckOptions::at_most` sets how many",
            options.at_most
        );
        left_out.extend(over.iter().map(|(name, _)| Finding::at(name, many.clone())));
        Ok(Self { reached, single, left_out, exempt })
    }
}

/// Why no outputs can be compared.
pub(super) type Unusable = String;

impl Examination<'_> {
    pub(super) fn add(
        &mut self,
        check: Check,
        summary: impl Into<String>,
        failures: Vec<Finding>,
        notes: Vec<Finding>,
    ) {
        let (outcome, summary) = match failures.len() {
            0 => (Outcome::Passed, summary.into()),
            1 => (Outcome::Failed, "1 failure".to_string()),
            many => (Outcome::Failed, format!("{many} failures")),
        };
        self.report.checks.push(Checked { check, outcome, summary, failures, notes });
    }

    pub(super) fn not_made(&mut self, check: Check, why: &str) {
        let (summary, failures, notes) = (why.replace('\n', " "), Vec::new(), Vec::new());
        self.report.checks.push(Checked { check, outcome: Outcome::NotMade, summary, failures, notes });
    }

    fn idle(&mut self) -> Result<Output> {
        self.report.runs += 1;
        self.driver.idle()
    }

    pub(super) fn planned(&mut self, asks: &[Ask<'_>]) -> Result<(Output, ActivationCache)> {
        self.report.runs += 1;
        self.driver.planned(asks)
    }

    /// Does the model give the same when it is run again?
    fn repeats(&self) -> bool {
        self.report.check(Check::Repeats).is_some_and(|checked| checked.outcome == Outcome::Passed)
    }

    fn names(&mut self) -> HookDict {
        let dict = self.driver.hook_dict();
        let failures = names::check(&self.driver.own_dict(), &dict);
        self.report.points = dict.len();
        let summary =
            format!("{} modules and parameters, found by name and by `name.hook_point`", dict.len());
        self.add(Check::Names, summary, failures, Vec::new());
        dict
    }

    /// The output without hooks, the names of tensors that are state, and why outputs cannot be compared.
    fn repeats_and_output(&mut self) -> Result<(Output, HashSet<String>, Option<Unusable>)> {
        let mut walks = vec![self.driver.weights()];
        let clean = self.idle()?;
        walks.push(self.driver.weights());
        let again = self.idle();
        walks.push(self.driver.weights());
        let state = names::state(&walks);

        let problem = match &again {
            Ok(again) => clean.difference(again).map(|difference| format!("run again, {difference}")),
            Err(error) => Some(format!("run again, it fails: {error}")),
        };
        let repeats = problem.is_none();
        let remedy =
            "a model that keeps state, such as a KV cache, must be reset first: clear it in the closure. \
                      One that draws random numbers, as dropout does, must be run without: `train = false`";
        let failures = problem.into_iter().map(|problem| Finding::new(problem).remedy(remedy)).collect();
        let mut stateful: Vec<&String> = state.iter().collect();
        stateful.sort();
        let note = |name: &&String| Finding::at(name, "is state: each run replaces it");
        let notes = stateful.iter().map(note).collect();
        self.add(Check::Repeats, "run twice, it gives the same output, bit for bit", failures, notes);

        let (numbers, nans) = (clean.numbers(), clean.nans());
        let mut failures = Vec::new();
        if !clean.has_tensors() {
            let remedy = "return what the model computes: a tensor, or any `HookValue` with tensors";
            failures
                .push(Finding::new("the closure returns no tensors that could be compared").remedy(remedy));
        } else if nans > 0 {
            let problem =
                format!("{nans} of {numbers} numbers of the output are NaN, where no change can be seen");
            failures.push(Finding::new(problem).remedy("give an input for which the output is a number"));
        }
        self.add(Check::Output, format!("{numbers} numbers, none of them NaN"), failures, Vec::new());

        let unusable = match () {
            () if !repeats => Some("the model gives another output when it is run again"),
            () if !clean.has_tensors() => Some("the output holds no tensors"),
            () if nans == numbers => Some("the output is NaN altogether"),
            () => None,
        };
        Ok((clean, state, unusable.map(str::to_string)))
    }

    /// Notes every point; gives what was seen.
    fn reading(&mut self, clean: &Output, unusable: Option<&Unusable>) -> Option<Scan<()>> {
        self.report.runs += 1;
        let (output, scan) = match self.driver.scan() {
            Ok(scanned) => scanned,
            Err(error) => {
                let failure = Finding::new(format!("noting every point makes the model fail: {error}"));
                self.add(Check::Reading, "", vec![failure], Vec::new());
                return None;
            }
        };
        if let Some(why) = unusable {
            self.not_made(Check::Reading, why);
            return Some(scan);
        }
        let mut failures = Vec::new();
        let mut compare = |what: &str, output: Result<&Output>| match output {
            Ok(output) => {
                let difference = clean.difference(output);
                failures.extend(difference.map(|difference| Finding::new(format!("{what}: {difference}"))));
            }
            Err(error) => failures.push(Finding::new(format!("{what} makes the model fail: {error}"))),
        };
        compare("noting every point", Ok(&output));
        let seen: Vec<&HookEntry> = scan.dict.iter().filter(|entry| entry.calls() > 0).collect();
        let points: Vec<String> = seen.iter().map(|entry| entry.name().to_string()).collect();
        let none = |_: &HookCtx<'_>, _: &Tensor| Ok(None);
        let hooked = self.planned(&[Ask::Hook(&points, &none)]);
        compare(
            "a hook at every point that returns `None`",
            hooked.as_ref().map(|run| &run.0).map_err(Error::clone),
        );
        let cached = self.planned(&[Ask::Cache(&points)]);
        compare("caching every point", cached.as_ref().map(|run| &run.0).map_err(Error::clone));
        if let Ok((_, cache)) = &cached {
            let lacks = seen.iter().filter(|entry| !is_cached(cache, entry));
            failures.extend(
                lacks.map(|entry| Finding::at(entry.name(), "the cache has not what was seen there")),
            );
        }
        let summary =
            format!("{} points were noted, hooked and cached, and the output is the same", points.len());
        self.add(Check::Reading, summary, failures, Vec::new());
        Some(scan)
    }

    fn calls(&mut self, scan: &Scan<()>) {
        let remedy = "the module has no point: add `#[derive(AutoHook)]` to its type and `#[auto_hook]` to its `impl` \
                      blocks, and let the model own it";
        let unknown = scan.unknown_calls().into_iter();
        let failures = unknown
            .map(|site| Finding::new(format!("{site} calls a module that is no point")).remedy(remedy));
        let summary =
            format!("forward code calls modules in {} places, all of them points", scan.known_calls().len());
        self.add(Check::Calls, summary, failures.collect(), Vec::new());
    }

    fn reached(&mut self, scan: &Scan<()>, points: &Points) {
        let silent = self.driver.silent();
        let silent: Vec<&HookEntry> = silent.iter().filter_map(|name| scan.dict.get(name)).collect();
        let shared = self.driver.shared();
        let (mut failures, mut notes) = (Vec::new(), Vec::new());
        let inside = |entry: &HookEntry| {
            let of_entry =
                |other: &&HookEntry| other.segments == entry.segments && other.kind() == Kind::Value;
            scan.dict.iter().filter(of_entry).any(|other| other.calls() > 0)
        };
        let was_reached = |name: &&String| {
            scan.dict.get(name.as_str()).is_some_and(|entry| entry.calls() > 0 || inside(entry))
        };
        for entry in scan.unreached() {
            let name = entry.name();
            let elsewhere = shared.iter().filter(|names| names.iter().any(|other| other == name)).flatten();
            if points.exempt.contains(name) {
                notes.push(Finding::at(name, "not reached, and need not be"));
            } else if inside(entry) {
                notes.push(Finding::at(
                    name,
                    "only methods other than `forward` ran: hook their values, `path:method`",
                ));
            } else if let Some(other) = elsewhere.into_iter().find(was_reached) {
                notes
                    .push(Finding::at(name, format!("not reached by this path: it is `{other}`, which was")));
            } else if let Some(silent) =
                silent.iter().find(|silent| entry.segments.starts_with(&silent.segments))
            {
                let remedy = format!(
                    "{} has no forward code that is annotated: add `#[auto_hook]` to its `impl` blocks",
                    short_type(silent.type_name())
                );
                failures.push(Finding::at(name, "is unreachable").remedy(remedy));
            } else {
                let remedy = match entry.kind() {
                    Kind::Parameter => {
                        "no operation used it: is it used, with this input, in annotated code?"
                    }
                    _ => "it was not called: is it used, with this input, in annotated code?",
                };
                let remedy = format!("{remedy} If not, leave it out: `CheckOptions::new().except(\"..\")`");
                failures.push(Finding::at(name, "is never reached").remedy(remedy));
            }
        }
        let summary = format!("{} points fired", points.reached.len());
        self.add(Check::Reached, summary, failures, notes);
    }

    fn left(
        &mut self,
        before: &HookDict,
        clean: &Output,
        weights: &Weights,
        state: &HashSet<String>,
        repeats: bool,
    ) -> Result<()> {
        let mut failures = names::modules_kept(before, &self.driver.hook_dict());
        if repeats {
            match self.idle() {
                Ok(output) => failures.extend(clean.difference(&output).map(Finding::new)),
                Err(error) => failures.push(Finding::new(format!("the model fails: {error}"))),
            }
        }
        failures.extend(Weights::of(&self.driver.weights(), state)?.changed_since(weights));
        let output = if repeats { "the same output, " } else { "" };
        let summary = format!("{output}the same modules and {} weights as before", weights.len());
        self.add(Check::Left, summary, failures, Vec::new());
        Ok(())
    }
}

fn is_cached(cache: &ActivationCache, entry: &HookEntry) -> bool {
    let calls = cache.calls(entry.name());
    let last = calls.last().map(|tensor| (Some(tensor.dims()), Some(tensor.dtype())));
    calls.len() == entry.calls() && last == Some((entry.shape(), entry.dtype()))
}

/// What a check of the gradients has found.
pub(super) fn gradients(checked: Result<GradientReport>) -> Checked {
    let mut findings = Checked {
        check: Check::Gradients,
        outcome: Outcome::Passed,
        summary: String::new(),
        failures: Vec::new(),
        notes: Vec::new(),
    };
    match checked {
        Err(error) => findings.failures.push(Finding::new(format!("gradients make the model fail: {error}"))),
        Ok(report) => {
            findings.summary = format!("{} points agree with finite differences", report.points().count());
            let unreplaceable = "not checked: its value cannot be replaced, so it has no gradient of its own";
            findings.notes.extend(report.skipped().map(|point| Finding::at(point, unreplaceable)));
            let remedy =
                "`check_gradients` shows the numbers; a `detach`, a conversion to integers or an operation \
                          without annotations on the way may lose or bend gradients";
            let wrong = report.wrong().map(|point| {
                Finding::at(point, "the gradient does not agree with finite differences").remedy(remedy)
            });
            findings.failures.extend(wrong);
            if report.points().next().is_none() {
                findings.outcome = Outcome::NotMade;
                findings.summary = "no point holds floats that have a gradient".to_string();
            }
        }
    }
    if !findings.failures.is_empty() {
        findings.outcome = Outcome::Failed;
        findings.summary = match findings.failures.len() {
            1 => "1 failure".to_string(),
            many => format!("{many} failures"),
        };
    }
    findings
}
