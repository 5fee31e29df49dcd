//! Gradients of annotated models against finite differences, at some points of each. Models that can be
//! made in double precision are.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Instant;

use candle_core::{Result, Tensor};
use hookpoint::{check_gradients, check_gradients_mut, AutoHook, GradientReport, HookDict, Hooked};
use serde_json::{json, Value};

use crate::annotated::zoo::weights::in_double_precision;
use crate::annotated::{zoo, Visit};

/// How many points of each model are compared.
const POINTS: usize = 10;

/// Compares the wanted models; all of them, if none is named.
pub fn compare(wanted: &[String]) -> Vec<Value> {
    let mut differences = Differences { wanted, lines: Vec::new() };
    zoo::visit_all(&mut differences);
    differences.lines
}

struct Differences<'w> {
    wanted: &'w [String],
    lines: Vec<Value>,
}

impl Differences<'_> {
    fn model(&mut self, name: &str, check: impl Fn() -> hookpoint::Result<GradientReport>) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| wanted == name) {
            return;
        }
        let start = Instant::now();
        let in_precision = |double: bool| {
            in_double_precision(double);
            let report = catch_unwind(AssertUnwindSafe(&check));
            in_double_precision(false);
            report.unwrap_or_else(|_| Err(hookpoint::Error::msg("it panics")))
        };
        let (double, report) = match in_precision(true) {
            Ok(report) if report.passed() => (true, Ok(report)),
            // Its code says f32 somewhere: it fails, or is less exact than it seems.
            _ => (false, in_precision(false)),
        };
        let seconds = start.elapsed().as_secs_f64();
        self.lines.push(match report {
            Ok(report) => json!({
                "gradients": name, "double": double, "points": report.points().count(),
                "passed": report.passed(), "report": report.to_string(), "seconds": seconds,
                "worst": report.points().map(|(_, off)| off).fold(0., f64::max),
            }),
            Err(error) => json!({ "gradients": name, "error": error.to_string(), "seconds": seconds }),
        });
    }
}

/// Some of the points that a run has reached, always the same ones.
fn some_points(dict: &HookDict) -> Vec<String> {
    let floats = dict.iter().filter(|entry| entry.dtype().is_some_and(|dtype| dtype.is_float()));
    let mut names: Vec<String> = floats.map(|entry| entry.name().to_string()).collect();
    let mut state = names.len() as u64;
    while names.len() > POINTS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        names.remove((state >> 33) as usize % names.len());
    }
    names
}

impl Visit for Differences<'_> {
    fn shared<M: AutoHook + 'static>(
        &mut self,
        name: &str,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&M) -> Result<Vec<Tensor>>,
    ) {
        self.model(name, || {
            let model = Hooked::new(make()?);
            let points = some_points(&model.scan(&run)?.dict);
            check_gradients(&model, &run, points)
        });
    }

    fn exclusive<M: AutoHook + 'static>(
        &mut self,
        name: &str,
        fresh: bool,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&mut M) -> Result<Vec<Tensor>>,
    ) {
        self.model(name, || {
            if fresh {
                return Err(hookpoint::Error::msg("it cannot be run again"));
            }
            let mut model = Hooked::new(make()?);
            let points = some_points(&model.scan_mut(&run)?.dict);
            check_gradients_mut(&mut model, &run, points)
        });
    }
}
