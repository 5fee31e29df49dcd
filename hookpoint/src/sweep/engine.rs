//! How a sweep goes: record the model, work out what every cell changes, run what is left to run.

use std::cell::Cell as Passed;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use candle_core::{DType, Tensor};

use super::batch::{changed_rows, rows_of, Batch, Change};
use super::grid::{Cell, Grid};
use super::result::{SweepResult, Work};
use super::{Progress, Sweep};
use crate::cache::ActivationCache;
use crate::error::{Error, Result};
use crate::pattern::Pattern;
use crate::plan::Plan;
use crate::recording::Recording;
use crate::run::{HookCtx, Mode};
use crate::tree::{AutoHook, Kind};

/// How a new value is put in, so that one cell by itself is what a plan would do.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum How {
    Patch,
    Hook,
}

type Run<'e, M, X> = &'e dyn Fn(&M, &X) -> Result<Tensor>;
type Metric<'e> = &'e dyn Fn(&Tensor) -> Result<f64>;
type Edit<'e> = &'e dyn Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>>;

/// A sweep that has begun.
pub(super) struct Engine<'e, 'a, M, X> {
    sweep: Sweep<'a, M>,
    input: &'e X,
    run: Run<'e, M, X>,
    metric: Metric<'e>,
    recording: Recording,
    grid: Grid,
    /// What is at the points when nothing is changed.
    base: ActivationCache,
    baseline: f64,
    /// When the measured point is reached.
    measured: u32,
    /// How many cells may share a run.
    capacity: usize,
}

/// Values of two runs of the same may differ by this much of the largest, where forward code has more than
/// one way to compute them.
const SAME: f64 = 1e-3;

impl<'e, 'a, M: AutoHook, X: Batch> Engine<'e, 'a, M, X> {
    pub fn start(sweep: Sweep<'a, M>, input: &'e X, run: Run<'e, M, X>, metric: Metric<'e>) -> Result<Self> {
        let model = sweep.model;
        let (output, mut recording) = model.record(|m| run(m, input))?;
        let grid = Grid::of(model, &sweep.patterns, &recording, &sweep.names)?;
        let plan = cache_points(model.plan(), &sweep.patterns)?;
        let plan = match &sweep.measure_at {
            Some(point) => plan.cache(point.without_index())?,
            None => plan,
        };
        let again = plan.run(|m| run(m, input))?;
        if !is_same(&output, &again.output)? {
            return Err(Error::msg(
                "the model gives different outputs for the same input: no two cells could be compared\n  \
                 turn off what is random, such as dropout, and begin every run with the same state",
            ));
        }
        let mut measured = u32::MAX;
        if let Some(point) = &sweep.measure_at {
            let visits = recording.reached(point).into_iter().flat_map(|point| point.visits);
            let times: Vec<u32> = visits.map(|(time, _)| time).collect();
            measured = times.get(point.call().unwrap_or(0)).copied().unwrap_or(u32::MAX);
        }
        let baseline = match &sweep.measure_at {
            Some(point) => metric(&measured_part(point, &again.cache, 0, 1)?)?,
            None => metric(&output)?,
        };
        check_finite("with nothing changed", baseline)?;
        let one = recording.bytes_seen().max(1);
        let capacity = (sweep.budget / one).clamp(1, sweep.most_cells).min(grid.cells.len().max(1));
        if capacity > 1 {
            let twice = input.repeat(2)?;
            let (doubled, log) = model.note(Mode::Whole, false, || run(model, &twice))?;
            let halves = |half| rows_of("the output", &doubled, half, 2);
            let is_half = |half: Tensor| -> Result<bool> {
                Ok(half.dims() == output.dims() && is_same(&output, &half)?)
            };
            // Where an inner point is measured, the output need not have rows.
            if sweep.measure_at.is_none() && !(is_half(halves(0)?)? && is_half(halves(1)?)?) {
                return Err(Error::msg(
                    "two copies of the input side by side do not give the output twice: the rows of a batch \
                     depend on each other, or the first dimension is not the batch\n  sweep with \
                     `.one_by_one()`",
                ));
            }
            recording.compare_rows(&log);
        }
        let base = again.cache;
        Ok(Self { sweep, input, run, metric, recording, grid, base, baseline, measured, capacity })
    }

    /// The metric of another input, and what is at the points there.
    pub fn clean(&self, clean: &X) -> Result<(f64, ActivationCache)> {
        let plan = cache_points(self.sweep.model.plan(), &self.sweep.patterns)?;
        let plan = match &self.sweep.measure_at {
            Some(point) => plan.cache(point.without_index())?,
            None => plan,
        };
        let found = plan.run(|m| (self.run)(m, clean))?;
        let value = match &self.sweep.measure_at {
            Some(point) => (self.metric)(&measured_part(point, &found.cache, 0, 1)?)?,
            None => (self.metric)(&found.output)?,
        };
        check_finite("with the clean input", value)?;
        Ok((value, found.cache))
    }

    /// Makes all cells.
    pub fn finish(mut self, how: How, edit: Edit<'_>, clean: Option<f64>) -> Result<SweepResult> {
        let mut values: Vec<Option<f64>> = vec![None; self.grid.cells.len()];
        let mut parts: Vec<Option<Tensor>> = Vec::with_capacity(values.len());
        for (cell, value) in self.grid.cells.iter().zip(&mut values) {
            let part = self.change(cell, edit)?;
            // What changes nothing, or something that the metric never sees, needs no run.
            if part.is_none() || cell.time > self.measured {
                *value = Some(self.baseline);
            }
            parts.push(part);
        }
        let mut work = Work { unchanged: values.iter().flatten().count(), ..Work::default() };
        let mut watch = self.sweep.watch.take();
        let total = values.len();
        for batch in self.batches(&values) {
            let cells: Vec<Change<'_>> = batch
                .iter()
                .filter_map(|at| Some((self.grid.cells.get(*at)?, parts.get(*at)?.as_ref()?)))
                .collect();
            let (found, replayed) = self.measure(how, &cells, self.sweep.replay)?;
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
        self.check(how, &values, &parts)?;
        let names = self.grid.cells.iter().map(Cell::name).collect();
        Ok(SweepResult { baseline: self.baseline, clean, work, axes: self.grid.axes, names, values })
    }

    /// What a cell puts in; none where that is what is there anyway.
    fn change(&self, cell: &Cell, edit: Edit<'_>) -> Result<Option<Tensor>> {
        let base = self.base_of(cell)?;
        let part = match &cell.index {
            Some(index) => index.read(&cell.point, base)?,
            None => base.clone(),
        };
        let path = cell.path();
        let (passed, step) = (&Passed::new(false), None);
        let element = (!cell.places.is_empty()).then_some(cell.places.as_slice());
        let (kind, type_name, call) = (Kind::Value, "", cell.call);
        let ctx = HookCtx { path: &path, kind, call, element, type_name, step, passed };
        let Some(new) = edit(&ctx, &part)? else { return Ok(None) };
        if new.dims() != part.dims() {
            return Err(crate::error::ErrorKind::Shape {
                point: path,
                what: "what the edit gives".to_string(),
                expected: part.dims().to_vec(),
                found: new.dims().to_vec(),
                remedy: "give a tensor of the shape of what is there".to_string(),
            }
            .into());
        }
        let new = new.to_dtype(part.dtype())?.to_device(part.device())?.contiguous()?;
        Ok(Some(new).filter(|new| !is_equal(new, &part).unwrap_or(false)))
    }

    fn base_of(&self, cell: &Cell) -> Result<&Tensor> {
        let calls = self.base.calls(&cell.every_call);
        let missing = || Error::msg(format!("`{}` was not reached again by a second run", cell.point));
        calls.get(cell.call).copied().ok_or_else(missing)
    }

    /// The cells that are left, in groups that share a run. Those that are changed at the same time share
    /// what comes before; few of them are joined by others that come soon after.
    fn batches(&self, values: &[Option<f64>]) -> Vec<Vec<usize>> {
        /// So many cells keep a machine busy.
        const ENOUGH: usize = 8;
        let cells = self.grid.cells.iter().zip(values).enumerate();
        let mut left: Vec<(u32, usize)> =
            cells.filter(|(_, (_, value))| value.is_none()).map(|(at, (cell, _))| (cell.time, at)).collect();
        left.sort_unstable();
        let last = self.recording.duration();
        let mut batches: Vec<(u32, Vec<usize>)> = Vec::new();
        for (time, at) in left {
            let joins = |(first, batch): &&mut (u32, Vec<usize>)| {
                let soon = (time - first) * 8 <= last.saturating_sub(*first);
                batch.len() < self.capacity && (time == *first || (batch.len() < ENOUGH && soon))
            };
            match batches.last_mut().filter(joins) {
                Some((_, batch)) => batch.push(at),
                None => batches.push((time, vec![at])),
            }
        }
        batches.into_iter().map(|(_, batch)| batch).collect()
    }

    /// Runs the model with these cells side by side; gives the metric of each, and how many calls of modules
    /// were answered.
    fn measure(&self, how: How, cells: &[Change<'_>], replay: bool) -> Result<(Vec<f64>, usize)> {
        let (model, copies) = (self.sweep.model, cells.len());
        let mut plan = model.plan();
        if let [(cell, part)] = cells {
            plan = match how {
                How::Patch => plan.patch(cell.name(), part)?,
                How::Hook => plan.hook(cell.name(), |_, _| Ok(Some((*part).clone())))?,
            };
        } else {
            let mut points: BTreeMap<&str, Vec<(usize, Change<'_>)>> = BTreeMap::new();
            for (copy, change) in cells.iter().enumerate() {
                points.entry(change.0.point.as_str()).or_default().push((copy, *change));
            }
            for (point, changes) in points {
                let Some((_, (cell, _))) = changes.first() else { continue };
                let base = self.base_of(cell)?.dims().to_vec();
                plan = plan.hook(point, move |ctx, value| {
                    changed_rows(ctx.path(), value, &base, copies, &changes).map(Some)
                })?;
            }
        }
        if let Some(point) = &self.sweep.measure_at {
            plan = plan.cache(point.without_index())?;
        }
        if replay {
            plan = plan.replay_rows(&self.recording, copies)?;
        }
        let repeated = if copies == 1 { None } else { Some(self.input.repeat(copies)?) };
        let input = repeated.as_ref().unwrap_or(self.input);
        let Some(point) = &self.sweep.measure_at else {
            let run = plan.run(|m| (self.run)(m, input))?;
            let values = (0..copies).map(|copy| {
                let output = if copies == 1 {
                    run.output.clone()
                } else {
                    rows_of("the output", &run.output, copy, copies)?
                };
                (self.metric)(&output)
            });
            return Ok((values.collect::<Result<_>>()?, run.replayed().count()));
        };
        let (cache, replayed) = plan.collect_counting(|m| (self.run)(m, input))?;
        let values = (0..copies).map(|copy| (self.metric)(&measured_part(point, &cache, copy, copies)?));
        Ok((values.collect::<Result<_>>()?, replayed))
    }

    /// Makes some of the cells again, each by itself and through the whole model.
    fn check(&self, how: How, values: &[Option<f64>], parts: &[Option<Tensor>]) -> Result<()> {
        let done: Vec<usize> = (0..values.len())
            .filter(|at| {
                values.get(*at).is_some_and(Option::is_some) && parts.get(*at).is_some_and(Option::is_some)
            })
            .filter(|at| self.grid.cells.get(*at).is_some_and(|cell| cell.time <= self.measured))
            .collect();
        let step = done.len().div_ceil(self.sweep.verify.max(1)).max(1);
        for at in done.iter().step_by(step).take(self.sweep.verify) {
            let (Some(cell), Some(Some(part)), Some(Some(value))) =
                (self.grid.cells.get(*at), parts.get(*at), values.get(*at))
            else {
                continue;
            };
            let (alone, _) = self.measure(how, &[(cell, part)], false)?;
            let alone = alone.first().copied().unwrap_or(f64::NAN);
            let scale = value.abs().max(alone.abs()).max(self.baseline.abs());
            let same =
                if self.capacity == 1 { alone == *value } else { (alone - value).abs() <= SAME * scale };
            if !same {
                return Err(Error::msg(format!(
                    "`{}` gives {value} in the sweep and {alone} in a run of its own\n  the model has state, \
                     or is random, or its rows depend on each other: sweep with `.one_by_one()` or \
                     `.without_replay()`, or say where it changes something with `hookpoint::side_effect()`",
                    cell.name()
                )));
            }
        }
        Ok(())
    }
}

fn cache_points<'p, M: AutoHook>(mut plan: Plan<'p, M>, patterns: &[Pattern]) -> Result<Plan<'p, M>> {
    for pattern in patterns {
        plan = plan.cache(pattern.without_index().without_call())?;
    }
    Ok(plan)
}

/// What the metric is given, of one of several copies.
fn measured_part(point: &Pattern, cache: &ActivationCache, copy: usize, copies: usize) -> Result<Tensor> {
    let name = point.without_index().to_string();
    let whole = cache.try_get(&name)?;
    let rows = if copies == 1 { whole.clone() } else { rows_of(&name, whole, copy, copies)? };
    match point.index() {
        Some(index) => index.read(&name, &rows),
        None => Ok(rows),
    }
}

fn check_finite(when: &str, value: f64) -> Result<()> {
    if value.is_finite() {
        return Ok(());
    }
    Err(Error::msg(format!("the metric is {value} {when}\n  give a metric that is a number there")))
}

/// The same to the bit.
fn is_equal(one: &Tensor, other: &Tensor) -> candle_core::Result<bool> {
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
