//! Gradients of annotated models against finite differences, at some points of each. Models that can be
//! made in double precision are.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Instant;

use candle_core::{Result, Tensor};
use hookpoint::{check::GradientReport, check_gradients, AutoHook, ErrorKind, HookDict, Hooked};
use serde_json::{json, Value};

use crate::annotated::zoo::weights::in_double_precision;
use crate::annotated::{zoo, Visit};

/// How many points of each model are compared.
const POINTS: usize = 10;

/// Compares the wanted models: all of them, if none is named, or all but those after `--without`. `tell` gets a line for each.
pub fn compare(wanted: &[String], tell: &mut dyn FnMut(Value)) {
    zoo::visit_all(&mut Differences { wanted, tell });
}

struct Differences<'w> {
    wanted: &'w [String],
    tell: &'w mut dyn FnMut(Value),
}

impl Differences<'_> {
    /// `scan` says which points there are, `check` compares some.
    fn model(
        &mut self,
        name: &str,
        scan: impl FnOnce() -> hookpoint::Result<HookDict>,
        check: impl Fn(&[String]) -> hookpoint::Result<GradientReport>,
    ) {
        let wanted = match self.wanted.split_first() {
            None => true,
            Some((first, unwanted)) if first == "--without" => !unwanted.iter().any(|other| other == name),
            Some(_) => self.wanted.iter().any(|wanted| wanted == name),
        };
        if !wanted {
            return;
        }
        let start = Instant::now();
        // In single precision, which candle has kernels for.
        let points = catch_unwind(AssertUnwindSafe(scan)).unwrap_or_else(|_| panicked());
        let in_precision = |double: bool| {
            let points = some_points(points.as_ref().map_err(Clone::clone)?);
            in_double_precision(double);
            let report = catch_unwind(AssertUnwindSafe(|| check(&points)));
            in_double_precision(false);
            report.unwrap_or_else(|_| panicked())
        };
        let (double, not_double, report) = match in_precision(true) {
            Ok(report) if report.passed() => (true, String::new(), Ok(report)),
            // Its code says f32 somewhere: it fails, or is less exact than it seems.
            Ok(report) => (false, report.to_string(), in_precision(false)),
            Err(error) => (false, error.to_string(), in_precision(false)),
        };
        let seconds = start.elapsed().as_secs_f64();
        (self.tell)(match report {
            Ok(report) => json!({
                "gradients": name, "double": double, "not_double": not_double, "seconds": seconds,
                "points": report.points().count(), "passed": report.passed(), "report": report.to_string(),
                "worst": report.points().map(|(_, off)| off).fold(0., f64::max),
            }),
            Err(error) => json!({
                "gradients": name, "double": false, "not_double": not_double, "seconds": seconds,
                "error": error.to_string(), "kind": kind(&error),
            }),
        });
    }
}

const STATE: &str = "it keeps state that cannot be cleared, and cannot be run again";

fn kind(error: &hookpoint::Error) -> &'static str {
    match error.kind() {
        ErrorKind::GradientLost { .. } => "lost",
        _ if error.to_string() == STATE => "state",
        _ => "other",
    }
}

fn panicked<T>() -> hookpoint::Result<T> {
    Err(hookpoint::Error::msg("it panics"))
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
        self.model(
            name,
            || Ok(Hooked::new(make()?).scan(&run)?.dict),
            |points| check_gradients(&Hooked::new(make()?)).points(points)?.run(&run),
        );
    }

    fn exclusive<M: AutoHook + 'static>(
        &mut self,
        name: &str,
        fresh: bool,
        make: impl Fn() -> Result<M>,
        run: impl Fn(&mut M) -> Result<Vec<Tensor>>,
    ) {
        let again = || match fresh {
            true => Err(hookpoint::Error::msg(STATE)),
            false => Ok(()),
        };
        self.model(
            name,
            || again().and_then(|()| Ok(Hooked::new(make()?).plan_mut().scan(&run)?.dict)),
            |points| check_gradients(&mut Hooked::new(make()?)).points(points)?.run(&run),
        );
    }
}
