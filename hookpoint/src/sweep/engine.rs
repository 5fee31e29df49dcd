//! How a sweep goes: record the model, work out what every cell changes, run what is left to run.

use std::cell::Cell as Passed;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use candle_core::{DType, Tensor};

use super::batch::{changed_rows, rows_of, whole_rows, Batch, Change};
use super::grid::{Cell, Grid, Place, Set};
use super::held::{Ask, Held};
use super::result::Work;
use super::room::Room;
use super::{Progress, Settings};
use crate::cache::ActivationCache;
use crate::error::{Error, ErrorKind, Result};
use crate::pattern::Pattern;
use crate::plan::{Keeps, Taped, Way};
use crate::recording::{reached, Recording};
use crate::run::{HookCtx, Listens};
use crate::tree::Kind;

/// How a new value is put in, so that one cell by itself is what a plan would do.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum How {
    Patch,
    Hook,
}

pub(super) type Edit<'e> = &'e dyn Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>>;

/// What a sweep wants to know of every run.
pub(super) struct Goal<'e, V> {
    /// Where it is measured; nowhere is the output.
    pub points: Vec<Pattern>,
    /// What is made of the values there, or of the output.
    pub read: &'e dyn Fn(Vec<Tensor>) -> Result<V>,
}

/// A sweep that has begun.
pub(super) struct Engine<'e, X, V> {
    held: &'e mut dyn Held<X>,
    settings: Settings<'e>,
    input: &'e X,
    goal: Goal<'e, V>,
    recording: Recording,
    /// What is at the points when nothing is changed.
    base: ActivationCache,
    /// What is wanted, when nothing is changed.
    pub baseline: V,
    /// When the last of the measured points is reached.
    measured: u32,
    /// How far runs with nothing changed go.
    until: Listens,
    room: Room,
}

/// What every cell gave.
pub(super) struct Made<V> {
    /// None for cells that a cancelled sweep did not get to.
    pub values: Vec<Option<V>>,
    pub work: Work,
    parts: Parts,
}

/// What every cell puts into its places; none where that is what is there anyway.
type Parts = Vec<Option<Vec<Tensor>>>;

/// Values of two runs of the same may differ by this much of the largest, where forward code has more than
/// one way to compute them.
pub(super) const SAME: f64 = 1e-3;

impl<'e, X: Batch, V: Clone> Engine<'e, X, V> {
    /// Runs the model with nothing changed. `points` are those that will be.
    pub fn start(
        held: &'e mut dyn Held<X>,
        settings: Settings<'e>,
        points: &[Pattern],
        input: &'e X,
        goal: Goal<'e, V>,
    ) -> Result<Self> {
        let mut room = Room::new(settings.budget, settings.most_cells);
        let tree = held.tree();
        let noting = |listens, keeps| Way { listens, notes: Some(keeps) };
        let times =
            held.run(Vec::new(), noting(Listens::SCAN, Keeps::Shapes), None, input)?.log.unwrap_or_default();
        let visits = |point: &Pattern| -> Vec<u32> {
            let reached = reached(&tree, &times.points, point);
            reached.into_iter().flat_map(|point| point.visits).map(|(time, _)| time).collect()
        };
        let mut measured = if goal.points.is_empty() { u32::MAX } else { 0 };
        for point in &goal.points {
            let time = visits(point).get(point.call().unwrap_or(0)).copied();
            measured = measured.max(time.unwrap_or(u32::MAX));
        }
        // Where nothing is changed behind the last measured point, no run need go on from there.
        let ends_early =
            !goal.points.is_empty() && points.iter().flat_map(visits).all(|time| time <= measured);
        let until = if ends_early { Listens::UNTIL_COLLECTED } else { Listens::NOBODY };
        let asks = || caches(&[], &goal.points);
        let mut first = held.run(asks(), noting(until, Keeps::Values), None, input)?;
        let mut recording = Recording::new(tree.clone(), times, first.log.take().unwrap_or_default());
        let plain = Way { listens: until, notes: None };
        let again = room.measure(1, || held.run(caches(points, &goal.points), plain, None, input))?;
        let both = values(&goal.points, &first, 0, 1)?.into_iter().zip(values(&goal.points, &again, 0, 1)?);
        for (first, again) in both {
            if !is_same(&first, &again)? {
                return Err(Error::msg(
                    "the model gives different outputs for the same input: no two cells could be compared\n  \
                     turn off what is random, such as dropout, and begin every run with the same state: reset it \
                     in the closure, or have a model that takes `&mut self` put back with `.restoring()`",
                ));
            }
        }
        let baseline = (goal.read)(values(&goal.points, &first, 0, 1)?)?;
        if settings.most_cells > 1 {
            let twice = input.repeat(2)?;
            let doubled = room.measure(2, || held.run(asks(), noting(until, Keeps::Shapes), None, &twice));
            let mut doubled = doubled.map_err(|error| {
                Error::msg(format!(
                    "the model cannot be run with two copies of the input side by side: {error}\n  sweep with \
                     `.one_by_one()`"
                ))
            })?;
            recording.compare_rows(&doubled.log.take().unwrap_or_default());
            for half in 0..2 {
                let halves = values(&goal.points, &doubled, half, 2)?.into_iter();
                for (half, whole) in halves.zip(values(&goal.points, &first, 0, 1)?) {
                    if !is_same(&whole, &half)? {
                        return Err(Error::msg(
                            "two copies of the input side by side do not give the output twice: the rows of a \
                             batch depend on each other, or the first dimension is not the batch\n  sweep with \
                             `.one_by_one()`",
                        ));
                    }
                }
            }
        }
        let base = again.cache;
        Ok(Self { held, settings, input, goal, recording, base, baseline, measured, until, room })
    }

    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// What is wanted of another input, and what is at the points there.
    pub fn other(&mut self, input: &X, points: &[Pattern]) -> Result<(V, ActivationCache)> {
        let way = Way { listens: self.until, notes: None };
        let ran = self.held.run(caches(points, &self.goal.points), way, None, input)?;
        Ok(((self.goal.read)(values(&self.goal.points, &ran, 0, 1)?)?, ran.cache))
    }

    /// Makes all cells with what `edit` gives.
    pub fn edit(&mut self, grid: &Grid, how: How, edit: Edit<'_>) -> Result<Made<V>> {
        let parts = |cell: &Cell| -> Result<Option<Vec<Tensor>>> {
            let parts = cell.places.iter().map(|place| self.edited(place, &cell.element, edit));
            parts.collect::<Result<Option<Vec<Tensor>>>>()
        };
        let parts = grid.cells.iter().map(parts).collect::<Result<Parts>>()?;
        self.finish(&grid.cells, how, parts)
    }

    /// Makes all cells with what is given for each of their places.
    pub fn put(&mut self, grid: &Grid, given: Vec<Vec<Tensor>>) -> Result<Made<V>> {
        let parts = |(cell, given): (&Cell, Vec<Tensor>)| -> Result<Option<Vec<Tensor>>> {
            let parts = cell.places.iter().zip(given);
            let parts: Vec<Tensor> =
                parts.map(|(place, part)| self.fitting(place, part)).collect::<Result<_>>()?;
            Ok(Some(parts).filter(|parts| !self.is_base(cell, parts)))
        };
        let parts = grid.cells.iter().zip(given).map(parts).collect::<Result<Parts>>()?;
        self.finish(&grid.cells, How::Patch, parts)
    }

    fn finish(&mut self, cells: &[Cell], how: How, parts: Parts) -> Result<Made<V>> {
        // What changes nothing, or something that is never seen, needs no run.
        let known = |(cell, parts): (&Cell, &Option<_>)| match parts {
            Some(_) if cell.time <= self.measured => None,
            _ => Some(self.baseline.clone()),
        };
        let mut values: Vec<Option<V>> = cells.iter().zip(&parts).map(known).collect();
        let mut work = Work { unchanged: values.iter().flatten().count(), ..Work::default() };
        let mut watch = self.settings.watch.take();
        let total = values.len();
        let mut left: Vec<(u32, usize)> = Vec::new();
        for (at, (cell, value)) in cells.iter().zip(&values).enumerate() {
            if value.is_none() {
                left.push((cell.time, at));
            }
        }
        left.sort_unstable();
        let changed = left.iter().filter_map(|(_, at)| cells.get(*at)).flat_map(|cell| &cell.places);
        let largest = changed.filter_map(|place| Some(bytes(self.base_of(place).ok()?))).max().unwrap_or(0);
        let times: Vec<u32> = left.iter().map(|(time, _)| *time).collect();
        self.room.expect(&self.recording, if self.settings.replay { &times } else { &[] }, largest);
        let mut left = left.as_slice();
        while !left.is_empty() {
            let (batch, rest) = left.split_at(self.next_batch(left));
            left = rest;
            let here: Vec<(&Cell, &[Tensor])> = batch
                .iter()
                .filter_map(|(_, at)| Some((cells.get(*at)?, parts.get(*at)?.as_deref()?)))
                .collect();
            let (found, replayed) = self.measure(how, &here, self.settings.replay)?;
            for ((_, at), found) in batch.iter().zip(found) {
                if let Some(value) = values.get_mut(*at) {
                    *value = Some(found);
                }
            }
            work.forwards += 1;
            work.replayed += replayed;
            work.most_cells = work.most_cells.max(batch.len());
            let done = values.iter().flatten().count();
            let progress = Progress { done, total, forwards: work.forwards };
            let flow = watch.as_mut().map(|watch| watch(&progress));
            if flow == Some(ControlFlow::Break(())) {
                break;
            }
        }
        Ok(Made { values, work, parts })
    }

    /// How many of the cells that are left, sorted by time, share the next run. Those that are changed at the
    /// same time share what comes before; few of them are joined by others that come soon after.
    fn next_batch(&self, left: &[(u32, usize)]) -> usize {
        /// So many cells keep a machine busy.
        const ENOUGH: usize = 8;
        let (first, last) = (left.first().map_or(0, |(time, _)| *time), self.recording.duration());
        let joins = |(at, (time, _)): &(usize, &(u32, usize))| {
            let soon = (time - first) * 8 <= last.saturating_sub(first);
            *at < self.room.cells() && (*time == first || (*at < ENOUGH && soon))
        };
        left.iter().enumerate().take_while(joins).count().max(1)
    }

    /// What an edit makes of the value at a place; none where that is what is there anyway.
    fn edited(&self, place: &Place, element: &[usize], edit: Edit<'_>) -> Result<Option<Tensor>> {
        let part = place.part_of(self.base_of(place)?)?;
        let path = place.path();
        let (passed, step) = (&Passed::new(false), None);
        let element = (!element.is_empty()).then_some(element);
        let (kind, type_name, call) = (Kind::Value, "", place.call);
        let ctx = HookCtx { path: &path, kind, call, element, type_name, step, passed };
        let Some(new) = edit(&ctx, &part)? else { return Ok(None) };
        let new = same_shape(path, "what the edit gives", new, &part)?;
        Ok(Some(new).filter(|new| !is_equal(new, &part).unwrap_or(false)))
    }

    /// A given part, as a patch would take it.
    fn fitting(&self, place: &Place, part: Tensor) -> Result<Tensor> {
        let there = place.part_of(self.base_of(place)?)?;
        // A part may be broadcast, as a patch with an index may.
        let part = match place.index.is_some() && part.dims() != there.dims() {
            true => part.broadcast_as(there.shape()).unwrap_or(part),
            false => part,
        };
        same_shape(place.path(), "the patch", part, &there)
    }

    fn is_base(&self, cell: &Cell, parts: &[Tensor]) -> bool {
        cell.places.iter().zip(parts).all(|(place, part)| {
            let there = self.base_of(place).and_then(|base| place.part_of(base));
            there.is_ok_and(|there| is_equal(part, &there).unwrap_or(false))
        })
    }

    fn base_of(&self, place: &Place) -> Result<&Tensor> {
        let calls = self.base.calls(&place.every_call);
        let missing = || Error::msg(format!("`{}` was not reached again by a second run", place.point));
        calls.get(place.call).copied().ok_or_else(missing)
    }

    /// Runs the model with these cells side by side; gives what is wanted of each, and how many calls of
    /// modules were answered.
    fn measure(&mut self, how: How, cells: &[(&Cell, &[Tensor])], replay: bool) -> Result<(Vec<V>, usize)> {
        let (copies, measured) = (cells.len(), self.measured);
        // A run that ends early does not get to what comes later.
        let reached = |(place, _): &(&Arc<Place>, &Tensor)| place.time <= measured;
        let mut asks: Vec<Ask<'_>> = Vec::new();
        if let [(cell, parts)] = cells {
            for (place, part) in cell.places.iter().zip(*parts).filter(reached) {
                asks.push(match how {
                    How::Patch => Ask::Patch(place.name(), part.clone()),
                    How::Hook => Ask::Hook(place.name(), Rc::new(|_, _| Ok(Some(part.clone())))),
                });
            }
        } else {
            let mut points: BTreeMap<&str, Vec<(usize, Change<'_>)>> = BTreeMap::new();
            for (copy, (cell, parts)) in cells.iter().enumerate() {
                for (place, part) in cell.places.iter().zip(*parts).filter(reached) {
                    points.entry(place.point.as_str()).or_default().push((copy, (place, part)));
                }
            }
            for (point, changes) in points {
                let Some((_, (place, _))) = changes.first() else { continue };
                if let Some(whole) = whole_rows(copies, &changes)? {
                    asks.push(Ask::Patch(point.to_string(), whole));
                    continue;
                }
                let base = self.base_of(place)?.dims().to_vec();
                let hook = move |ctx: &HookCtx<'_>, value: &Tensor| {
                    changed_rows(ctx.path(), value, &base, copies, &changes).map(Some)
                };
                asks.push(Ask::Hook(point.to_string(), Rc::new(hook)));
            }
        }
        asks.extend(caches(&[], &self.goal.points));
        let listens = if self.goal.points.is_empty() { Listens::NOBODY } else { Listens::UNTIL_COLLECTED };
        let replay = replay.then_some((&self.recording, copies));
        let (held, goal, input) = (&mut *self.held, &self.goal, self.input);
        self.room.measure(copies, || {
            let repeated = if copies == 1 { None } else { Some(input.repeat(copies)?) };
            let way = Way { listens, notes: None };
            let ran = held.run(asks, way, replay, repeated.as_ref().unwrap_or(input))?;
            let found = (0..copies).map(|copy| (goal.read)(values(&goal.points, &ran, copy, copies)?));
            Ok((found.collect::<Result<_>>()?, ran.replayed))
        })
    }
}

impl<X: Batch> Engine<'_, X, f64> {
    /// Makes some of the cells again, each by itself and through the whole model.
    pub fn verify(&mut self, cells: &[Cell], how: How, made: &Made<f64>) -> Result<()> {
        let mut done: Vec<(&Cell, f64, &[Tensor])> = Vec::new();
        for ((cell, value), parts) in cells.iter().zip(&made.values).zip(&made.parts) {
            if let (Some(value), Some(parts)) = (value, parts) {
                if cell.time <= self.measured {
                    done.push((cell, *value, parts));
                }
            }
        }
        let step = done.len().div_ceil(self.settings.verify.max(1)).max(1);
        for (cell, value, parts) in done.into_iter().step_by(step).take(self.settings.verify) {
            let (alone, _) = self.measure(how, &[(cell, parts)], false)?;
            let alone = alone.first().copied().unwrap_or(f64::NAN);
            let scale = value.abs().max(alone.abs()).max(self.baseline.abs());
            let same = match self.settings.most_cells {
                1 => alone == value,
                _ => (alone - value).abs() <= SAME * scale,
            };
            if !same {
                return Err(Error::msg(format!(
                    "`{}` gives {value} in the sweep and {alone} in a run of its own\n  the model has state, \
                     or is random, or its rows depend on each other: sweep with `.one_by_one()` or \
                     `.without_replay()`, or say where it changes something with `hookpoint::side_effect()`",
                    cell.name
                )));
            }
        }
        Ok(())
    }
}

/// What a run has at these points, or else as its output, in the rows of one of several copies.
fn values(points: &[Pattern], ran: &Taped<Tensor>, copy: usize, copies: usize) -> Result<Vec<Tensor>> {
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

/// The points that sets change, each once.
pub(super) fn points_of(sets: &[Set]) -> Vec<Pattern> {
    let mut points: BTreeMap<String, Pattern> = BTreeMap::new();
    for (pattern, _) in sets.iter().flat_map(|(_, entries)| entries) {
        let point = pattern.without_index().without_call();
        points.entry(point.to_string()).or_insert(point);
    }
    points.into_values().collect()
}

fn caches(points: &[Pattern], measured: &[Pattern]) -> Vec<Ask<'static>> {
    let changed = points.iter().map(|point| point.without_index().without_call());
    changed.chain(measured.iter().map(Pattern::without_index)).map(Ask::Cache).collect()
}

/// As what is there in everything but its numbers.
fn same_shape(point: String, what: &str, new: Tensor, there: &Tensor) -> Result<Tensor> {
    if new.dims() != there.dims() {
        return Err(ErrorKind::Shape {
            point,
            what: what.to_string(),
            expected: there.dims().to_vec(),
            found: new.dims().to_vec(),
            remedy: "give a tensor of the shape of what is there".to_string(),
        }
        .into());
    }
    Ok(new.to_dtype(there.dtype())?.to_device(there.device())?.contiguous()?)
}

pub(super) fn bytes(tensor: &Tensor) -> usize {
    tensor.elem_count() * tensor.dtype().size_in_bytes()
}

/// The same to the bit.
fn is_equal(one: &Tensor, other: &Tensor) -> candle_core::Result<bool> {
    if one.id() == other.id() {
        return Ok(true);
    }
    let unequal = one.ne(&other.contiguous()?)?.to_dtype(DType::F32)?.sum_all()?;
    Ok(unequal.to_scalar::<f32>()? == 0.)
}

/// The same but for rounding.
fn is_same(one: &Tensor, other: &Tensor) -> Result<bool> {
    if one.dims() != other.dims() {
        return Ok(false);
    }
    if one.elem_count() == 0 {
        return Ok(true);
    }
    let largest = |tensor: Tensor| -> candle_core::Result<f64> {
        // A NaN or an infinity, such as that of a mask, is no difference.
        let finite = tensor.flatten_all()?.to_vec1::<f64>()?.into_iter().filter(|value| value.is_finite());
        Ok(finite.fold(0., |most, value| most.max(value.abs())))
    };
    let (one, other) = (one.to_dtype(DType::F64)?, other.to_dtype(DType::F64)?);
    let difference = largest((&one - &other)?)?;
    Ok(difference <= SAME * largest(one)?)
}
