//! What is to be done with a model: hooks, patches and caches, gathered once and run often.

mod backward;
mod finish;
mod recent;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use candle_core::Tensor;

use crate::cache::{ActivationCache, Activations};
use crate::error::{Error, ErrorKind, Result};
use crate::hooked::{Access, Hooked};
use crate::listen::Listener;
use crate::manager::Stamp;
use crate::pattern::Pattern;
use crate::recording::{Recording, Schedule};
use crate::run::{
    modules_only, select_nodes, Action, Audience, CacheOptions, CallView, Dispatch, Finished, HookCtx,
    Interests, Mode, Request, When,
};
use crate::select::IntoPatterns;
use crate::tree::{AutoHook, NodeId, Tree};
use backward::check_wants_no_gradient;
pub use backward::GradRun;
use finish::{collected, execute_with, finished_run, taped};
pub(crate) use finish::{execute, execute_noting, Asked, Keeps, Taped, Way};
pub(crate) use recent::Recent;

/// Any error that converts: candle's, anyhow's, our own.
pub type BoxedError = Box<dyn std::error::Error + Send + Sync>;

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
    hooked: H,
    /// The model as it was when the plan was made or last run.
    tree: Arc<Tree>,
    requests: Vec<Request<'a>>,
    allow_unfired: bool,
    allow_barriers: bool,
    /// What need not be done again.
    replays: Option<Replays>,
    audience: Audience<'a>,
    prepared: RefCell<Option<Rc<Prepared<'a>>>>,
    of: std::marker::PhantomData<&'a M>,
}

/// What a run gives: the closure's output, and what was cached.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run<T> {
    /// What the closure returned.
    pub output: T,
    /// What the plan's caches have kept.
    pub cache: ActivationCache,
    requests: Arc<[String]>,
    fired: Vec<usize>,
    unreached: Vec<Arc<str>>,
    skipped: Vec<Arc<str>>,
    replayed: Vec<Arc<str>>,
}

impl<T> Run<T> {
    /// The plan's requests in order, as in `cache("blocks.*")`, with how often each has fired.
    pub fn fired(&self) -> impl Iterator<Item = (&str, usize)> {
        self.requests.iter().map(String::as_str).zip(self.fired.iter().copied())
    }

    /// The points that the plan's patterns select and this run did not reach, request by request.
    ///
    /// A request that reaches none of its points is an error, and so is a name in `{a,b}` that is not reached. What
    /// else a pattern selects may be missing, as some experts of a mixture are: that is to be seen here.
    ///
    /// ```
    /// use candle_core::{DType, Device, Module, Result, Tensor};
    /// use candle_nn::Linear;
    /// use hookpoint::prelude::*;
    ///
    /// #[derive(AutoHook)]
    /// struct Mixture { experts: Vec<Linear> }
    ///
    /// #[auto_hook]
    /// impl Mixture {
    ///     fn forward(&self, x: &Tensor, chosen: usize) -> Result<Tensor> {
    ///         self.experts[chosen].forward(x)
    ///     }
    /// }
    ///
    /// let expert = || Tensor::eye(2, DType::F32, &Device::Cpu).map(|weight| Linear::new(weight, None));
    /// let model = Hooked::new(Mixture { experts: vec![expert()?, expert()?] });
    /// let x = Tensor::new(&[[1f32, -2.]], &Device::Cpu)?;
    /// let run = model.plan().cache("experts.*")?.run(|m| m.forward(&x, 1))?;
    /// assert_eq!(run.unreached().collect::<Vec<_>>(), ["experts.0"]);
    /// // Names are another matter.
    /// assert!(model.plan().cache("experts.{0,1}")?.run(|m| m.forward(&x, 1)).is_err());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn unreached(&self) -> impl Iterator<Item = &str> {
        self.unreached.iter().map(|name| &**name)
    }

    /// The modules that did not run, because their whole output was patched and nothing inside them was
    /// wanted.
    pub fn skipped(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().map(|name| &**name)
    }

    /// The modules that did not run, because what they give was [recorded](Plan::replay). What is inside
    /// them did not run either.
    pub fn replayed(&self) -> impl Iterator<Item = &str> {
        self.replayed.iter().map(|name| &**name)
    }
}

impl<'a, M: AutoHook, H: Access<M>> Plan<'a, M, H> {
    pub(crate) fn new(hooked: H) -> Self {
        let tree = hooked.tree();
        let (requests, prepared, of) = (Vec::new(), RefCell::default(), std::marker::PhantomData);
        let (allow_unfired, allow_barriers, replays) = (false, false, None);
        let audience = Audience::default();
        Self { hooked, tree, requests, allow_unfired, allow_barriers, replays, audience, prepared, of }
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
    /// under a name that ends in the index.
    pub fn cache(self, patterns: impl IntoPatterns) -> Result<Self> {
        self.cache_with(patterns, CacheOptions::new())
    }

    /// As [`cache`](Self::cache), on another device or in another dtype.
    pub fn cache_with(mut self, patterns: impl IntoPatterns, options: CacheOptions) -> Result<Self> {
        for pattern in patterns.into_patterns()? {
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
    /// The model never writes into `tensor`: a model whose annotated code writes in place gets a copy.
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
    pub fn replay(self, recording: &Recording) -> Result<Self> {
        self.replaying(recording, 1, Trust::Nothing)
    }

    /// As [`replay`](Self::replay), for an input whose rows are those that were recorded, so many times.
    pub(crate) fn replay_rows(self, recording: &Recording, copies: usize) -> Result<Self> {
        self.replaying(recording, copies, Trust::Caller)
    }

    fn replaying(mut self, recording: &Recording, copies: usize, trust: Trust) -> Result<Self> {
        // What a sweep asks is in order, and it would be asked for every run of it.
        if trust == Trust::Nothing {
            recording.schedule(&self.tree, &self.requests, copies, &|_| false)?;
        }
        self.prepared.take();
        self.replays = Some(Replays { recording: recording.clone(), copies, trust });
        Ok(self)
    }

    /// Is what was recorded what the model would compute now?
    fn check_recording(&self) -> Result<()> {
        match &self.replays {
            Some(Replays { recording, trust: Trust::Nothing, .. }) => {
                recording.check_weights(|| Tree::weights_of(self.hooked.model()))
            }
            _ => Ok(()),
        }
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
        self.allow_unfired = true;
        self
    }

    /// Runs the model with everything that was asked for.
    pub fn run<T, E, F>(&self, f: F) -> Result<Run<T>>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "run")?;
        let (prepared, finished) = self.go(Mode::Whole, || f(self.hooked.model()))?;
        finished_run(
            &prepared.asked(&self.tree, &self.requests, &self.audience),
            self.allow_unfired,
            finished,
        )
    }

    /// Runs the model until the last wanted value has been cached, and gives the cache alone.
    ///
    /// The run is ended by an error that passes through the forward code, so that code must not swallow
    /// errors. A request without a call number counts its first call; ask for `path#2` to wait for the
    /// third.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let finished = std::cell::Cell::new(false);
    /// let cache = model.plan().cache("up")?.collect(|m| {
    ///     let output = m.forward(&x)?;
    ///     finished.set(true);
    ///     Ok::<_, hookpoint::Error>(output)
    /// })?;
    /// assert_eq!(cache["up"].to_vec2::<f32>()?, [[1., -2.]]);
    /// assert!(!finished.get());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn collect<T, E, F>(&self, f: F) -> Result<ActivationCache>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "collect")?;
        check_collects(&self.requests)?;
        let (prepared, finished) = self.go(Mode::UntilCollected, || f(self.hooked.model()))?;
        collected(&prepared.asked(&self.tree, &self.requests, &self.audience), self.allow_unfired, finished)
    }

    /// Runs the plan in one of the ways of a sweep.
    pub(crate) fn run_taped<T, E, F>(&self, way: Way, f: F) -> Result<Taped<T>>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let prepared = self.prepared()?;
        let asked = prepared.asked(&self.tree, &self.requests, &self.audience);
        let model = self.hooked.model();
        let finished = execute_with(&asked, way.mode, self.hooked.learned(), way.tape(&asked), || f(model))?;
        taped(&asked, self.allow_unfired, finished)
    }

    /// The plan's requests behind the hooks that are registered and active now.
    fn prepared(&self) -> Result<Rc<Prepared<'a>>> {
        let acting = self.hooked.hooks().acting(&self.tree)?;
        let stamp = acting.as_ref().map(|acting| acting.stamp.clone());
        let mut kept = self.prepared.borrow_mut();
        if let Some(prepared) = kept.as_ref().filter(|prepared| prepared.stamp == stamp) {
            return Ok(prepared.clone());
        }
        let mut registered = acting.map_or(Vec::new(), |acting| acting.requests());
        let count = registered.len();
        let merged = (count > 0).then(|| {
            registered.extend(self.requests.iter().cloned());
            registered
        });
        let requests = merged.as_ref().unwrap_or(&self.requests);
        let interests = Interests::of(&self.audience, &self.tree)?;
        let dispatch = Dispatch::new(&self.tree, requests).hearing(interests, &self.tree);
        let schedule = |replays: &Replays| {
            let heard = |node: NodeId| dispatch.at(node).heard;
            let schedule = replays.recording.schedule(&self.tree, requests, replays.copies, &heard)?;
            Ok::<_, Error>(match replays.trust {
                Trust::Nothing => schedule.comparing(),
                Trust::Caller => schedule,
            })
        };
        let schedule = self.replays.as_ref().map(schedule).transpose()?;
        let prepared = Rc::new(Prepared { stamp, registered: count, merged, dispatch, schedule });
        *kept = Some(prepared.clone());
        Ok(prepared)
    }

    fn go<T, E: Into<BoxedError>>(
        &self,
        mode: Mode,
        f: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<Ran<'a, T>> {
        self.check_recording()?;
        let prepared = self.prepared()?;
        let asked = prepared.asked(&self.tree, &self.requests, &self.audience);
        let finished = execute(&asked, mode, self.hooked.learned(), f)?;
        Ok((prepared, finished))
    }
}

impl<'a, M: AutoHook> Plan<'a, M, &mut Hooked<M>> {
    /// As [`run`](Self::run), for models whose forward takes `&mut self`.
    pub fn run_mut<T, E, F>(&mut self, f: F) -> Result<Run<T>>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "run_mut")?;
        let (prepared, finished) = self.go_mut(Mode::Whole, f)?;
        finished_run(
            &prepared.asked(&self.tree, &self.requests, &self.audience),
            self.allow_unfired,
            finished,
        )
    }

    /// As [`collect`](Self::collect), for models whose forward takes `&mut self`.
    pub fn collect_mut<T, E, F>(&mut self, f: F) -> Result<ActivationCache>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "collect_mut")?;
        check_collects(&self.requests)?;
        let (prepared, finished) = self.go_mut(Mode::UntilCollected, f)?;
        collected(&prepared.asked(&self.tree, &self.requests, &self.audience), self.allow_unfired, finished)
    }

    /// As [`run_taped`](Self::run_taped), for models whose forward takes `&mut self`.
    pub(crate) fn run_taped_mut<T, E, F>(&mut self, way: Way, f: F) -> Result<Taped<T>>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        self.follow_model()?;
        let prepared = self.prepared()?;
        let asked = prepared.asked(&self.tree, &self.requests, &self.audience);
        let (model, learned) = self.hooked.parts_mut();
        let finished = execute_with(&asked, way.mode, learned, way.tape(&asked), || f(model))?;
        taped(&asked, self.allow_unfired, finished)
    }

    fn go_mut<T, E, F>(&mut self, mode: Mode, f: F) -> Result<Ran<'a, T>>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        self.follow_model()?;
        self.check_recording()?;
        let prepared = self.prepared()?;
        let asked = prepared.asked(&self.tree, &self.requests, &self.audience);
        let (model, learned) = self.hooked.parts_mut();
        let finished = execute(&asked, mode, learned, || f(model))?;
        Ok((prepared, finished))
    }

    /// The last run may have changed the model. State that came or went is followed; other modules
    /// than before are an error.
    fn follow_model(&mut self) -> Result<()> {
        let tree = self.hooked.tree();
        if std::sync::Arc::ptr_eq(&tree, &self.tree) {
            return Ok(());
        }
        self.tree.same_modules(&tree).map_err(|change| Error::from(ErrorKind::ModelChanged { change }))?;
        tree.compared_as(&self.tree);
        for request in &mut self.requests {
            request.nodes = selected(&tree, &request.pattern, &request.action)?;
        }
        self.prepared.take();
        self.tree = tree;
        Ok(())
    }
}

/// What need not be done again.
struct Replays {
    recording: Recording,
    /// How often the rows of its input are repeated.
    copies: usize,
    trust: Trust,
}

/// Whose word is taken for it that a run is the recorded one?
#[derive(Clone, Copy, PartialEq)]
enum Trust {
    /// Inputs and weights are compared.
    Nothing,
    /// A sweep gives the inputs itself, and makes some of its cells again.
    Caller,
}

/// A run that is over, and what it was asked.
type Ran<'a, T> = (Rc<Prepared<'a>>, (Option<T>, Finished));

/// What a run needs, made once and used again until registered hooks change.
struct Prepared<'a> {
    /// The registered hooks that act; none where there are none.
    stamp: Option<Stamp>,
    /// How many requests are theirs: the first ones.
    registered: usize,
    /// Theirs and the plan's, where there are some of theirs.
    merged: Option<Vec<Request<'a>>>,
    dispatch: Dispatch,
    schedule: Option<Schedule>,
}

impl<'a> Prepared<'a> {
    fn asked<'p>(&'p self, tree: &'p Tree, own: &'p [Request<'a>], audience: &'p Audience<'a>) -> Asked<'p> {
        let requests = self.merged.as_deref().unwrap_or(own);
        let (registered, schedule) = (self.registered, self.schedule.as_ref());
        Asked { tree, requests, registered, dispatch: &self.dispatch, schedule, audience }
    }
}

fn selected(tree: &Tree, pattern: &Pattern, action: &Action<'_>) -> Result<Vec<NodeId>> {
    match action {
        Action::Call(..) | Action::HookBackward(_) => modules_only(tree, pattern),
        _ => select_nodes(tree, pattern),
    }
}

fn check_collects(requests: &[Request<'_>]) -> Result<()> {
    if requests.iter().any(|request| matches!(request.action, Action::Cache(_))) {
        return Ok(());
    }
    Err(Error::msg(
        "`collect` ends with the last cached point, and this plan caches nothing\n  \
         add `.cache(..)`, or use `.run(..)`",
    ))
}
