//! Sweeps: what changes when one part of a model is changed, for one part after the other.
//!
//! A sweep is a grid of cells: the points that patterns select, and with `*` in an index every element
//! of them. `blocks.*:resid_pre[:, *]` is every position of every block, `blocks.*.attn:z[:, :, *]` every head.
//! In each cell one part is changed, the model goes on from there, and a metric says what became of it.
//!
//! * [`Sweep::patch`] puts what a clean input gives into runs with a corrupted one: activation patching.
//! * [`Sweep::edit`] does anything that a hook can do: [`ablate`](crate::ablate) has zeros, means, other
//!   inputs, factors and sums, a [`SteeringVector`](crate::SteeringVector) has a direction; or a closure.
//! * [`Sweep::sets`] has cells that change several points at once, each what it is told.
//!
//! ```
#![doc = include_str!("../two_layers.txt")]
//! // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
//! use hookpoint_interp::{ablate, Sweep};
//!
//! let clean = Tensor::new(&[[1f32, 3.]], &Device::Cpu)?;
//! let second = |out: &Tensor| out.get(0)?.get(1)?.to_scalar::<f32>().map(f64::from);
//! let found = Sweep::over(&model, ["up[:, *]", "down[:, *]"])?.patch(&clean, &x, |m, x| m.forward(x), second)?;
//! assert_eq!((found.clean, found.baseline), (Some(3.), 0.));
//! assert_eq!(found.axes()[0].labels, ["up", "down"]);
//! assert_eq!(found.normalized()?.to_vec2::<f64>()?, [[0., 1.], [0., 1.]]);
//! println!("{found}");
//!
//! let without = Sweep::over(&model, "up[:, *]")?.edit(ablate::zero(), &clean, |m, x| m.forward(x), second)?;
//! assert_eq!(without.effects()?.to_vec2::<f64>()?, [[0., -3.]]);
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! # What is not done again
//!
//! * **What comes before the change.** The model is [recorded](Hooked::record) once, and every run
//!   begins where its first change is.
//! * **What runs can share.** Cells are laid side by side in the first dimension, the batch, as many as the
//!   [budget](Sweep::budget) allows, each with its own change. How much one takes is
//!   [measured](hookpoint::memory), and so is which values have rows.
//! * **What comes after the metric.** With [`Sweep::measure_at`] runs end at the point that is measured.
//! * **What changes nothing.** A cell whose new value is what is there anyway has the value of the baseline.
//!
//! # What is checked
//!
//! So the closure that runs the model must compute the same for the same input, and treat every row by itself.
//! Models that do not are many: a mean or a norm over the batch, `BatchNorm` in training, one scale for a whole
//! tensor, a decision on the first row, experts with a limit, a mask by the longest row, and a model over
//! `[pos, d]` that has no batch at all. Equal rows do not show it. So by default ([`Verify::Telling`])
//!
//! * before the first cell is made, a changed cell is put beside an unchanged row, in both orders, and as many unchanged
//!   rows as runs have cells between others with much larger numbers, and one between smaller ones;
//! * the first and the last cell, of the sweep and of runs with more cells than any before, the cell with the largest
//!   effect, and cells without a number are made again by themselves, through the whole model.
//!
//! All of them have to be the same as by themselves. If not, the sweep is an error
//! ([`CellDiffers`](hookpoint::ErrorKind::CellDiffers)) that names the cell, what it gave in both ways, and what to do:
//! [`Sweep::one_by_one`] gives every cell a run of its own, [`Sweep::without_replay`] takes every run through the whole
//! model. That takes about nine runs, whatever the number of cells, all but one of them of one to three rows; [`Work::checks`] has what it
//! took. [`Sweep::verify`] asks for more, or for less. Cells that nobody makes again may still be wrong where rows meet
//! only now and then: [`Verify::All`] makes every cell again.
//!
//! *The same* is the same but for rounding: 2 units in the last place of the largest number, of the dtype that is
//! measured; or, where that is not enough, 16 times what becomes of the result (4 times in half precision) if the last
//! bit of everything that modules give is turned at random, which a further run finds out. That run has one row, so what
//! rows do to each other is never taken for rounding. NaN is the same only where the cell gives NaN by itself, too;
//! [`SweepResult::not_finite`] has those cells.

mod batch;
mod check;
mod edit;
mod engine;
mod grid;
mod held;
mod noise;
mod result;
mod room;
mod sets;
mod side;
pub mod transformer;
mod verify;

use std::marker::PhantomData;
use std::ops::ControlFlow;

use candle_core::Tensor;
use hookpoint::access::Restored;
use hookpoint::{
    Access, AutoHook, BoxedError, Error, ErrorKind, HookCtx, Hooked, IntoPatterns, Lent, Pattern, Result,
};

pub use batch::Batch;
pub use result::{Axis, Checks, SweepCell, SweepResult, Work};
pub use sets::Sets;
pub use verify::Verify;

use held::{check_selects, Subject};

/// How far a sweep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// How many cells are done.
    pub done: usize,
    /// How many there are.
    pub total: usize,
    /// How often the model was run for them.
    pub forwards: usize,
}

type Watch<'a> = Box<dyn FnMut(&Progress) -> ControlFlow<()> + 'a>;

/// A sweep over points of a model. [The module's documentation](self) has an example.
///
/// `H` is how it [holds](Access) the model, by `&` or by `&mut`; `C` is what its cells are made of, patterns or
/// [sets](Sweep::sets).
#[must_use = "a sweep does nothing until it is run, with `patch` or `edit`"]
pub struct Sweep<'a, M, H = &'a Hooked<M>, C = Points> {
    model: H,
    cells: C,
    settings: Settings<'a>,
    of: PhantomData<fn() -> M>,
}

/// Cells that are the elements of points.
#[derive(Clone, Debug)]
pub struct Points(Vec<Pattern>);

/// What a sweep was told, however it holds its model.
struct Settings<'a> {
    names: Vec<String>,
    measure_at: Option<Pattern>,
    budget: usize,
    most_cells: usize,
    replay: bool,
    verify: Verify,
    watch: Option<Watch<'a>>,
}

/// More cells at once gain nothing on most machines.
const MOST_CELLS: usize = 64;

impl Settings<'_> {
    fn new() -> Self {
        let (names, measure_at, watch, verify) = (Vec::new(), None, None, Verify::default());
        Self { names, measure_at, budget: 1 << 30, most_cells: MOST_CELLS, replay: true, verify, watch }
    }
}

impl<M> Sweep<'_, M> {
    /// What a sweep may use at once, unless it is told otherwise: 1 GiB.
    pub const BUDGET: usize = 1 << 30;
}

impl<'a, M: AutoHook, H: Access<M>> Sweep<'a, M, H> {
    /// A sweep over the points that the patterns select, and the elements of every `*` in their indices.
    ///
    /// A model whose forward takes `&mut self` is given as `&mut`; the closures are given a `&mut` of it, too. Then
    /// every run has to begin with the same state: either the closure sees to that, as with
    /// `m.clear_kv_cache()`, or [`restoring`](Self::restoring) does. What a run leaves behind and the next one
    /// finds is an error. Calls of methods with `&mut self` are made in every run; the layers that they call
    /// need not be.
    ///
    /// ```
    /// use candle_core::{Device, Module, Result, Tensor};
    /// use candle_nn::Linear;
    /// use hookpoint::prelude::*;
    /// use hookpoint_interp::{ablate, Sweep};
    ///
    /// #[derive(Clone, AutoHook)]
    /// struct Adds { linear: Linear, seen: Option<Tensor> }
    ///
    /// #[auto_hook]
    /// impl Adds {
    ///     /// Adds what it gave before.
    ///     fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
    ///         let hidden = self.linear.forward(x)?;
    ///         let sum = match &self.seen { Some(seen) => (&hidden + seen)?, None => hidden };
    ///         self.seen = Some(sum.clone());
    ///         Ok(sum)
    ///     }
    /// }
    ///
    /// let linear = Linear::new(Tensor::new(&[[1f32, 0.], [0., 2.]], &Device::Cpu)?, None);
    /// let mut model = Hooked::new(Adds { linear, seen: None });
    /// let x = Tensor::new(&[[1f32, 3.]], &Device::Cpu)?;
    /// let sum = |out: &Tensor| out.sum_all()?.to_scalar::<f32>().map(f64::from);
    ///
    /// // Every run adds to what the one before has left, so no two cells could be compared.
    /// let sweep = Sweep::over(&mut model, ":hidden[:, *]")?;
    /// let error = sweep.edit(ablate::zero(), &x, |m, x| m.forward(x), sum).unwrap_err();
    /// assert!(error.to_string().contains(".restoring()"));
    ///
    /// model.plan_mut().run(|m| { m.seen = None; Ok::<_, hookpoint::Error>(()) })?;
    /// let sweep = Sweep::over(&mut model, ":hidden[:, *]")?.restoring();
    /// let found = sweep.edit(ablate::zero(), &x, |m, x| m.forward(x), sum)?;
    /// assert_eq!((found.get(":hidden[:, 0]")?, found.get(":hidden[:, 1]")?), (6., 1.));
    /// assert!(model.seen.is_none());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn over(mut model: H, patterns: impl IntoPatterns) -> Result<Self> {
        let cells = Points::of(&mut model, patterns)?;
        Ok(Self { model, cells, settings: Settings::new(), of: PhantomData })
    }

    /// Activation patching: in each cell a run with the corrupted input gets what the clean one has there.
    ///
    /// `run` runs the model with an input, which may have more rows than the given ones; `metric` is given
    /// the output, or what is at [`measure_at`](Self::measure_at), with as many rows as the given input.
    pub fn patch<X, E, D>(
        self,
        clean: &X,
        corrupted: &X,
        run: impl for<'m> Fn(Lent<'m, M, H>, &X) -> std::result::Result<Tensor, E>,
        metric: impl Fn(&Tensor) -> std::result::Result<f64, D>,
    ) -> Result<SweepResult>
    where
        X: Batch,
        E: Into<BoxedError>,
        D: Into<BoxedError>,
    {
        let mut held = Subject::new(self.model, run);
        edit::patch(&mut held, &self.cells, self.settings, (clean, corrupted), &ours(metric))
    }

    /// In each cell a run gets what `edit`, a hook, makes of the value there. It is called once for every
    /// cell, before the runs, with what is there when nothing is changed; `None` changes nothing.
    pub fn edit<X, E, D>(
        self,
        edit: impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>>,
        input: &X,
        run: impl for<'m> Fn(Lent<'m, M, H>, &X) -> std::result::Result<Tensor, E>,
        metric: impl Fn(&Tensor) -> std::result::Result<f64, D>,
    ) -> Result<SweepResult>
    where
        X: Batch,
        E: Into<BoxedError>,
        D: Into<BoxedError>,
    {
        let mut held = Subject::new(self.model, run);
        edit::edit(&mut held, &self.cells, self.settings, &edit, input, &ours(metric))
    }
}

impl Points {
    fn of<M: AutoHook, H: Access<M>>(model: &mut H, patterns: impl IntoPatterns) -> Result<Self> {
        let patterns = patterns.into_patterns()?;
        if patterns.is_empty() {
            return Err(ErrorKind::InvalidArgument {
                argument: "the list of patterns of a sweep".to_string(),
                got: "empty".to_string(),
                remedy: "without patterns there are no cells: give at least one".to_string(),
            }
            .into());
        }
        patterns.iter().try_for_each(|pattern| check_selects(model, pattern))?;
        Ok(Self(patterns))
    }
}

impl<M: AutoHook, H: Access<M>, C> Sweep<'_, M, H, C> {
    /// Names the axes: the first is that of the points, then there is one for every `*`.
    pub fn axes(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Gives the metric what is at this point instead of the model's output. Runs end there.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint_interp::{ablate, Sweep};
    ///
    /// let sweep = Sweep::over(&model, "up[:, *]")?.measure_at(":hidden[0]")?;
    /// let found = sweep.edit(ablate::scale(5.), &x, |m, x| m.forward(x), |hidden| {
    ///     hidden.sum_all()?.to_scalar::<f32>().map(f64::from)
    /// })?;
    /// assert_eq!((found.get("up[:, 0]")?, found.get("up[:, 1]")?), (5., 1.));
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn measure_at(mut self, point: impl IntoPatterns) -> Result<Self> {
        let points = point.into_patterns()?;
        let [point] = points.as_slice() else {
            return Err(ErrorKind::InvalidArgument {
                argument: "the point of a metric".to_string(),
                got: format!("{} patterns", points.len()),
                remedy: "a metric is measured at one point: give one pattern".to_string(),
            }
            .into());
        };
        measurable(&mut self.model, point)?;
        self.settings.measure_at = Some(point.clone());
        Ok(self)
    }

    /// How many bytes the sweep may use at once, above what is in use when it begins. As many cells share a run
    /// as fit in; a run with one cell is made whether it fits or not.
    ///
    /// What runs take is measured where the program has a
    /// [`CountingAllocator`](hookpoint::memory::CountingAllocator). Else the values that points show are added up.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.settings.budget = bytes;
        self
    }

    /// The most cells that share a run, whatever fits.
    pub fn cells_per_run(mut self, cells: usize) -> Self {
        self.settings.most_cells = cells.max(1);
        self
    }

    /// A run for every cell: for models whose first dimension is not the batch, or whose rows influence each
    /// other. Values are those of a plan with that one change, bit for bit.
    pub fn one_by_one(self) -> Self {
        self.cells_per_run(1)
    }

    /// Every run goes through the whole model.
    pub fn without_replay(mut self) -> Self {
        self.settings.replay = false;
        self
    }

    /// Which cells are made again by themselves, through the whole model: [`Verify::Telling`] unless this is said. A
    /// cell that is not the same there is an error. [The module](self#what-is-checked) says what else is checked.
    ///
    /// ```
    /// use candle_core::{Device, Module, Result, Tensor};
    /// use candle_nn::Linear;
    /// use hookpoint::{prelude::*, ErrorKind};
    /// use hookpoint_interp::sweep::{Sweep, Verify};
    /// use hookpoint_interp::ablate;
    ///
    /// #[derive(AutoHook)]
    /// struct Centred { linear: Linear }
    ///
    /// #[auto_hook]
    /// impl Centred {
    ///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
    ///         let hidden = self.linear.forward(x)?;
    ///         // Over the batch, so that rows influence each other.
    ///         hidden.broadcast_sub(&(hidden.mean_keepdim(0)? * 0.5)?)
    ///     }
    /// }
    ///
    /// let linear = Linear::new(Tensor::new(&[[1f32, 0.], [0., 2.]], &Device::Cpu)?, None);
    /// let model = Hooked::new(Centred { linear });
    /// let x = Tensor::new(&[[1f32, 3.]], &Device::Cpu)?;
    /// let sum = |out: &Tensor| out.sum_all()?.to_scalar::<f32>().map(f64::from);
    /// let sweep = || Sweep::over(&model, "linear[:, *]");
    ///
    /// let error = sweep()?.edit(ablate::zero(), &x, |m, x| m.forward(x), sum).unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::CellDiffers { .. }));
    /// let alone = sweep()?.one_by_one().edit(ablate::zero(), &x, |m, x| m.forward(x), sum)?;
    /// assert_eq!((alone.get("linear[:, 0]")?, alone.get("linear[:, 1]")?), (3., 0.5));
    ///
    /// // Whoever looks away gets other numbers.
    /// let wrong = sweep()?.verify(Verify::Nothing).edit(ablate::zero(), &x, |m, x| m.forward(x), sum)?;
    /// assert_ne!(wrong.get("linear[:, 0]")?, 3.);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn verify(mut self, cells: impl Into<Verify>) -> Self {
        self.settings.verify = cells.into();
        self
    }
}

impl<'a, M: AutoHook, H: Access<M>, C> Sweep<'a, M, H, C> {
    /// Calls `watch` after every run. With [`ControlFlow::Break`] the sweep ends, and its result has the
    /// cells that are done.
    pub fn progress(mut self, watch: impl FnMut(&Progress) -> ControlFlow<()> + 'a) -> Self {
        self.settings.watch = Some(Box::new(watch));
        self
    }
}

impl<'a, 'h, M: AutoHook + Clone, C> Sweep<'a, M, &'h mut Hooked<M>, C> {
    /// Puts the model back before every run, and in the end, to what it is now: see [`Restored`].
    pub fn restoring(self) -> Sweep<'a, M, Restored<'h, M>, C> {
        let Self { model, cells, settings, of } = self;
        Sweep { model: Restored::new(model), cells, settings, of }
    }
}

/// A metric with errors of our own.
fn ours<D: Into<BoxedError>>(
    metric: impl Fn(&Tensor) -> std::result::Result<f64, D>,
) -> impl Fn(&Tensor) -> Result<f64> {
    move |value| metric(value).map_err(Error::other)
}

/// Is it one point of the model?
fn measurable<M: AutoHook, H: Access<M>>(model: &mut H, point: &Pattern) -> Result<()> {
    if !point.is_literal() {
        return Err(ErrorKind::InvalidArgument {
            argument: "the point of a metric".to_string(),
            got: format!("`{point}`, which may stand for several points"),
            remedy: "name the one point that is measured".to_string(),
        }
        .into());
    }
    check_selects(model, point)
}
