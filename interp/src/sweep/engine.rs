//! How a sweep goes: record the model, work out what every cell changes, run what is left to run.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use candle_core::{DType, Tensor};
use hookpoint::memory::{self, bytes_of};
use hookpoint::{ActivationCache, ErrorKind, HookCtx, Pattern, Result};

use super::batch::Batch;
use super::check::moved;
use super::grid::{Cell, Grid, Ground, Place, Point, Set};
use super::held::{Recorded, Runs, Until};
use super::result::Work;
use super::room::Room;
use super::side::{caches, values, Copy, Run};
use super::verify::{Outcome, Verifier};
use super::{Progress, Settings};

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
    /// When the last of the points is reached.
    pub time: u32,
    /// How far runs with nothing changed go.
    until: Until,
}

impl<'e, V> Goal<'e, V> {
    pub fn new(points: Vec<Pattern>, read: &'e dyn Fn(Vec<Tensor>) -> Result<V>) -> Self {
        Self { points, read, time: u32::MAX, until: Until::End }
    }
}

/// A sweep that has begun.
pub(super) struct Engine<'e, X, V> {
    pub(super) held: &'e mut dyn Runs<X>,
    pub(super) settings: Settings<'e>,
    pub(super) input: &'e X,
    pub(super) goal: Goal<'e, V>,
    pub(super) ground: Ground,
    /// What is wanted, when nothing is changed.
    pub baseline: V,
    /// What it is made of.
    pub(super) unchanged: Vec<Tensor>,
    pub(super) room: Room,
    /// How far a turned bit has taken results, in units of their last place, where that was found out.
    pub(super) turned: Option<f64>,
}

/// What every cell gave.
pub(super) struct Made<V> {
    /// None for cells that a cancelled sweep did not get to.
    pub values: Vec<Option<V>>,
    pub work: Work,
}

/// What every cell puts into its places; none where that is what is there anyway.
type Parts = Vec<Option<Vec<Tensor>>>;

impl<'e, X: Batch, V: Outcome> Engine<'e, X, V> {
    /// Runs the model with nothing changed. `points` are those that will be.
    pub fn start(
        held: &'e mut dyn Runs<X>,
        settings: Settings<'e>,
        points: &[Pattern],
        input: &'e X,
        mut goal: Goal<'e, V>,
    ) -> Result<Self> {
        let mut room = Room::new(settings.budget, settings.most_cells);
        let measured: Vec<Pattern> = goal.points.iter().map(Pattern::without_index).collect();
        let (recorded, recording) = held.record(&measured, input)?;
        let visits = |point: &Pattern| -> Result<Vec<u32>> {
            let reached = recording.reached(point)?.into_iter();
            Ok(reached.flat_map(|point| point.visits).map(|visit| visit.time).collect())
        };
        let mut last = 0;
        for point in &goal.points {
            let time = visits(point)?.get(point.call().unwrap_or(0)).copied();
            last = last.max(time.unwrap_or(u32::MAX));
        }
        if !goal.points.is_empty() {
            goal.time = last;
            // Where nothing is changed behind the last measured point, no run need go on from there.
            let changes = points.iter().map(visits).collect::<Result<Vec<_>>>()?;
            if changes.into_iter().flatten().all(|time| time <= goal.time) {
                goal.until = Until::Cached;
            }
        }
        let (first, peak) =
            memory::peak_of(|| held.run(caches(points, &goal.points), goal.until, Recorded::Nothing, input));
        room.note(1, peak);
        let first = first?;
        let unchanged = values(&goal.points, &first, 0, 1)?;
        let again = values(&goal.points, &recorded, 0, 1)?;
        let baseline = (goal.read)(unchanged.clone())?;
        let ground = Ground { recording, base: first.cache };
        let mut engine =
            Self { held, settings, input, goal, ground, baseline, unchanged, room, turned: None };
        engine.check_repeats(&again)?;
        Ok(engine)
    }

    /// What is wanted of another input, and what is at the points there.
    pub fn other(&mut self, input: &X, points: &[Pattern]) -> Result<(V, ActivationCache)> {
        let asks = caches(points, &self.goal.points);
        let ran = self.held.run(asks, self.goal.until, Recorded::Nothing, input)?;
        Ok(((self.goal.read)(values(&self.goal.points, &ran, 0, 1)?)?, ran.cache))
    }

    /// Makes all cells with what another run has in their places.
    pub fn exchange(&mut self, grid: &Grid, donors: &ActivationCache) -> Result<Made<V>> {
        // Cells of one point follow each other.
        let mut last: Option<(Arc<Point>, Tensor)> = None;
        let mut parts = Parts::with_capacity(grid.cells.len());
        for cell in &grid.cells {
            let mut of_cell = Vec::with_capacity(cell.places.len());
            for place in &cell.places {
                let donor = match &last {
                    Some((point, donor)) if Arc::ptr_eq(point, &place.point) => donor.clone(),
                    _ => donor_of(&place.point, donors)?,
                };
                last = Some((place.point.clone(), donor.clone()));
                let (there, new) = (place.there()?, place.part_of(&donor)?);
                of_cell.push(same_shape(place.path(), "the activation", SAME_INPUTS, new, &there)?);
            }
            parts.push(Some(of_cell).filter(|parts| !is_base(cell, parts)));
        }
        self.finish(&grid.cells, How::Patch, parts)
    }

    /// Makes all cells with what `edit` gives.
    pub fn edit(&mut self, grid: &Grid, edit: Edit<'_>) -> Result<Made<V>> {
        let parts = |cell: &Cell| -> Result<Option<Vec<Tensor>>> {
            let parts = cell.places.iter().map(|place| edited(place, &cell.element, edit));
            parts.collect::<Result<Option<Vec<Tensor>>>>()
        };
        let parts = grid.cells.iter().map(parts).collect::<Result<Parts>>()?;
        self.finish(&grid.cells, How::Hook, parts)
    }

    /// Makes all cells with what is given for each of their places.
    pub fn put(&mut self, grid: &Grid, given: Vec<Vec<Tensor>>) -> Result<Made<V>> {
        let parts = |(cell, given): (&Cell, Vec<Tensor>)| -> Result<Option<Vec<Tensor>>> {
            let parts = cell.places.iter().zip(given);
            let parts: Vec<Tensor> =
                parts.map(|(place, part)| fitting(place, part)).collect::<Result<_>>()?;
            Ok(Some(parts).filter(|parts| !is_base(cell, parts)))
        };
        let parts = grid.cells.iter().zip(given).map(parts).collect::<Result<Parts>>()?;
        self.finish(&grid.cells, How::Patch, parts)
    }

    fn finish(&mut self, cells: &[Cell], how: How, parts: Parts) -> Result<Made<V>> {
        // What changes nothing, or something that is never seen, needs no run.
        let known = |(cell, parts): (&Cell, &Option<_>)| match parts {
            Some(_) if cell.time <= self.goal.time => None,
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
        let order: Vec<usize> = left.iter().map(|(_, at)| *at).collect();
        let mut verifier = Verifier::new(self.settings.verify, &order);
        if left.len() > 1 && self.settings.most_cells > 1 {
            match self.first_to_check(cells, &parts, &left)? {
                Some(telling) if !verifier.is_off() => self.check_beside(how, &mut verifier, telling)?,
                _ => self.check_copies(how, &mut verifier.checks)?,
            }
        }
        let changed = left.iter().filter_map(|(_, at)| cells.get(*at)).flat_map(|cell| &cell.places);
        let largest = changed.map(|place| bytes_of(&place.point.there)).max().unwrap_or(0);
        let times: Vec<u32> = left.iter().map(|(time, _)| *time).collect();
        self.room.expect(&self.ground.recording, if self.settings.replay { &times } else { &[] }, largest)?;
        let run = if self.settings.replay { Run::Replayed } else { Run::Whole };
        if left.len() > 1 && self.settings.most_cells > 1 {
            let most = self.batches(&left).map(|batch| batch.len()).max().unwrap_or(0);
            self.check_disturbed(how, &mut verifier, (cells, &order), most)?;
        }
        let mut left = left.as_slice();
        while !left.is_empty() {
            let (batch, rest) = left.split_at(self.next_batch(left));
            left = rest;
            let batch: Vec<usize> = batch.iter().map(|(_, at)| *at).collect();
            let copies: Vec<Copy<'_>> =
                batch.iter().map(|at| Some((cells.get(*at)?, parts.get(*at)?.as_deref()?))).collect();
            let (made, peak) = memory::peak_of(|| -> Result<_> {
                let ran = self.run_copies(how, &copies, run, Vec::new())?;
                let measured = (0..copies.len()).map(|copy| self.read(&ran, copy, copies.len()));
                let measured: Vec<Vec<Tensor>> = measured.collect::<Result<_>>()?;
                let found = measured.iter().map(|measured| (self.goal.read)(measured.clone()));
                Ok((found.collect::<Result<Vec<V>>>()?, measured, ran.replayed))
            });
            self.room.note(copies.len(), peak);
            let (found, measured, replayed) = made?;
            let all = (cells, parts.as_slice());
            self.check_run(how, &mut verifier, all, &batch, (&measured, &found), left.is_empty())?;
            for (at, found) in batch.iter().zip(found) {
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
        self.check_largest(how, &mut verifier, (cells, &parts))?;
        work.checks = verifier.checks;
        Ok(Made { values, work })
    }

    /// The cell that is put beside an unchanged row: one of the first to be made, since most of the model comes
    /// behind it; of the two ends of that run the one that changes more.
    fn first_to_check<'c>(
        &self,
        cells: &'c [Cell],
        parts: &'c Parts,
        left: &[(u32, usize)],
    ) -> Result<Option<(usize, &'c Cell, &'c [Tensor])>> {
        let first = left.first().map_or(0, |(time, _)| *time);
        let run = left.iter().take_while(|(time, _)| *time == first).take(self.settings.most_cells);
        let mut run = run.filter_map(|(_, at)| Some((*at, cells.get(*at)?, parts.get(*at)?.as_deref()?)));
        let Some(first) = run.next() else { return Ok(None) };
        let Some(last) = run.last() else { return Ok(Some(first)) };
        let moves = |(_, cell, parts): &(usize, &Cell, &[Tensor])| -> Result<f64> {
            let moves = cell.places.iter().zip(*parts);
            let moves = moves.map(|(place, part)| moved(part, &place.there()?));
            Ok(moves.collect::<Result<Vec<f64>>>()?.into_iter().fold(0., f64::max))
        };
        Ok(Some(if moves(&last)? > moves(&first)? { last } else { first }))
    }

    /// The runs of these cells, as far as it is known what they will take.
    fn batches<'l>(
        &self,
        mut left: &'l [(u32, usize)],
    ) -> impl Iterator<Item = &'l [(u32, usize)]> + use<'l, '_, 'e, X, V> {
        std::iter::from_fn(move || {
            let (batch, rest) = left.split_at(self.next_batch(left).min(left.len()));
            left = rest;
            Some(batch).filter(|batch| !batch.is_empty())
        })
    }

    /// How many of the cells that are left, sorted by time, share the next run. Those that are changed at the
    /// same time share what comes before; few of them are joined by others that come soon after.
    fn next_batch(&self, left: &[(u32, usize)]) -> usize {
        /// So many cells keep a machine busy.
        const ENOUGH: usize = 8;
        let (first, last) = (left.first().map_or(0, |(time, _)| *time), self.ground.recording.duration());
        let joins = |(at, (time, _)): &(usize, &(u32, usize))| {
            let soon = (time - first) * 8 <= last.saturating_sub(first);
            *at < self.room.cells() && (*time == first || (*at < ENOUGH && soon))
        };
        left.iter().enumerate().take_while(joins).count().max(1)
    }
}

/// What an edit makes of the value at a place; none where that is what is there anyway.
fn edited(place: &Place, element: &[usize], edit: Edit<'_>) -> Result<Option<Tensor>> {
    let (part, path) = (place.there()?, place.path());
    let mut ctx = HookCtx::by_hand(&path).with_call(place.point.call);
    if !element.is_empty() {
        ctx = ctx.with_element(element);
    }
    let Some(new) = edit(&ctx, &part)? else { return Ok(None) };
    let new = same_shape(path, "what the edit gives", SAME_SHAPE, new, &part)?;
    Ok(Some(new).filter(|new| !is_equal(new, &part).unwrap_or(false)))
}

/// A given part, as a patch would take it.
fn fitting(place: &Place, part: Tensor) -> Result<Tensor> {
    let there = place.there()?;
    // A part may be broadcast, as a patch with an index may.
    let part = match place.index.is_some() && part.dims() != there.dims() {
        true => part.broadcast_as(there.shape()).unwrap_or(part),
        false => part,
    };
    same_shape(place.path(), "the patch", SAME_SHAPE, part, &there)
}

fn is_base(cell: &Cell, parts: &[Tensor]) -> bool {
    cell.places
        .iter()
        .zip(parts)
        .all(|(place, part)| place.there().is_ok_and(|there| is_equal(part, &there).unwrap_or(false)))
}

/// What another run has at a point: a single value serves every call, several serve one each.
fn donor_of(point: &Point, donors: &ActivationCache) -> Result<Tensor> {
    let calls = donors.calls(&point.every_call);
    match calls.as_slice() {
        [] | [_] => Ok(donors.try_get(&point.every_call)?.clone()),
        many => many.get(point.call).map(|donor| Tensor::clone(donor)).ok_or_else(|| {
            let (point, clean, corrupted) = (point.every_call.clone(), many.len(), point.call + 1);
            ErrorKind::CallsDiffer { point, clean, corrupted }.into()
        }),
    }
}

/// The points that sets change, each once.
pub(super) fn points_of(sets: &[Set]) -> Vec<Pattern> {
    let points = sets.iter().flat_map(|(_, entries)| entries);
    let mut met = HashSet::new();
    points
        .map(|(pattern, _)| pattern.without_index().without_call())
        .filter(|point| met.insert(point.clone()))
        .collect()
}

const SAME_SHAPE: &str = "give a tensor of the shape of what is there";
const SAME_INPUTS: &str = "take the activations of inputs of the same shape";

/// As what is there in everything but its numbers.
fn same_shape(point: String, what: &str, remedy: &str, new: Tensor, there: &Tensor) -> Result<Tensor> {
    if new.dims() != there.dims() {
        return Err(ErrorKind::Shape {
            point,
            what: what.to_string(),
            expected: there.dims().to_vec(),
            found: new.dims().to_vec(),
            remedy: remedy.to_string(),
        }
        .into());
    }
    Ok(HookCtx::by_hand(&point)
        .converted(what, &new, there.dtype())?
        .to_device(there.device())?
        .contiguous()?)
}

/// The same to the bit.
fn is_equal(one: &Tensor, other: &Tensor) -> candle_core::Result<bool> {
    if one.id() == other.id() {
        return Ok(true);
    }
    let unequal = one.ne(&other.contiguous()?)?.to_dtype(DType::F32)?.sum_all()?;
    Ok(unequal.to_scalar::<f32>()? == 0.)
}
