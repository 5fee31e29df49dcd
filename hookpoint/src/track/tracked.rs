//! What a tracker has kept and computed, of values or of gradients.

use std::cell::RefCell;

use candle_core::Tensor;

use super::keep::{Buffer, Buffers, Keep};
use super::reduce::{Over, Stats};
use crate::access::Access;
use crate::error::{Error, ErrorKind, Result};
use crate::pattern::Pattern;
use crate::plan::Plan;
use crate::run::{CacheOptions, HookCtx};
use crate::select::nearest;
use crate::tree::AutoHook;

/// What a [`Tracker`](super::Tracker) has recorded and reduced: of values, which it shows itself, or of
/// gradients, see [`Tracker::grads`](super::Tracker::grads).
#[derive(Clone, Debug, Default)]
pub struct Tracked {
    pub(super) records: Vec<Record>,
    pub(super) reductions: Vec<Reduction>,
    taken: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub patterns: Vec<Pattern>,
    pub options: CacheOptions,
    pub buffers: Buffers,
}

impl Record {
    pub fn new((patterns, options): (Vec<Pattern>, CacheOptions), keep: Keep) -> Self {
        Self { patterns, options, buffers: Buffers { keep, points: Vec::new() } }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Reduction {
    pub patterns: Vec<Pattern>,
    pub over: Over,
    pub points: Vec<(String, Stats)>,
}

/// What one run gives: for each record the values, and for each reduction what its points have seen.
pub(super) struct Step {
    pub recorded: Vec<Vec<(String, Tensor)>>,
    pub reduced: Vec<Vec<(String, Stats)>>,
}

/// What a plan is asked to show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Values,
    Grads,
}

impl Tracked {
    /// The points at which something was recorded.
    pub fn recorded(&self) -> impl Iterator<Item = &str> {
        self.buffers().map(|buffer| buffer.name.as_str())
    }

    /// The points at which something was reduced.
    pub fn reduced(&self) -> impl Iterator<Item = &str> {
        self.reductions.iter().flat_map(|reduction| &reduction.points).map(|(name, _)| name.as_str())
    }

    /// The values that are kept of a point, with the steps that gave them, oldest first. A point that a step
    /// reaches several times has several.
    pub fn values(&self, point: &str) -> Result<impl Iterator<Item = (usize, &Tensor)>> {
        Ok(self.buffer(point)?.values.iter().map(|kept| (kept.step, &kept.tensor)))
    }

    /// How many values of a point were dropped, as [`Keep`](super::Keep) says.
    pub fn dropped(&self, point: &str) -> Result<usize> {
        Ok(self.buffer(point)?.dropped)
    }

    /// The bytes that all recorded tensors take.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.buffers.bytes()).sum()
    }

    /// The values that are kept of a point as one tensor, joined along the first dimension, the batch;
    /// numbers become a list.
    pub fn gather(&self, point: &str) -> Result<Tensor> {
        let buffer = self.buffer(point)?;
        let Some(first) = buffer.values.front().map(|kept| kept.tensor.dims()) else {
            return Err(ErrorKind::AllDropped { point: point.to_string(), dropped: buffer.dropped }.into());
        };
        let rest = |dims: &[usize]| dims.iter().skip(1).copied().collect::<Vec<_>>();
        let differs = |dims: &[usize]| dims.len() != first.len() || rest(dims) != rest(first);
        if let Some(other) = buffer.values.iter().find(|kept| differs(kept.tensor.dims())) {
            return Err(ErrorKind::Shape {
                point: point.to_string(),
                what: format!("the value of step {}", other.step),
                expected: first.to_vec(),
                found: other.tensor.dims().to_vec(),
                remedy: "only the first dimension, the batch, may vary; take `values` and join them yourself"
                    .to_string(),
            }
            .into());
        }
        let tensors: Vec<&Tensor> = buffer.values.iter().map(|kept| &kept.tensor).collect();
        Ok(if first.is_empty() { Tensor::stack(&tensors, 0)? } else { Tensor::cat(&tensors, 0)? })
    }

    /// What `f` makes of the values that are kept of a point, one after the other.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint::track::{Keep, Tracker};
    ///
    /// let mut tracker = Tracker::new().record("up", Keep::All)?;
    /// tracker.run_all(&model, [x.clone(), x.neg()?], |m, batch| m.forward(&batch))?;
    /// let rows = tracker.aggregate("up", 0, |rows, value| Ok(rows + value.dims()[0]))?;
    /// assert_eq!(rows, 2);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn aggregate<A>(
        &self,
        point: &str,
        start: A,
        mut f: impl FnMut(A, &Tensor) -> Result<A>,
    ) -> Result<A> {
        self.values(point)?.try_fold(start, |so_far, (_, tensor)| f(so_far, tensor))
    }

    /// The running statistics of a point.
    pub fn stats(&self, point: &str) -> Result<&Stats> {
        let mut found = self.reductions.iter().flat_map(|reduction| &reduction.points);
        let found = found.find(|(name, _)| name == point).map(|(_, stats)| stats);
        found.ok_or_else(|| self.missing(point, self.reduced()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.reductions.is_empty()
    }

    pub(super) fn nothing_yet(&self) -> Step {
        Step {
            recorded: self.records.iter().map(|_| Vec::new()).collect(),
            reduced: self.reductions.iter().map(|_| Vec::new()).collect(),
        }
    }

    /// Adds to a plan what is wanted of a step.
    pub(super) fn ask<'a, M: AutoHook, H: Access<M>>(
        &'a self,
        side: Side,
        mut plan: Plan<'a, M, H>,
        step: &'a RefCell<Step>,
    ) -> Result<Plan<'a, M, H>> {
        for (number, Reduction { patterns, over, .. }) in self.reductions.iter().enumerate() {
            let see = move |ctx: &HookCtx<'_>, tensor: &Tensor| {
                let Some(stats) = Stats::of(ctx.path(), tensor, over)? else { return Ok(None) };
                if let Some(points) = step.borrow_mut().reduced.get_mut(number) {
                    merge(points, ctx.path().to_string(), stats)?;
                }
                Ok(None)
            };
            plan = match side {
                Side::Values => plan.hook(patterns, see)?,
                Side::Grads => plan.hook_grad(patterns, see)?,
            };
        }
        for (number, Record { patterns, options, .. }) in self.records.iter().enumerate() {
            let see = move |ctx: &HookCtx<'_>, tensor: &Tensor| {
                let value = copied(tensor, options)?;
                if let Some(values) = step.borrow_mut().recorded.get_mut(number) {
                    values.push((ctx.path().to_string(), value));
                }
                Ok(None)
            };
            plan = match side {
                Side::Values => plan.hook(patterns, see)?,
                Side::Grads => plan.hook_grad(patterns, see)?,
            };
        }
        Ok(plan)
    }

    /// Is there room for what a step gave, and what becomes of the reductions with it? Nothing changes yet.
    pub(super) fn check(&self, step: &Step) -> Result<Vec<Reduction>> {
        let mut reductions = self.reductions.clone();
        for (reduction, points) in reductions.iter_mut().zip(&step.reduced) {
            for (name, stats) in points {
                merge(&mut reduction.points, name.clone(), stats.clone())?;
            }
        }
        for (record, values) in self.records.iter().zip(&step.recorded) {
            record.buffers.check(values)?;
        }
        Ok(reductions)
    }

    /// Takes over what a step gave, once it was checked.
    pub(super) fn take(&mut self, number: usize, step: Step, reductions: Vec<Reduction>) {
        for (record, values) in self.records.iter_mut().zip(step.recorded) {
            record.buffers.add(number, values);
        }
        self.reductions = reductions;
        self.taken += 1;
    }

    pub(super) fn clear(&mut self) {
        for record in &mut self.records {
            record.buffers.points.clear();
        }
        for reduction in &mut self.reductions {
            reduction.points.clear();
        }
        self.taken = 0;
    }

    fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.records.iter().flat_map(|record| &record.buffers.points)
    }

    fn buffer(&self, point: &str) -> Result<&Buffer> {
        let found = self.buffers().find(|buffer| buffer.name == point);
        found.ok_or_else(|| self.missing(point, self.recorded()))
    }

    fn missing<'t>(&self, point: &str, known: impl Iterator<Item = &'t str>) -> Error {
        ErrorKind::NotTracked { point: point.to_string(), nearest: nearest(point, known), steps: self.taken }
            .into()
    }
}

/// A copy that keeps nothing else alive, neither a larger tensor that it is a part of nor what a backward
/// pass would need.
fn copied(tensor: &Tensor, options: &CacheOptions) -> Result<Tensor> {
    Ok(options.apply("", tensor.detach())?.force_contiguous()?)
}

/// Adds what was seen at a point to what was seen there before.
fn merge(points: &mut Vec<(String, Stats)>, name: String, new: Stats) -> Result<()> {
    match points.iter_mut().find(|(known, _)| *known == name) {
        Some((_, stats)) => *stats = stats.and(&name, &new)?,
        None => points.push((name, new)),
    }
    Ok(())
}
