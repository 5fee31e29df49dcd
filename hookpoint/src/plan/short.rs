//! What a [`Hooked`] offers of plans: to start one, and the short forms of those that everybody needs.

use candle_core::Tensor;

use super::{Plan, Scan};
use crate::cache::ActivationCache;
use crate::error::{BoxedError, Error, Result};
use crate::hooked::Hooked;
use crate::recording::Recording;
use crate::run::HookCtx;
use crate::select::IntoPatterns;
use crate::tree::AutoHook;

impl<M: AutoHook> Hooked<M> {
    /// Starts a plan: what is to be done during runs of this model.
    pub fn plan(&self) -> Plan<'_, M> {
        Plan::of(self)
    }

    /// Starts a plan for a model whose forward takes `&mut self`. It has the same verbs; the closures get `&mut M`.
    ///
    /// ```
    /// use candle_core::{Device, Result, Tensor};
    /// use hookpoint::prelude::*;
    ///
    /// #[derive(AutoHook)]
    /// struct Counter(Tensor);
    ///
    /// #[auto_hook]
    /// impl Counter {
    ///     fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
    ///         self.0 = (&self.0 + x)?;
    ///         Ok(self.0.clone())
    ///     }
    /// }
    ///
    /// let one = Tensor::new(&[1f32], &Device::Cpu)?;
    /// let mut model = Hooked::new(Counter(one.zeros_like()?));
    /// let plan = model.plan_mut().cache(":x")?;
    /// assert_eq!(plan.run(|m| m.forward(&one))?.output.to_vec1::<f32>()?, [1.]);
    /// assert_eq!(plan.run(|m| m.forward(&one))?.output.to_vec1::<f32>()?, [2.]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn plan_mut<'a>(&'a mut self) -> Plan<'a, M, &'a mut Hooked<M>> {
        Plan::of(self)
    }

    /// Runs the model with its registered hooks, if it has any. Errors that candle code carried come out as what they were.
    pub fn run<T, E, F>(&self, f: F) -> Result<T>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        if self.manager_acts() {
            return Ok(self.plan().run(f)?.output);
        }
        f(self).map_err(|error| Error::from_boxed(error.into()))
    }

    /// Runs the model and keeps the values at the points that the patterns select.
    pub fn run_with_cache<T, E, F>(&self, patterns: impl IntoPatterns, f: F) -> Result<(T, ActivationCache)>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let plan = Plan::caching(self, patterns.into_patterns()?)?;
        let run = plan.run(f)?;
        plan.remember();
        Ok((run.output, run.cache))
    }

    /// Runs the model with hooks, given as pairs of a pattern and a hook. Hooks of different types
    /// are added to a [`plan`](Self::plan) one by one.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let double = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x * 2.)?));
    /// let output = model.run_with_hooks([("up", double), ("down", double)], |m| m.forward(&x))?;
    /// assert_eq!(output.to_vec2::<f32>()?, [[4., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn run_with_hooks<T, E, F, P, H>(&self, hooks: impl IntoIterator<Item = (P, H)>, f: F) -> Result<T>
    where
        P: IntoPatterns,
        H: Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>>,
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let mut plan = self.plan();
        for (patterns, hook) in hooks {
            plan = plan.hook(patterns, hook)?;
        }
        Ok(plan.run(f)?.output)
    }

    /// Runs the model once and notes every point that it reaches, values inside forward code
    /// included, with shapes and dtypes. See [`Plan::scan`].
    pub fn scan<T, E, F>(&self, f: F) -> Result<Scan<T>>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        self.plan().scan(f)
    }

    /// Runs the model twice with one input, and notes in which order everything happens and what the modules
    /// give, so that [plans](Plan::replay) with the same input need not do all of it again. See [`Plan::record`].
    pub fn record<T, E, F>(&self, f: F) -> Result<(T, Recording)>
    where
        F: Fn(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        self.plan().record(f)
    }
}
