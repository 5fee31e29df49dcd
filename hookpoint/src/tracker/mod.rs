//! Values over many runs: recorded within bounds, or reduced as they pass.
//!
//! `keep` bounds what is recorded, `reduce` computes running statistics. Both use plans as everyone does.

mod keep;
mod reduce;

use std::cell::RefCell;

use candle_core::Tensor;

use crate::error::{Error, ErrorKind, Result};
use crate::hooked::{Access, Hooked};
use crate::pattern::Pattern;
use crate::plan::{BoxedError, Plan};
use crate::run::CacheOptions;
use crate::select::{nearest, IntoPatterns};
use crate::tree::AutoHook;
pub use keep::Keep;
use keep::{Buffer, Buffers};
pub use reduce::{Over, Stats};

/// Records values at chosen points over many batches, or reduces them as they pass.
///
/// Each [`run`](Self::run) is a step. What a step gives is taken over when it has ended well: a run that
/// fails leaves the tracker as it was. Inputs are points like others: `path:in`. Batches may differ in size.
///
/// * [`record`](Self::record) keeps tensors, as many as [`Keep`] says; [`gather`](Self::gather) joins
///   them along the batch.
/// * [`reduce`](Self::reduce) keeps count, mean, variance, least and greatest, and no tensor.
/// * [`every`](Self::every) takes only every k-th step; in the others the model runs as usual.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::{Keep, Over, Tracker};
///
/// let mut tracker = Tracker::new()
///     .record(["down:in", "down"], Keep::Last(2))?
///     .reduce("up", Over::All)?
///     .every(2)?;
/// for step in 0..6 {
///     let batch = (&x + step as f64)?;
///     tracker.run(&model, |m| m.forward(&batch))?;
/// }
/// // Steps 0, 2 and 4 were taken, and of them the last two kept.
/// assert_eq!((tracker.steps(), tracker.taken()), (6, 3));
/// assert_eq!(tracker.gather("down:in")?.to_vec2::<f32>()?, [[3., 0.], [5., 2.]]);
/// assert_eq!(tracker.dropped("down")?, 1);
/// assert_eq!(tracker.stats("up")?.mean().to_scalar::<f64>()?, 1.5);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a tracker does nothing until it runs a model"]
pub struct Tracker {
    records: Vec<Record>,
    reductions: Vec<Reduction>,
    every: usize,
    allow_unfired: bool,
    steps: usize,
    taken: usize,
}

#[derive(Clone, Debug)]
struct Record {
    patterns: Vec<Pattern>,
    options: CacheOptions,
    buffers: Buffers,
}

#[derive(Clone, Debug)]
struct Reduction {
    patterns: Vec<Pattern>,
    over: Over,
    points: Vec<(String, Stats)>,
}

/// What one run gives: for each record the values, and for each reduction what its points have seen.
struct Step {
    recorded: Vec<Vec<(String, Tensor)>>,
    reduced: Vec<Vec<(String, Stats)>>,
}

impl Default for Tracker {
    fn default() -> Self {
        let (records, reductions) = (Vec::new(), Vec::new());
        Self { records, reductions, every: 1, allow_unfired: false, steps: 0, taken: 0 }
    }
}

impl Tracker {
    /// A tracker that is told nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the values at the points that the patterns select, within bounds.
    pub fn record(self, patterns: impl IntoPatterns, keep: Keep) -> Result<Self> {
        self.record_with(patterns, keep, CacheOptions::new())
    }

    /// As [`record`](Self::record), on another device or in another dtype.
    pub fn record_with(
        mut self,
        patterns: impl IntoPatterns,
        keep: Keep,
        options: CacheOptions,
    ) -> Result<Self> {
        let buffers = Buffers { keep, points: Vec::new() };
        self.records.push(Record { patterns: patterns.into_patterns()?, options, buffers });
        Ok(self)
    }

    /// Computes count, mean, variance, least and greatest over these dimensions, in f64, as the values
    /// pass. No tensor is kept.
    pub fn reduce(mut self, patterns: impl IntoPatterns, over: Over) -> Result<Self> {
        self.reductions.push(Reduction { patterns: patterns.into_patterns()?, over, points: Vec::new() });
        Ok(self)
    }

    /// Takes only every k-th step, beginning with the first. 0 is an error.
    pub fn every(mut self, k: usize) -> Result<Self> {
        if k == 0 {
            return Err(Error::msg(
                "no step is the 0th: `every(1)` takes all steps, `every(2)` every second",
            ));
        }
        self.every = k;
        Ok(self)
    }

    /// Lets steps pass that do not reach every point. Without this they are an error.
    pub fn allow_unfired(mut self) -> Self {
        self.allow_unfired = true;
        self
    }

    /// Runs the model, and takes what it gives if this step's turn has come.
    pub fn run<M, T, E, F>(&mut self, model: &Hooked<M>, f: F) -> Result<T>
    where
        M: AutoHook,
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        if !self.is_due() {
            let output = model.run(f)?;
            self.steps += 1;
            return Ok(output);
        }
        let step = RefCell::new(self.nothing_yet());
        let output = self.ask(model.plan(), &step)?.run(f)?.output;
        self.take(step.into_inner())?;
        Ok(output)
    }

    /// As [`run`](Self::run), for models whose forward takes `&mut self`.
    pub fn run_mut<M, T, E, F>(&mut self, model: &mut Hooked<M>, f: F) -> Result<T>
    where
        M: AutoHook,
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        if !self.is_due() {
            let output = model.run_mut(f)?;
            self.steps += 1;
            return Ok(output);
        }
        let step = RefCell::new(self.nothing_yet());
        let output = self.ask(model.plan_mut(), &step)?.run_mut(f)?.output;
        self.take(step.into_inner())?;
        Ok(output)
    }

    /// Runs the model with each of many batches; the outputs are dropped.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint::{Keep, Tracker};
    ///
    /// let mut tracker = Tracker::new().record("down", Keep::All)?;
    /// tracker.run_all(&model, [x.clone(), x.neg()?], |m, batch| m.forward(&batch))?;
    /// assert_eq!(tracker.gather("down")?.to_vec2::<f32>()?, [[1., 0.], [0., 2.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn run_all<M, B, T, E>(
        &mut self,
        model: &Hooked<M>,
        batches: impl IntoIterator<Item = B>,
        mut f: impl FnMut(&M, B) -> std::result::Result<T, E>,
    ) -> Result<()>
    where
        M: AutoHook,
        E: Into<BoxedError>,
    {
        batches.into_iter().try_for_each(|batch| self.run(model, |model| f(model, batch)).map(drop))
    }

    fn is_due(&self) -> bool {
        self.steps % self.every == 0
    }

    fn nothing_yet(&self) -> Step {
        Step {
            recorded: self.records.iter().map(|_| Vec::new()).collect(),
            reduced: self.reductions.iter().map(|_| Vec::new()).collect(),
        }
    }

    /// Adds to a plan what is wanted of a step.
    fn ask<'a, M: AutoHook, H: Access<M>>(
        &'a self,
        mut plan: Plan<'a, M, H>,
        step: &'a RefCell<Step>,
    ) -> Result<Plan<'a, M, H>> {
        if self.allow_unfired {
            plan = plan.allow_unfired();
        }
        for (number, Reduction { patterns, over, .. }) in self.reductions.iter().enumerate() {
            plan = plan.hook(patterns, move |ctx, tensor| {
                let Some(stats) = Stats::of(ctx.path(), tensor, over)? else { return Ok(None) };
                if let Some(points) = step.borrow_mut().reduced.get_mut(number) {
                    merge(points, ctx.path().to_string(), stats)?;
                }
                Ok(None)
            })?;
        }
        for (number, Record { patterns, options, .. }) in self.records.iter().enumerate() {
            plan = plan.hook(patterns, move |ctx, tensor| {
                let value = copied(tensor, options)?;
                if let Some(values) = step.borrow_mut().recorded.get_mut(number) {
                    values.push((ctx.path().to_string(), value));
                }
                Ok(None)
            })?;
        }
        Ok(plan)
    }

    /// Takes over what a step gave: all of it, or nothing.
    fn take(&mut self, step: Step) -> Result<()> {
        let mut reductions = self.reductions.clone();
        for (reduction, points) in reductions.iter_mut().zip(step.reduced) {
            for (name, stats) in points {
                merge(&mut reduction.points, name, stats)?;
            }
        }
        for (record, values) in self.records.iter().zip(&step.recorded) {
            record.buffers.check(values)?;
        }
        for (record, values) in self.records.iter_mut().zip(step.recorded) {
            record.buffers.add(self.steps, values);
        }
        self.reductions = reductions;
        self.steps += 1;
        self.taken += 1;
        Ok(())
    }

    /// How many steps there were.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// How many of the steps were taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

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

    /// How many values of a point were dropped, as [`Keep`] says.
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
            let how = format!("nothing of `{point}` is kept: all {} values were dropped", buffer.dropped);
            return Err(Error::msg(how));
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
    /// use hookpoint::{Keep, Tracker};
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

    /// Forgets what was recorded and reduced, and counts steps anew. What is asked for stays.
    pub fn clear(&mut self) {
        for record in &mut self.records {
            record.buffers.points.clear();
        }
        for reduction in &mut self.reductions {
            reduction.points.clear();
        }
        (self.steps, self.taken) = (0, 0);
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
    Ok(options.apply(tensor.detach())?.force_contiguous()?)
}

/// Adds what was seen at a point to what was seen there before.
fn merge(points: &mut Vec<(String, Stats)>, name: String, new: Stats) -> Result<()> {
    match points.iter_mut().find(|(known, _)| *known == name) {
        Some((_, stats)) => *stats = stats.and(&name, &new)?,
        None => points.push((name, new)),
    }
    Ok(())
}
