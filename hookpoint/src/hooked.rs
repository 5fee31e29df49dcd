//! A model that can be run with hooks.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::Tensor;

use crate::cache::ActivationCache;
use crate::error::{Error, Result};
use crate::manager::HookManager;
use crate::plan::{execute, execute_noting, Asked, BoxedError, Plan, Recent};
use crate::raw::with_model;
use crate::recording::Recording;
use crate::run::{Audience, Dispatch, Finished, HookCtx, Learned, Log, Mode, Request, SeenCall};
use crate::select::IntoPatterns;
use crate::tree::{AutoHook, HookDict, HookEntry, Tree};

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
    /// The index of the model, made when first needed and dropped when the model may have changed.
    tree: Mutex<Option<Arc<Tree>>>,
    learned: Learned,
    manager: HookManager,
    recent: Recent,
}

impl<M: AutoHook> Hooked<M> {
    /// Takes a model, or a reference to one.
    pub fn new(model: M) -> Self {
        let (tree, learned, manager, recent) = Default::default();
        Self { model: Box::new(model), tree, learned, manager, recent }
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
    /// let double = model.manager().register_forward_hook("double", "down", |_, x| Ok(Some((x * 2.)?)))?;
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
        Plan::new(self)
    }

    /// Starts a plan for a model whose forward takes `&mut self`; see [`Plan::run_mut`].
    pub fn plan_mut<'a>(&'a mut self) -> Plan<'a, M, &'a mut Hooked<M>> {
        Plan::new(self)
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

    /// As [`run`](Self::run), for models whose forward takes `&mut self`.
    pub fn run_mut<T, E, F>(&mut self, f: F) -> Result<T>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        if self.manager.has_active() {
            return Ok(self.plan_mut().run_mut(f)?.output);
        }
        f(self.parts_mut().0).map_err(|error| Error::from_boxed(error.into()))
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

    /// As [`run_with_cache`](Self::run_with_cache), for models whose forward takes `&mut self`.
    pub fn run_with_cache_mut<T, E, F>(
        &mut self,
        patterns: impl IntoPatterns,
        f: F,
    ) -> Result<(T, ActivationCache)>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let run = self.plan_mut().cache(patterns)?.run_mut(f)?;
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
    /// included, with shapes and dtypes.
    pub fn scan<T, E, F>(&self, f: F) -> Result<Scan<T>>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        self.scan_as(Mode::Scan, f)
    }

    /// Scans in a way of running.
    pub(crate) fn scan_as<T, E, F>(&self, mode: Mode, f: F) -> Result<Scan<T>>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let tree = self.tree();
        let requests = self.registered(&tree)?;
        let (dispatch, nobody) = (Dispatch::new(&tree, &requests), Audience::default());
        let asked = all_registered(&tree, &requests, &dispatch, &nobody);
        let finished = execute(&asked, mode, &self.learned, || with_model(&*self.model, || f(&self.model)))?;
        Scan::new(&tree, &dispatch, finished)
    }

    /// As [`scan`](Self::scan), for models whose forward takes `&mut self`.
    pub fn scan_mut<T, E, F>(&mut self, f: F) -> Result<Scan<T>>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        self.scan_as_mut(Mode::Scan, f)
    }

    /// Scans in a way of running.
    pub(crate) fn scan_as_mut<T, E, F>(&mut self, mode: Mode, f: F) -> Result<Scan<T>>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let tree = self.tree();
        let requests = self.registered(&tree)?;
        let (dispatch, nobody) = (Dispatch::new(&tree, &requests), Audience::default());
        let (model, learned) = self.parts_mut();
        let asked = all_registered(&tree, &requests, &dispatch, &nobody);
        let finished = execute(&asked, mode, learned, || f(model))?;
        Scan::new(&tree, &dispatch, finished)
    }

    /// Runs the model twice with one input, and notes in which order everything happens and what the modules
    /// give, so that [plans](Plan::replay) with the same input need not do all of it again.
    ///
    /// The first run is watched, to learn the order; the second is not, so that its values, and its output,
    /// are those of an ordinary run.
    pub fn record<T, E, F>(&self, f: F) -> Result<(T, Recording)>
    where
        F: Fn(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let (_, times) = self.note(Mode::Scan, false, || f(&self.model))?;
        let (output, values) = self.note(Mode::Whole, true, || f(&self.model))?;
        let mut recording = Recording::new(self.tree(), times, values);
        recording.note_weights(Tree::weights_of(&*self.model))?;
        Ok((output, recording))
    }

    /// As [`record`](Self::record), for models whose forward takes `&mut self`. The closure must begin anew
    /// each time, with an empty cache of keys and values if there is one.
    pub fn record_mut<T, E, F>(&mut self, mut f: F) -> Result<(T, Recording)>
    where
        F: FnMut(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let (tree, _, times) = self.note_mut(Mode::Scan, false, &mut f)?;
        let (_, output, values) = self.note_mut(Mode::Whole, true, &mut f)?;
        let mut recording = Recording::new(tree, times, values);
        recording.note_weights(Tree::weights_of(&*self.model))?;
        Ok((output, recording))
    }

    /// Runs the model and takes note of its calls.
    fn note<T, E: Into<BoxedError>>(
        &self,
        mode: Mode,
        keeps: bool,
        f: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<(T, Log)> {
        let tree = self.tree();
        let requests = self.registered(&tree)?;
        let (dispatch, nobody) = (Dispatch::new(&tree, &requests), Audience::default());
        let asked = all_registered(&tree, &requests, &dispatch, &nobody);
        execute_noting(&asked, mode, &self.learned, keeps, || with_model(&*self.model, f))
    }

    fn note_mut<T, E: Into<BoxedError>>(
        &mut self,
        mode: Mode,
        keeps: bool,
        f: impl FnOnce(&mut M) -> std::result::Result<T, E>,
    ) -> Result<(Arc<Tree>, T, Log)> {
        let tree = self.tree();
        let requests = self.registered(&tree)?;
        let (dispatch, nobody) = (Dispatch::new(&tree, &requests), Audience::default());
        let (model, learned) = self.parts_mut();
        let asked = all_registered(&tree, &requests, &dispatch, &nobody);
        let (output, log) = execute_noting(&asked, mode, learned, keeps, || f(model))?;
        Ok((tree, output, log))
    }

    /// The registered hooks that act in a run that begins now.
    fn registered<'a>(&self, tree: &Arc<Tree>) -> Result<Vec<Request<'a>>> {
        Ok(self.manager.acting(tree)?.map_or(Vec::new(), |acting| acting.requests()))
    }

    /// Are there registered hooks that act now?
    pub(crate) fn manager_acts(&self) -> bool {
        self.manager.has_active()
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(crate) fn tree(&self) -> Arc<Tree> {
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        tree.get_or_insert_with(|| Arc::new(Tree::of(&*self.model))).clone()
    }

    /// The model to be changed, after which its index is made anew.
    pub(crate) fn parts_mut(&mut self) -> (&mut M, &Learned) {
        *self.tree.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        (&mut self.model, &self.learned)
    }
}

/// What is asked where nobody but registered hooks does.
fn all_registered<'a>(
    tree: &'a Tree,
    requests: &'a [Request<'a>],
    dispatch: &'a Dispatch,
    audience: &'a Audience<'a>,
) -> Asked<'a> {
    Asked { tree, requests, registered: requests.len(), dispatch, schedule: None, audience }
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
        &mut self.model
    }
}

impl<M: AutoHook> fmt::Debug for Hooked<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = self.tree().nodes.len();
        f.debug_struct("Hooked").field("model", &std::any::type_name::<M>()).field("points", &points).finish()
    }
}

/// How a plan holds its model: shared, or exclusively.
pub trait Access<M>: sealed::Access<M> {}

pub(crate) mod sealed {
    use super::*;

    pub trait Access<M> {
        fn model(&self) -> &M;
        #[allow(private_interfaces)]
        fn tree(&self) -> Arc<Tree>;
        #[allow(private_interfaces)]
        fn learned(&self) -> &Learned;
        fn hooks(&self) -> &HookManager;
    }
}

macro_rules! access {
    ($($ty:ty),*) => { $(
        impl<M: AutoHook> Access<M> for $ty {}
        impl<M: AutoHook> sealed::Access<M> for $ty {
            fn model(&self) -> &M {
                &self.model
            }
            #[allow(private_interfaces)]
            fn tree(&self) -> Arc<Tree> {
                Hooked::tree(self)
            }
            #[allow(private_interfaces)]
            fn learned(&self) -> &Learned {
                &self.learned
            }
            fn hooks(&self) -> &HookManager {
                &self.manager
            }
        }
    )* };
}
access!(&Hooked<M>, &mut Hooked<M>);

/// What [`Hooked::scan`] has seen: every point that a run can be asked for, and what it missed.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let scan = model.scan(|m| m.forward(&x))?;
/// assert_eq!(
///     scan.dict.keys().collect::<Vec<_>>(),
///     ["", ":x", ":hidden", "up", "up:in", "down", "down:in"],
/// );
/// let hidden = scan.dict.get(":hidden").map(|entry| (entry.shape(), entry.calls()));
/// assert_eq!(hidden, Some((Some([1, 2].as_slice()), 1)));
///
/// // All points were reached, and no module was called that is not a point.
/// assert_eq!(scan.unreached().count(), 0);
/// assert!(scan.unknown_calls().is_empty());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scan<T> {
    /// What the closure returned.
    pub output: T,
    /// Every point, and at those that were reached what was seen there.
    pub dict: HookDict,
    known: Vec<SeenCall>,
    unknown: Vec<SeenCall>,
}

impl<T> Scan<T> {
    fn new(tree: &Tree, dispatch: &Dispatch, (output, finished): (Option<T>, Finished)) -> Result<Self> {
        let mut dict = HookDict::of_tree(tree);
        let nodes: Vec<HookEntry> = dict.iter().cloned().collect();
        for (point, seen) in finished.seen(dispatch) {
            if let Some(node) = nodes.get(point.node as usize) {
                dict.note(node, &point.value, seen);
            }
        }
        let output = output.ok_or_else(|| Error::msg("the run ended without an output"))?;
        Ok(Self { output, dict, known: finished.known, unknown: finished.unknown })
    }

    /// The output, and the rest.
    pub(crate) fn split(self) -> (T, Scan<()>) {
        let Self { output, dict, known, unknown } = self;
        (output, Scan { output: (), dict, known, unknown })
    }

    /// The modules and parameters that the run did not reach.
    pub fn unreached(&self) -> impl Iterator<Item = &HookEntry> {
        self.dict.iter().filter(|entry| entry.calls() == 0)
    }

    /// The places in the source where a module of the model was called, as `file:line: method`.
    pub fn known_calls(&self) -> Vec<String> {
        shown(&self.known)
    }

    /// Calls of modules that the model's points do not include, as `file:line: method`: their type
    /// lacks the derive, or they are not part of the model.
    pub fn unknown_calls(&self) -> Vec<String> {
        shown(&self.unknown)
    }
}

/// Call sites in order, each once.
fn shown(calls: &[SeenCall]) -> Vec<String> {
    let text = |call: &SeenCall| format!("{}:{}: {}", call.file, call.line, call.method);
    let mut calls: Vec<String> = calls.iter().map(text).collect();
    calls.sort();
    calls.dedup();
    calls
}
