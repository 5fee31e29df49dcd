//! One run of a sweep: cells side by side, each with its change in the rows of its own copy of the input.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use candle_core::Tensor;
use hookpoint::{HookCtx, Pattern, Result};

use super::batch::{changed_rows, rows_of, whole_rows, Batch, Change};
use super::engine::{Engine, How};
use super::grid::{Cell, Place, Point};
use super::held::{Ask, Ran, Recorded, Until};
use super::verify::Outcome;

/// Changes at one point, each with the number of its copy.
type Changes<'c> = Vec<(usize, Change<'c>)>;

/// A copy of the input, with the cell that changes something in it and what that puts in.
pub(super) type Copy<'c> = Option<(&'c Cell, &'c [Tensor])>;

/// How a run of cells is made.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Run {
    /// What comes before the changes is answered.
    Replayed,
    /// All of the model runs.
    Whole,
    /// All of it runs, and its calls are noted.
    Noted,
}

impl<X: Batch, V: Outcome> Engine<'_, X, V> {
    /// Runs the model with these copies of the input side by side. `asks` come before what the cells change.
    pub fn run_copies<'c>(
        &mut self,
        how: How,
        copies: &[Copy<'c>],
        run: Run,
        mut asks: Vec<Ask<'c>>,
    ) -> Result<Ran> {
        let (count, measured) = (copies.len(), self.goal.time);
        // A run that ends early does not get to what comes later.
        let reached = |(place, _): &(&'c Arc<Place>, &'c Tensor)| place.point.time <= measured;
        if let [Some((cell, parts))] = copies {
            for (place, part) in cell.places.iter().zip(*parts).filter(reached) {
                asks.push(match how {
                    How::Patch => Ask::Patch(place.pattern(), part.clone()),
                    How::Hook => Ask::Hook(place.pattern(), Rc::new(|_, _| Ok(Some(part.clone())))),
                });
            }
        } else {
            let mut points: BTreeMap<&str, (&Point, Changes<'c>)> = BTreeMap::new();
            let changed = copies.iter().enumerate().filter_map(|(copy, cell)| Some((copy, (*cell)?)));
            for (copy, (cell, parts)) in changed {
                for (place, part) in cell.places.iter().zip(parts).filter(reached) {
                    let (_, changes) = points.entry(&place.point.name).or_insert((&place.point, Vec::new()));
                    changes.push((copy, (place, part)));
                }
            }
            for (point, changes) in points.into_values() {
                if let Some(whole) = whole_rows(count, &changes)? {
                    asks.push(Ask::Patch(point.pattern.clone(), whole));
                    continue;
                }
                let hook = move |ctx: &HookCtx<'_>, value: &Tensor| {
                    changed_rows(ctx.path(), value, point.there.dims(), count, &changes).map(Some)
                };
                asks.push(Ask::Hook(point.pattern.clone(), Rc::new(hook)));
            }
        }
        asks.extend(caches(&[], &self.goal.points));
        let until = if self.goal.points.is_empty() { Until::End } else { Until::Cached };
        let recorded = match run {
            Run::Replayed => Recorded::Replayed(&self.ground.recording, count),
            Run::Noted => Recorded::Noted(&self.ground.recording, count),
            Run::Whole => Recorded::Nothing,
        };
        let repeated = if count == 1 { None } else { Some(self.input.repeat(count)?) };
        self.held.run(asks, until, recorded, repeated.as_ref().unwrap_or(self.input))
    }

    /// What is measured of one of the copies.
    pub fn read(&self, ran: &Ran, copy: usize, copies: usize) -> Result<Vec<Tensor>> {
        values(&self.goal.points, ran, copy, copies)
    }
}

/// What a run has at these points, or else as its output, in the rows of one of several copies.
pub(super) fn values(points: &[Pattern], ran: &Ran, copy: usize, copies: usize) -> Result<Vec<Tensor>> {
    let rows = |what: &str, value: &Tensor| match copies {
        1 => Ok(value.clone()),
        _ => rows_of(what, value, copy, copies),
    };
    let part = |point: &Pattern| -> Result<Tensor> {
        let name = point.without_index().to_string();
        let value = match point.call() {
            Some(_) => ran.cache.try_get(&name)?,
            // A run that ends early has no more than the first call.
            None => ran.cache.calls(&name).first().copied().map_or_else(|| ran.cache.try_get(&name), Ok)?,
        };
        let value = rows(&name, value)?;
        match point.index() {
            Some(index) => index.read(&name, &value),
            None => Ok(value),
        }
    };
    match &ran.output {
        Some(output) if points.is_empty() => Ok(vec![rows("the output", output)?]),
        _ => points.iter().map(part).collect(),
    }
}

/// Keeps what is at these points, every call of it, and at those that are measured.
pub(super) fn caches(points: &[Pattern], measured: &[Pattern]) -> Vec<Ask<'static>> {
    let changed = points.iter().map(|point| point.without_index().without_call());
    changed.chain(measured.iter().map(Pattern::without_index)).map(Ask::Cache).collect()
}
