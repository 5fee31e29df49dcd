//! A model that can be run with hooks.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::Tensor;

use crate::cache::ActivationCache;
use crate::error::{Error, Result};
use crate::manage::HookManager;
use crate::plan::{BoxedError, Plan, Recent, Scan};
use crate::recording::Recording;
use crate::run::{HookCtx, Learned};
use crate::select::IntoPatterns;
use crate::tree::{AutoHook, HookDict, Tree};

/// A model, or a reference to one, that can be run with hooks.
///
/// It owns the model in a box, so that its parts stay where they are while the `Hooked` itself may be
/// moved: into a `Vec`, to another thread. Everything that a run does ends with that run; two threads
/// can run one `Hooked` with different hooks at the same time.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let (output, cache) = model.run_with_cache("up", |m| m.forward(&x))?;
/// assert_eq!(cache["up"].to_vec2::<f32>()?, [[1., -2.]]);
/// assert_eq!(output.to_vec2::<f32>()?, [[1., 0.]]);
///
/// // It derefs to the model, which can be used as if there were no hooks.
/// assert_eq!(model.forward(&x)?.to_vec2::<f32>()?, [[1., 0.]]);
///
/// // A model that must stay where it is can be borrowed.
/// let mlp: Mlp = model.into_inner();
/// let borrowed = Hooked::new(&mlp);
/// assert_eq!(borrowed.hook_dict().keys().collect::<Vec<_>>(), ["", "up", "down"]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Hooked<M> {
    model: Box<M>,
    /// No two models have the same, nor one before and after it may have been changed.
    version: u64,
    /// The index of the model, made when first needed and dropped when the model may have changed.
    tree: Mutex<Option<Arc<Tree>>>,
    learned: Learned,
    manager: HookManager,
    recent: Recent,
}

fn next_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<M: AutoHook> Hooked<M> {
    /// Takes a model, or a reference to one.
    pub fn new(model: M) -> Self {
        let (tree, learned, manager, recent) = Default::default();
        Self { model: Box::new(model), version: next_version(), tree, learned, manager, recent }
    }

    /// Gives the model back. Registered hooks are dropped.
    pub fn into_inner(self) -> M {
        *self.model
    }

    /// The points of the model: its modules and parameters by path.
    pub fn hook_dict(&self) -> HookDict {
        HookDict::of_tree(&self.tree())
    }

    /// The hooks that stay on this model from run to run.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let double = model.manager().register("double", "down").hook(|_, x| Ok(Some((x * 2.)?)))?;
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[2., 0.]]);
    /// double.deactivate()?;
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[1., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn manager(&self) -> &HookManager {
        self.manager.follow(self.tree());
        &self.manager
    }

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
    /// struct Counter { sum: Tensor }
    ///
    /// #[auto_hook]
    /// impl Counter {
    ///     fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
    ///         self.sum = (&self.sum + x)?;
    ///         Ok(self.sum.clone())
    ///     }
    /// }
    ///
    /// let one = Tensor::new(&[1f32], &Device::Cpu)?;
    /// let mut model = Hooked::new(Counter { sum: one.zeros_like()? });
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
        if self.manager.has_active() {
            return Ok(self.plan().run(f)?.output);
        }
        f(&self.model).map_err(|error| Error::from_boxed(error.into()))
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
    #[doc = include_str!("two_layers.txt")]
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

    /// Are there registered hooks that act now?
    pub(crate) fn manager_acts(&self) -> bool {
        self.manager.has_active()
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn tree(&self) -> Arc<Tree> {
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        tree.get_or_insert_with(|| Arc::new(Tree::of(&*self.model))).clone()
    }

    /// The manager, whatever the model it last took note of.
    pub(crate) fn manager_as_it_is(&self) -> &HookManager {
        &self.manager
    }

    /// The model, and what is known of the shapes that its modules give.
    pub(crate) fn parts(&self) -> (&M, &Learned) {
        (&self.model, &self.learned)
    }

    /// The model to be changed, after which its index is made anew.
    pub(crate) fn parts_mut(&mut self) -> (&mut M, &Learned) {
        *self.tree.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        (&mut self.model, &self.learned)
    }
}

impl<M> Deref for Hooked<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}

impl<M> DerefMut for Hooked<M> {
    fn deref_mut(&mut self) -> &mut M {
        *self.tree.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.learned.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.version = next_version();
        &mut self.model
    }
}

impl<M: AutoHook> fmt::Debug for Hooked<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = self.tree().nodes.len();
        f.debug_struct("Hooked").field("model", &std::any::type_name::<M>()).field("points", &points).finish()
    }
}
