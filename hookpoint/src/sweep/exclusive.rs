//! Sweeps over models whose forward takes `&mut self`.

use candle_core::Tensor;

use super::batch::Batch;
use super::edit;
use super::held::Exclusive;
use super::{ours, Points, Settings, Sweep, SweepResult};
use crate::error::{Error, Result};
use crate::hooked::Hooked;
use crate::plan::BoxedError;
use crate::run::HookCtx;
use crate::select::IntoPatterns;
use crate::tree::AutoHook;

impl<'a, M: AutoHook> Sweep<'a, M, &'a mut Hooked<M>> {
    /// As [`over`](Sweep::over), for a model whose forward takes `&mut self`.
    ///
    /// Every run has to begin with the same state: either the closure sees to that, as with
    /// `m.clear_kv_cache()`, or [`restoring`](Self::restoring) does. What a run leaves behind and the next one
    /// finds is an error. Calls of methods with `&mut self` are made in every run; the layers that they call
    /// need not be.
    ///
    /// ```
    /// use candle_core::{Device, Module, Result, Tensor};
    /// use candle_nn::Linear;
    /// use hookpoint::{ablate, prelude::*, Sweep};
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
    /// let sweep = Sweep::over_mut(&mut model, ":hidden[:, *]")?;
    /// let error = sweep.edit_mut(ablate::zero(), &x, |m, x| m.forward(x), sum).unwrap_err();
    /// assert!(error.to_string().contains(".restoring()"));
    ///
    /// model.plan_mut().run(|m| { m.seen = None; Ok::<_, hookpoint::Error>(()) })?.output;
    /// let sweep = Sweep::over_mut(&mut model, ":hidden[:, *]")?.restoring();
    /// let found = sweep.edit_mut(ablate::zero(), &x, |m, x| m.forward(x), sum)?;
    /// assert_eq!((found.get(":hidden[:, 0]")?, found.get(":hidden[:, 1]")?), (6., 1.));
    /// assert!(model.seen.is_none());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn over_mut(model: &'a mut Hooked<M>, patterns: impl IntoPatterns) -> Result<Self> {
        let cells = Points::of(&model, patterns)?;
        Ok(Self { model, cells, settings: Settings::new(), restore: None })
    }

    /// Puts the model back before every run, and in the end, to what it is now: a clone, whose tensors are shared.
    /// What clones share, such as a counter in an `Arc`, stays as it is.
    pub fn restoring(mut self) -> Self
    where
        M: Clone + 'a,
    {
        let begin: M = (**self.model).clone();
        self.restore = Some(Box::new(move |model| *model = begin.clone()));
        self
    }

    /// As [`patch`](Sweep::patch), for models whose forward takes `&mut self`.
    pub fn patch_mut<X, E, D>(
        self,
        clean: &X,
        corrupted: &X,
        run: impl Fn(&mut M, &X) -> std::result::Result<Tensor, E>,
        metric: impl Fn(&Tensor) -> std::result::Result<f64, D>,
    ) -> Result<SweepResult>
    where
        X: Batch,
        E: Into<BoxedError>,
        D: Into<BoxedError>,
    {
        let run = |m: &mut M, x: &X| run(m, x).map_err(|error| Error::from_boxed(error.into()));
        let mut held = Exclusive { model: self.model, run: &run, restore: self.restore.as_deref() };
        edit::patch(&mut held, &self.cells, self.settings, (clean, corrupted), &ours(metric))
    }

    /// As [`edit`](Sweep::edit), for models whose forward takes `&mut self`.
    pub fn edit_mut<X, E, D>(
        self,
        edit: impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>>,
        input: &X,
        run: impl Fn(&mut M, &X) -> std::result::Result<Tensor, E>,
        metric: impl Fn(&Tensor) -> std::result::Result<f64, D>,
    ) -> Result<SweepResult>
    where
        X: Batch,
        E: Into<BoxedError>,
        D: Into<BoxedError>,
    {
        let run = |m: &mut M, x: &X| run(m, x).map_err(|error| Error::from_boxed(error.into()));
        let mut held = Exclusive { model: self.model, run: &run, restore: self.restore.as_deref() };
        edit::edit(&mut held, &self.cells, self.settings, &edit, input, &ours(metric))
    }
}
