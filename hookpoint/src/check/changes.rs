//! Checks that change values: what gives the same must give the same, and the rest must show.

use std::cell::Cell;

use candle_core::{DType, Tensor};

use super::examine::{Examination, Points, Unusable};
use super::output::Output;
use super::points::{verdict, Change, Effect, Verdict};
use super::subject::{Ask, DynHook};
use crate::cache::ActivationCache;
use crate::error::{Error, ErrorKind, Result};
use crate::report::{Check, Finding};
use crate::run::HookCtx;

impl Examination<'_> {
    pub(super) fn changes(&mut self, clean: &Output, points: &Points, unusable: Option<Unusable>) {
        if let Some(why) = unusable {
            for check in [Check::Identity, Check::Patches, Check::Effects, Check::DTypes] {
                self.not_made(check, &why);
            }
            return;
        }
        self.identity(clean, points);
        match self.planned(&[Ask::Cache(&points.reached)]) {
            Ok((_, mut cache)) => {
                let fixed = self.patches(clean, &mut cache, points);
                self.effects(clean, points, &fixed);
                self.dtypes(clean, &cache);
            }
            Err(error) => {
                for check in [Check::Patches, Check::Effects, Check::DTypes] {
                    self.not_made(check, &format!("caching fails: {error}"));
                }
            }
        }
    }

    fn identity(&mut self, clean: &Output, points: &Points) {
        let same = |_: &HookCtx<'_>, x: &Tensor| Ok(Some(x.clone()));
        let names = &points.reached;
        let failures = match self.planned(&[Ask::Hook(names, &same)]) {
            Ok((output, _)) => match clean.difference(&output) {
                Some(difference) => self.blamed(clean, names, &same, &difference),
                None => Vec::new(),
            },
            Err(error) => vec![Finding::new(format!("the model fails: {error}"))],
        };
        let summary =
            format!("{} hooks returned what they were given, and the output is the same", names.len());
        self.add(Check::Identity, summary, failures, Vec::new());
    }

    /// Which single points make the difference that all together make?
    fn blamed(
        &mut self,
        clean: &Output,
        names: &[String],
        same: &DynHook<'_>,
        difference: &str,
    ) -> Vec<Finding> {
        let mut failures = Vec::new();
        for name in names.iter().take(self.options.at_most) {
            let run = self.planned(&[Ask::Hook(std::slice::from_ref(name), same)]);
            match run.map(|(output, _)| clean.difference(&output)) {
                Ok(None) => {}
                Ok(Some(difference)) => failures.push(Finding::at(name, difference)),
                Err(error) => failures.push(Finding::at(name, format!("the model fails: {error}"))),
            }
        }
        if failures.is_empty() {
            failures.push(Finding::new(format!("hooks at all points together: {difference}")));
        }
        failures
    }

    /// Patches every value back. Takes out of the cache, and gives, what can be read and not replaced.
    fn patches(&mut self, clean: &Output, cache: &mut ActivationCache, points: &Points) -> Vec<Finding> {
        let mut fixed: Vec<Finding> = Vec::new();
        let all = loop {
            let run = self.planned(&[Ask::Patch(cache)]);
            let Err(error) = &run else { break run };
            let ErrorKind::NotReplaceable { point, reason } = error.kind() else { break run };
            if !cache.remove(point) {
                break run;
            }
            fixed.push(Finding::at(point, format!("can be read and not replaced: {reason}")));
        };
        let mut failures = Vec::new();
        let mut judge = |point: Option<&str>, run: Result<(Output, ActivationCache)>| {
            let problem = match run {
                Ok((output, _)) => clean.difference(&output),
                Err(error) => Some(format!("the model fails: {error}")),
            };
            let finding = |problem: String| match point {
                Some(name) => Finding::at(name, problem),
                None => Finding::new(format!("everything patched at once: {problem}")),
            };
            failures.extend(problem.map(finding));
        };
        judge(None, all);
        let mut singly = 0;
        for (name, _) in &points.single {
            let Ok(one) = cache.select(name.as_str()) else { continue };
            singly += 1;
            judge(Some(name), self.planned(&[Ask::Patch(&one)]));
        }
        let summary = format!(
            "{} values were patched back, all at once and {singly} of them singly, and the output is the same",
            cache.len()
        );
        self.add(Check::Patches, summary, failures, fixed.clone());
        fixed
    }

    fn effects(&mut self, clean: &Output, points: &Points, fixed: &[Finding]) {
        let (mut failures, mut notes) = (Vec::new(), points.left_out.clone());
        let mut shown = 0;
        for (name, dtype) in &points.single {
            if let Some(finding) = fixed.iter().find(|finding| finding.point() == Some(name.as_str())) {
                notes.push(Finding::at(name, format!("not checked: it {}", finding.problem())));
                continue;
            }
            let mut effects = Vec::new();
            for change in Change::for_dtype(*dtype) {
                let changed = Cell::new(false);
                let hook = |_: &HookCtx<'_>, x: &Tensor| {
                    let new = change.apply(x)?;
                    changed.set(true);
                    Ok(Some(new))
                };
                let run = self.planned(&[Ask::Hook(std::slice::from_ref(name), &hook)]);
                let effect = Effect::of(run.map(|(output, _)| output != *clean), &changed);
                let is_none = matches!(effect, Effect::None);
                effects.push((*change, effect));
                if !is_none {
                    break;
                }
            }
            match verdict(name, *dtype, &effects) {
                Verdict::Shows => shown += 1,
                Verdict::Note(note) => notes.push(note),
                Verdict::ShowsNot(failure) => failures.push(failure),
            }
        }
        let summary = format!("adding 1 shows in the output at {shown} of {} points", points.single.len());
        self.add(Check::Effects, summary, failures, notes);
    }

    fn dtypes(&mut self, clean: &Output, cache: &ActivationCache) {
        let mut failures = Vec::new();
        let mut notes = Vec::new();
        for dtype in [DType::F64, DType::F16, DType::BF16] {
            let run = cache.to_dtype(dtype).and_then(|converted| self.planned(&[Ask::Patch(&converted)]));
            let problem = match run {
                // Every float is one of 64 bits, too.
                Ok((output, _)) if dtype == DType::F64 => clean.difference(&output),
                Ok((output, _)) if !output.is_like(clean) => clean.difference(&output),
                Ok(_) => None,
                Err(error) if is_missing_on_device(&error) => {
                    notes.push(Finding::new(format!("not checked with {}: {error}", dtype.as_str())));
                    None
                }
                Err(error) => Some(format!("the model fails: {error}")),
            };
            failures
                .extend(problem.map(|text| Finding::new(format!("patches in {}: {text}", dtype.as_str()))));
        }
        self.add(Check::DTypes, "caches in f64, f16 and bf16 were patched back", failures, notes);
    }
}

/// Metal has no f64.
fn is_missing_on_device(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Candle(candle_core::Error::UnsupportedDTypeForOp(..) | candle_core::Error::Metal(_))
    )
}
