//! What the model is fit for: every feature of hookpoint is tried once on it, where this input allows that.

use std::cell::RefCell;
use std::collections::HashMap;

use candle_core::{IndexOp, Tensor};

use super::examine::{Examination, Points};
use super::output::{bytes, Output};
use super::points::Change;
use super::subject::Ask;
use crate::cache::ActivationCache;
use crate::error::{ErrorKind, Result};
use crate::report::{Check, Feature, Reliance, Relied};
use crate::run::HookCtx;
use crate::tree::HookDict;

type Tried = (Relied, String);

fn yes(reason: impl Into<String>) -> Result<Tried> {
    Ok((Relied::Yes, reason.into()))
}

fn no(reason: impl Into<String>) -> Result<Tried> {
    Ok((Relied::No, reason.into()))
}

fn unknown(reason: impl Into<String>) -> Result<Tried> {
    Ok((Relied::Unknown, reason.into()))
}

impl Examination<'_> {
    /// Tries all features. None of it is a failure of the model.
    pub(super) fn rely(&mut self, clean: &Output, points: &Points, dict: &HookDict) {
        let runs = self.report.runs;
        let cache = self.planned(&[Ask::Cache(&points.reached)]).map(|(_, cache)| cache);
        let tried = match cache {
            Ok(mut cache) => vec![
                (Feature::Caches, self.try_caches(points)),
                (Feature::Patches, self.try_patches(clean, &mut cache)),
                (Feature::Replay, self.try_replay(clean, points)),
                (Feature::Sweeps, self.try_sweeps(clean, &cache)),
                (Feature::Threads, self.try_threads(dict)),
                (Feature::Gradients, self.try_gradients()),
            ],
            Err(error) => vec![(Feature::Caches, no(error.to_string()))],
        };
        for (feature, tried) in tried {
            let (relied, reason) = tried.unwrap_or_else(|error| (Relied::No, error.to_string()));
            self.report.reliance.push(Reliance { feature, relied, reason });
        }
        self.report.trials = std::mem::replace(&mut self.report.runs, runs) - runs;
    }

    /// What is cached is compared with copies that were made at the time, after the model has run once more.
    fn try_caches(&mut self, points: &Points) -> Result<Tried> {
        let seen: RefCell<HashMap<String, Vec<Vec<u8>>>> = RefCell::default();
        let copy = |ctx: &HookCtx<'_>, value: &Tensor| {
            seen.borrow_mut().entry(ctx.path().to_string()).or_default().push(bytes(value)?);
            Ok(None)
        };
        let names = &points.reached;
        let (_, cache) = self.planned(&[Ask::Hook(names, &copy), Ask::Cache(names)])?;
        self.again()?;
        let mut count = 0;
        for (name, copies) in seen.borrow().iter() {
            for (value, copy) in cache.calls(name).into_iter().zip(copies) {
                count += 1;
                if bytes(value)? != *copy {
                    return no(format!(
                        "what is cached at `{name}` changes later: something writes into it, in code that is not \
                         annotated; cache a copy, with a hook"
                    ));
                }
            }
        }
        yes(format!("{count} values are what they were, after the model has run again"))
    }

    /// All values are patched in, twice.
    fn try_patches(&mut self, clean: &Output, cache: &mut ActivationCache) -> Result<Tried> {
        if let Some(checked) = self.report.check(Check::Patches) {
            if let Some(failure) = checked.failures().first() {
                let point = failure.point().map(|point| format!("`{point}`: ")).unwrap_or_default();
                return no(format!("{point}{}", failure.problem()));
            }
            for fixed in checked.notes().iter().filter_map(|note| note.point()) {
                cache.remove(fixed);
            }
        }
        let all = |cache: &ActivationCache| {
            cache
                .iter()
                .map(|(name, tensor)| Ok((name.to_string(), bytes(tensor)?)))
                .collect::<Result<Vec<_>>>()
        };
        let before = all(cache)?;
        for time in ["", ", the second time"] {
            let (output, _) = self.planned(&[Ask::Patch(cache)])?;
            if let Some(difference) = clean.difference(&output) {
                return no(format!("with everything patched back{time}, {difference}"));
            }
        }
        let after = all(cache)?;
        match before.iter().zip(&after).find(|(before, after)| before != after) {
            Some(((name, _), _)) => {
                no(format!("the model writes into the patch at `{name}`; give it a copy, with a hook"))
            }
            None => yes(format!("{} values were patched back, twice, and none was written to", cache.len())),
        }
    }

    /// Changes at a few points, with what comes before them replayed and without.
    fn try_replay(&mut self, clean: &Output, points: &Points) -> Result<Tried> {
        let (output, recording) = match self.driver.record() {
            Ok(recorded) => recorded,
            Err(error) => return no(error.to_string()),
        };
        self.report.runs += 2;
        if let Some(difference) = clean.difference(&output) {
            return no(format!("recorded, {difference}"));
        }
        let floats: Vec<&String> =
            points.single.iter().filter(|(_, dtype)| dtype.is_float()).map(|(name, _)| name).collect();
        let (mut tried, mut replayed) = (0, 0);
        let at = [0, floats.len() / 2, floats.len().saturating_sub(1)];
        for name in at.iter().filter_map(|at| floats.get(*at)) {
            let shake = |_: &HookCtx<'_>, value: &Tensor| Change::Shake.apply(value).map(Some);
            let asks = [Ask::Hook(std::slice::from_ref(*name), &shake)];
            // What cannot be changed there says nothing of replay.
            let Ok((full, _)) = self.planned(&asks) else { continue };
            self.report.runs += 1;
            let (short, count) = match self.driver.replaying(&recording, &asks) {
                Ok(ran) => ran,
                Err(error) => return no(error.to_string()),
            };
            if let Some(difference) = full.difference(&short) {
                return no(format!(
                    "with a change at `{name}`, {difference}: something that a module does besides its result is \
                     missing; say `hookpoint::side_effect()` in its code"
                ));
            }
            (tried, replayed) = (tried + 1, replayed.max(count));
        }
        match (tried, replayed) {
            (0, _) => unknown("no value could be changed to try it"),
            (_, 0) => {
                yes("right, and of no use: every module before a change may do something besides its result")
            }
            (_, modules) => yes(format!("a change gives the same with up to {modules} modules left out")),
        }
    }

    /// Changes one row of a batch, and looks at the others.
    fn try_sweeps(&mut self, clean: &Output, cache: &ActivationCache) -> Result<Tried> {
        let Some(rows) = clean.rows().filter(|rows| *rows > 1) else {
            return unknown(
                "give an input of two or more different rows to see whether they influence each other",
            );
        };
        let is_batch = |tensor: &Tensor| tensor.dtype().is_float() && tensor.dims().first() == Some(&rows);
        let Some((name, _)) = cache.iter().find(|(_, tensor)| tensor.rank() > 1 && is_batch(tensor)) else {
            return unknown(format!("no value has {rows} rows, as the output has"));
        };
        let name = [name.to_string()];
        for row in [0, rows - 1] {
            let change = |_: &HookCtx<'_>, value: &Tensor| {
                let changed = Change::Shake.apply(&value.i(row..row + 1)?)?;
                let mut parts = vec![changed];
                if row > 0 {
                    parts.insert(0, value.narrow(0, 0, row)?);
                }
                if row + 1 < value.dim(0)? {
                    parts.push(value.narrow(0, row + 1, value.dim(0)? - row - 1)?);
                }
                Ok(Some(Tensor::cat(&parts, 0)?))
            };
            let output = match self.planned(&[Ask::Hook(&name, &change)]) {
                Ok((output, _)) => output,
                Err(error) => return unknown(format!("`{}` cannot be changed: {error}", name[0])),
            };
            let differing = clean.differing_rows(&output);
            if !differing.contains(&row) {
                return unknown(format!(
                    "a change of row {row} at `{}` does not show in the output",
                    name[0]
                ));
            }
            if let Some(other) = differing.iter().find(|other| **other != row) {
                return no(format!(
                    "a change of row {row} at `{}` changes row {other} of the output: rows influence each other, or the \
                     first dimension is no batch; use `.one_by_one()`",
                    name[0]
                ));
            }
        }
        yes(format!("changes of the first and the last of {rows} rows leave the other rows alone"))
    }

    fn try_threads(&mut self, dict: &HookDict) -> Result<Tried> {
        if !self.driver.is_shared() {
            return no("forward takes `&mut self`: one run at a time");
        }
        if let Some(name) = self.driver.state() {
            let place = if name.is_empty() { "the root".to_string() } else { format!("`{name}`") };
            return unknown(format!("{place} holds a cell or a lock, which runs at one time share"));
        }
        let unreached = self.report.check(Check::Reached).map_or(0, |checked| checked.failures().len());
        if unreached > 0 {
            return unknown(format!(
                "{unreached} points were not reached: work that forward code gives to other threads is not hooked"
            ));
        }
        yes(format!("nothing in the {} points can be changed by a run, as far as types tell", dict.len()))
    }

    fn try_gradients(&mut self) -> Result<Tried> {
        match self.driver.certified() {
            Ok(certificate) => {
                self.report.runs += certificate.runs();
                yes(certificate.to_string())
            }
            Err(error) => {
                use ErrorKind::{GradientDisagrees, GradientLost, GradientWrong};
                let is_wrong = matches!(
                    error.kind(),
                    GradientDisagrees { .. } | GradientLost { .. } | GradientWrong { .. }
                );
                if is_wrong {
                    return no(error.to_string());
                }
                unknown(error.to_string())
            }
        }
    }

    /// The model once more, with nothing asked.
    fn again(&mut self) -> Result<()> {
        self.report.runs += 1;
        self.driver.idle().map(drop)
    }
}
