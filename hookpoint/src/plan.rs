//! What is to be done with a model: hooks, patches and caches, gathered once and run often.

mod backward;
mod certify;
mod finish;
mod prepared;
mod ran;
mod recent;
mod scan;
mod short;
mod spent;
mod verbs;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use candle_core::Tensor;

use crate::access::Access;
use crate::cache::Activations;
use crate::error::{ErrorKind, Result};
use crate::hooked::Hooked;
use crate::listen::Listener;
use crate::pattern::Pattern;
use crate::point::Selection;
use crate::recording::Recording;
use crate::run::{modules_only, Action, Allows, Audience, CallView, HookCtx, IntoCaches, Request, When};
use crate::select::IntoPatterns;
use crate::tree::{AutoHook, Tree};
use backward::check_wants_no_gradient;
pub use backward::GradRun;
pub(crate) use certify::{judge, Judged, Measured, Precision};
pub use certify::{Certificate, Certified};
use prepared::{Prepared, Recorded};
pub use ran::Run;
pub use scan::Scan;

/// What is to be done during runs of a model. Made by [`Hooked::plan`], built by chaining, and good
/// for any number of runs.
///
/// Every request is checked against the model as it is added: a pattern that cannot be parsed, or
/// that selects nothing, is an error here. A request that selects something but is never reached by
/// a run is an error there, unless [`allow_unfired`](Self::allow_unfired) says that it may be.
///
/// At one point hooks act first, in the order in which they were added, then patches, then the cache,
/// which so holds what the model went on with.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let five = Tensor::new(&[5f32], &Device::Cpu)?;
/// let plan = model
///     .plan()
///     .cache(":hidden")?
///     .patch("up[:, 0]", &five)?
///     .hook("down", |_, x| Ok(Some((x * 2.)?)))?;
///
/// let run = plan.run(|m| m.forward(&x))?;
/// assert_eq!(run.cache[":hidden"].to_vec2::<f32>()?, [[5., 0.]]);
/// assert_eq!(run.output.to_vec2::<f32>()?, [[10., 0.]]);
///
/// // The same plan, another input.
/// let run = plan.run(|m| m.forward(&x.neg()?))?;
/// assert_eq!(run.output.to_vec2::<f32>()?, [[10., 4.]]);
/// let fired: Vec<_> = run.fired().collect();
/// assert_eq!(fired, [(r#"cache(":hidden")"#, 1), (r#"patch("up[:, 0]")"#, 1), (r#"hook("down")"#, 1)]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[must_use = "a plan does nothing until it is run"]
pub struct Plan<'a, M, H = &'a Hooked<M>> {
    hooked: RefCell<H>,
    /// The model as it was when the plan was made.
    tree: Arc<Tree>,
    requests: Vec<Request<'a>>,
    allows: Allows,
    recording: Recorded,
    audience: Audience<'a>,
    prepared: RefCell<Option<Rc<Prepared<'a>>>>,
    of: PhantomData<&'a M>,
}

impl<'a, M: AutoHook, H: Access<M>> Plan<'a, M, H> {
    /// A plan for a model that is held either way: what [`Hooked::plan`] and [`Hooked::plan_mut`] make.
    pub fn of(hooked: H) -> Self {
        let tree = hooked.tree();
        let (requests, prepared, of) = (Vec::new(), RefCell::default(), PhantomData);
        let (allows, recording, audience) = Default::default();
        Self { hooked: RefCell::new(hooked), tree, requests, allows, recording, audience, prepared, of }
    }

    pub(crate) fn request(&mut self, pattern: Pattern, action: Action<'a>) -> Result<()> {
        let nodes = selected(&self.tree, &pattern, &action)?;
        let request = Request::new(pattern, action, nodes);
        for alternative in &request.alternatives {
            selected(&self.tree, alternative, &request.action)?;
        }
        self.prepared.take();
        self.requests.push(request);
        Ok(())
    }

    /// Keeps the values at the points that the patterns select. With an index, only that part is kept,
    /// under a name that ends in the index. [`CacheOptions::at`](crate::CacheOptions::at) keeps them on another device or in another dtype.
    pub fn cache(mut self, points: impl IntoCaches) -> Result<Self> {
        let (patterns, options) = points.into_caches()?;
        for pattern in patterns {
            self.request(pattern, Action::Cache(options.clone()))?;
        }
        Ok(self)
    }

    /// Calls `hook` with every value at the selected points. It may return a tensor of the same
    /// shape, with which the model then goes on; `None` leaves the value as it is.
    ///
    /// With an index the hook sees that part, and what it returns is put into its place. With `*` in the
    /// index it is called once for each element; every call sees the value from before these changes.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let seen = std::cell::RefCell::new(Vec::new());
    /// let plan = model
    ///     .plan()
    ///     .hook(["up", "down"], |ctx, _| {
    ///         seen.borrow_mut().push(ctx.path().to_string());
    ///         Ok(None)
    ///     })?
    ///     .hook("up[:, 1]", |_, part| Ok(Some((part * -1.)?)))?;
    /// assert_eq!(plan.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[1., 2.]]);
    /// assert_eq!(*seen.borrow(), ["up", "down"]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn hook<F>(mut self, patterns: impl IntoPatterns, hook: F) -> Result<Self>
    where
        F: Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + 'a,
    {
        let hook: crate::run::HookFn<'a> = Rc::new(hook);
        for pattern in patterns.into_patterns()? {
            self.request(pattern, Action::Hook(hook.clone()))?;
        }
        Ok(self)
    }

    /// Calls `hook` after every call of the selected modules, with all tensors that went in and all that came
    /// out. It may return as many tensors as came out, which take their places and must have their shapes;
    /// those that it returns as they were stay, and so do all with `None`.
    ///
    /// Hooks of calls and hooks of single values act in the order in which they were added. A pattern
    /// with a value or an index is an error; parameters that it selects besides modules are left out. A call
    /// that fails, or that gives no tensor, is not shown.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let plan = model.plan().hook_call("*", |_, call| {
    ///     Ok(Some(vec![(&call.outputs[0] + &call.inputs[0])?]))
    /// })?;
    /// assert_eq!(plan.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[4., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn hook_call<F>(self, patterns: impl IntoPatterns, hook: F) -> Result<Self>
    where
        F: Fn(&HookCtx<'_>, &CallView<'_>) -> Result<Option<Vec<Tensor>>> + 'a,
    {
        self.call_hook(When::After, patterns, Rc::new(hook))
    }

    /// Calls `hook` before every call of the selected modules, with all tensors that go in. It may return
    /// as many, which take their places, as in [`hook_call`](Self::hook_call).
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let plan = model.plan().hook_call_inputs("down", |_, call| Ok(Some(vec![(&call.inputs[0] + 5.)?])))?;
    /// assert_eq!(plan.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[6., 5.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn hook_call_inputs<F>(self, patterns: impl IntoPatterns, hook: F) -> Result<Self>
    where
        F: Fn(&HookCtx<'_>, &CallView<'_>) -> Result<Option<Vec<Tensor>>> + 'a,
    {
        self.call_hook(When::Before, patterns, Rc::new(hook))
    }

    fn call_hook(
        mut self,
        when: When,
        patterns: impl IntoPatterns,
        hook: crate::run::CallHookFn<'a>,
    ) -> Result<Self> {
        for pattern in patterns.into_patterns()? {
            self.request(pattern, Action::Call(when, hook.clone()))?;
        }
        Ok(self)
    }

    /// Replaces the value, or with an index a part of it, by `tensor`. Without an index the shapes
    /// must be equal; with one, the tensor may broadcast over the part. A tensor of another float type
    /// or on another device is converted; integers in the place of floats are an error.
    ///
    /// A module whose whole output is replaced does not run, if nothing inside it is wanted, no hook
    /// wants its own output, nothing says that it changes anything besides its result, and the shape that
    /// its output would have is known: from the kind of layer, or from an earlier run. Where the shape is not
    /// known, the module runs, and the patch is checked against its output.
    ///
    /// The model never writes into `tensor`: it gets a copy.
    ///
    /// All modules that a pattern selects have to be reached, unless it ends with `**`, which means whatever there is, or the
    /// plan says [`allow_unfired`](Self::allow_unfired).
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let patch = Tensor::new(&[[3f32, 4.]], &Device::Cpu)?;
    /// let run = model.plan().patch("up", &patch)?.run(|m| m.forward(&x))?;
    /// assert_eq!(run.output.to_vec2::<f32>()?, [[3., 4.]]);
    ///
    /// // One number for the whole of the second column.
    /// let nine = Tensor::new(9f32, &Device::Cpu)?;
    /// let run = model.plan().patch("down[:, 1]", &nine)?.run(|m| m.forward(&x))?;
    /// assert_eq!(run.output.to_vec2::<f32>()?, [[1., 9.]]);
    ///
    /// // Without an index nothing is broadcast.
    /// assert!(model.plan().patch("down", &nine)?.run(|m| m.forward(&x)).is_err());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn patch(mut self, patterns: impl IntoPatterns, tensor: &Tensor) -> Result<Self> {
        for pattern in patterns.into_patterns()? {
            self.request(pattern, Action::Patch(tensor.clone()))?;
        }
        Ok(self)
    }

    /// Patches everything that a cache, or any map of names to tensors, holds.
    pub fn patch_all(mut self, activations: &(impl Activations + ?Sized)) -> Result<Self> {
        activations.each_activation(&mut |name, tensor| {
            self.request(name.parse()?, Action::Patch(tensor.clone()))
        })?;
        Ok(self)
    }

    /// Answers the calls of modules that the recording has, up to the first point that this plan may change,
    /// instead of making them. The runs must be with the input that was recorded.
    ///
    /// What comes out is what would have come out anyway, bit for bit, if the model computes the same for
    /// the same input. Calls inside which this plan wants something are made, and so are those with side
    /// effects: methods with `&mut self` or another `&mut`, modules that hold a cell or a lock, and whatever
    /// [says so](crate::side_effect). `#[hook(pure)]` on a method or a field declares that there is none.
    /// [`Run::replayed`] has the modules that did not run.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let (_, recording) = model.record(|m| m.forward(&x))?;
    /// let plan = model.plan().hook(":hidden", |_, hidden| Ok(Some((hidden + 1.)?)))?.replay(&recording)?;
    /// let run = plan.run(|m| m.forward(&x))?;
    /// assert_eq!(run.output.to_vec2::<f32>()?, [[2., 1.]]);
    /// assert_eq!(run.replayed().collect::<Vec<_>>(), ["up"]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    ///
    /// A run whose calls are made with other inputs than the recorded ones is an error, and so is one after weights
    /// were changed.
    pub fn replay(mut self, recording: &Recording) -> Result<Self> {
        // A run that is not compared belongs to somebody who makes many, each of which asks this again.
        if recording.compares() {
            recording.schedule(&self.tree, &self.requests, &|_| false)?;
        }
        self.prepared.take();
        self.recording = Recorded::Replayed(recording.clone());
        Ok(self)
    }

    /// Has the runs of this plan note which of the recorded values have the rows of the input: they are given the
    /// recorded input with all its rows so many times, one after the other, at least two. After that
    /// [`Recording::repeated`] answers runs with any number of copies.
    ///
    /// All calls are made, so a plan that replays a recording does so no more.
    pub fn note_rows(mut self, recording: &Recording, copies: usize) -> Result<Self> {
        if copies < 2 {
            return Err(ErrorKind::NoRows { copies }.into());
        }
        self.prepared.take();
        self.recording = Recorded::Repeated(recording.clone(), copies);
        Ok(self)
    }

    /// Has a listener told what happens in the runs of this plan: calls, values, operations and gradients, wherever it
    /// is interested. See [`Listener`].
    ///
    /// Listeners hear values after hooks and patches, in the order in which they were added, and before caches. A
    /// listener that is interested in nothing in this model is an error when the plan is run.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint::listen::NonFinite;
    ///
    /// let mut watch = NonFinite::new();
    /// let hot = Tensor::new(&[[1f32, f32::INFINITY]], &Device::Cpu)?;
    /// model.plan().patch(":hidden", &hot)?.listen(&mut watch)?.run(|m| m.forward(&x))?;
    /// assert_eq!(watch.first().map(|found| found.name()), Some(":hidden"));
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn listen(mut self, listener: &'a mut (dyn Listener + 'a)) -> Result<Self> {
        self.prepared.take();
        self.audience.add(listener)?;
        Ok(self)
    }

    /// Lets requests pass that a run does not reach. Without this they are an error.
    pub fn allow_unfired(mut self) -> Self {
        self.allows.unreached = true;
        self
    }
}

fn selected(tree: &Tree, pattern: &Pattern, action: &Action<'_>) -> Result<Selection> {
    match action {
        Action::Call(..) | Action::HookBackward(_) => modules_only(tree, pattern),
        _ => Selection::of(tree, pattern),
    }
}
