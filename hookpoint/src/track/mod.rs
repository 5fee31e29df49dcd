//! Values and gradients over many runs: recorded within bounds, or reduced as they pass.
//!
//! `tracked` is what was taken of either, `keep` bounds what is recorded, `reduce` computes running
//! statistics. All use plans as everyone does.

mod keep;
mod reduce;
mod tracked;

use std::cell::RefCell;
use std::ops::Deref;

use candle_core::Tensor;

use crate::access::{Access, Again, Lent};
use crate::error::{BoxedError, ErrorKind, Result};
use crate::plan::Plan;
use crate::run::IntoCaches;
use crate::select::IntoPatterns;
use crate::tree::AutoHook;
pub use keep::Keep;
pub use reduce::{Over, Stats};
pub use tracked::Tracked;
use tracked::{Record, Reduction, Side, Step};

/// Records values at chosen points over many batches, or reduces them as they pass.
///
/// Each [`run`](Self::run) is a step. What a step gives is taken over when it has ended well: a run that
/// fails leaves the tracker as it was. Inputs are points like others: `path:in`. Batches may differ in size.
///
/// * [`record`](Self::record) keeps tensors, as many as [`Keep`] says; [`gather`](Tracked::gather) joins
///   them along the batch.
/// * [`reduce`](Self::reduce) keeps count, mean, variance, least and greatest, and no tensor.
/// * [`every`](Self::every) takes only every k-th step; in the others the model runs as usual.
/// * [`record_grad`](Self::record_grad) and [`reduce_grad`](Self::reduce_grad) do the same with gradients, in
///   steps that are made with [`backward`](Self::backward): [`grads`](Self::grads) has them.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::track::{Keep, Over, Tracker};
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
    values: Tracked,
    grads: Tracked,
    every: usize,
    allow_unfired: bool,
    steps: usize,
    taken: usize,
}

impl Default for Tracker {
    fn default() -> Self {
        let (values, grads) = (Tracked::default(), Tracked::default());
        Self { values, grads, every: 1, allow_unfired: false, steps: 0, taken: 0 }
    }
}

/// What was taken of values.
impl Deref for Tracker {
    type Target = Tracked;

    fn deref(&self) -> &Tracked {
        &self.values
    }
}

/// What a step gave, of values and of gradients.
struct Steps {
    values: RefCell<Step>,
    grads: RefCell<Step>,
}

impl Tracker {
    /// A tracker that is told nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the values at the points that the patterns select, within bounds. [`CacheOptions::at`] keeps them on another
    /// device or in another dtype.
    ///
    /// [`CacheOptions::at`]: crate::CacheOptions::at
    pub fn record(mut self, points: impl IntoCaches, keep: Keep) -> Result<Self> {
        self.values.records.push(Record::new(points.into_caches()?, keep));
        Ok(self)
    }

    /// Computes count, mean, variance, least and greatest over these dimensions, in f64, as the values
    /// pass. No tensor is kept.
    pub fn reduce(mut self, patterns: impl IntoPatterns, over: Over) -> Result<Self> {
        let reduction = Reduction { patterns: patterns.into_patterns()?, over, points: Vec::new() };
        self.values.reductions.push(reduction);
        Ok(self)
    }

    /// Keeps the gradients at the points that the patterns select, within bounds. Steps are then made with
    /// [`backward`](Self::backward).
    pub fn record_grad(mut self, points: impl IntoCaches, keep: Keep) -> Result<Self> {
        self.grads.records.push(Record::new(points.into_caches()?, keep));
        Ok(self)
    }

    /// As [`reduce`](Self::reduce), of the gradients at these points.
    pub fn reduce_grad(mut self, patterns: impl IntoPatterns, over: Over) -> Result<Self> {
        let reduction = Reduction { patterns: patterns.into_patterns()?, over, points: Vec::new() };
        self.grads.reductions.push(reduction);
        Ok(self)
    }

    /// Takes only every k-th step, beginning with the first. 0 is an error.
    pub fn every(mut self, k: usize) -> Result<Self> {
        if k == 0 {
            return Err(ErrorKind::InvalidArgument {
                argument: "the interval of `every`".to_string(),
                got: "0".to_string(),
                remedy: "`every(1)` takes all steps, `every(2)` every second one".to_string(),
            }
            .into());
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
    pub fn run<M, H, T, E, F>(&mut self, model: H, f: F) -> Result<T>
    where
        M: AutoHook,
        H: Access<M>,
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        if !self.is_due() {
            let output = Plan::of(model).run(f)?.output;
            self.steps += 1;
            return Ok(output);
        }
        let steps = self.nothing_yet();
        let output = self.ask(Plan::of(model), &steps)?.run(f)?.output;
        self.take(steps)?;
        Ok(output)
    }

    /// Runs the model with each of many batches; the outputs are dropped.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint::track::{Keep, Tracker};
    ///
    /// let mut tracker = Tracker::new().record("down", Keep::All)?;
    /// tracker.run_all(&model, [x.clone(), x.neg()?], |m, batch| m.forward(&batch))?;
    /// assert_eq!(tracker.gather("down")?.to_vec2::<f32>()?, [[1., 0.], [0., 2.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn run_all<M, H, B, T, E>(
        &mut self,
        mut model: H,
        batches: impl IntoIterator<Item = B>,
        mut f: impl for<'m> FnMut(Lent<'m, M, H>, B) -> std::result::Result<T, E>,
    ) -> Result<()>
    where
        M: AutoHook,
        H: Access<M>,
        E: Into<BoxedError>,
    {
        for batch in batches {
            self.run(Again(&mut model), |model| f(model, batch))?;
        }
        Ok(())
    }

    /// Runs the model and differentiates what the closure returns, one number, as
    /// [`Plan::backward`] does, and takes values and gradients if this step's turn has come. In the other
    /// steps nothing is differentiated. Gives the loss.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint::track::{Keep, Over, Tracker};
    ///
    /// let mut tracker = Tracker::new()
    ///     .record("up", Keep::All)?
    ///     .record_grad(["up", "up:in"], Keep::All)?
    ///     .reduce_grad("down", Over::All)?;
    /// for batch in [x.clone(), x.neg()?] {
    ///     tracker.backward(&model, |m| m.forward(&batch)?.sum_all())?;
    /// }
    /// assert_eq!(tracker.gather("up")?.to_vec2::<f32>()?, [[1., -2.], [-1., 2.]]);
    /// assert_eq!(tracker.grads().gather("up")?.to_vec2::<f32>()?, [[1., 0.], [0., 1.]]); // relu
    /// assert_eq!(tracker.grads().stats("down")?.mean().to_scalar::<f64>()?, 1.);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn backward<M, H, E, F>(&mut self, model: H, f: F) -> Result<Tensor>
    where
        M: AutoHook,
        H: Access<M>,
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<Tensor, E>,
        E: Into<BoxedError>,
    {
        if !self.is_due() {
            let loss = Plan::of(model).run(f)?.output;
            self.steps += 1;
            return Ok(loss);
        }
        self.check_asks_for_gradients()?;
        let steps = self.nothing_yet();
        let loss = self.ask(Plan::of(model), &steps)?.backward(f)?.loss;
        self.take(steps)?;
        Ok(loss)
    }

    fn check_asks_for_gradients(&self) -> Result<()> {
        if self.grads.is_empty() {
            return Err(ErrorKind::NoTrackedGradients.into());
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.steps.is_multiple_of(self.every)
    }

    fn nothing_yet(&self) -> Steps {
        let (values, grads) = (self.values.nothing_yet(), self.grads.nothing_yet());
        Steps { values: RefCell::new(values), grads: RefCell::new(grads) }
    }

    /// Adds to a plan what is wanted of a step.
    fn ask<'a, M: AutoHook, H: Access<M>>(
        &'a self,
        plan: Plan<'a, M, H>,
        steps: &'a Steps,
    ) -> Result<Plan<'a, M, H>> {
        let plan = if self.allow_unfired { plan.allow_unfired() } else { plan };
        let plan = self.values.ask(Side::Values, plan, &steps.values)?;
        self.grads.ask(Side::Grads, plan, &steps.grads)
    }

    /// Takes over what a step gave: all of it, or nothing.
    fn take(&mut self, steps: Steps) -> Result<()> {
        let (values, mut grads) = (steps.values.into_inner(), steps.grads.into_inner());
        // The backward pass meets the calls of a point in the opposite order.
        grads.recorded.iter_mut().for_each(|record| record.reverse());
        let (reduced, reduced_grads) = (self.values.check(&values)?, self.grads.check(&grads)?);
        self.values.take(self.steps, values, reduced);
        self.grads.take(self.steps, grads, reduced_grads);
        self.steps += 1;
        self.taken += 1;
        Ok(())
    }

    /// The gradients that were recorded and reduced. Values are shown by the tracker itself.
    pub fn grads(&self) -> &Tracked {
        &self.grads
    }

    /// How many steps there were.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// How many of the steps were taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Forgets what was recorded and reduced, and counts steps anew. What is asked for stays.
    pub fn clear(&mut self) {
        self.values.clear();
        self.grads.clear();
        (self.steps, self.taken) = (0, 0);
    }
}
