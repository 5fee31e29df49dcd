//! What is to be done with a model: hooks, patches and caches, gathered once and run often.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use candle_core::Tensor;

use crate::cache::{ActivationCache, Activations};
use crate::error::{Error, ErrorKind, Result};
use crate::hooked::{Access, Hooked};
use crate::pattern::Pattern;
use crate::raw::with_run;
use crate::run::{
    select_nodes, Action, CacheOptions, Dispatch, Finished, HookCtx, Mode, Request, RunState, Shapes,
};
use crate::select::IntoPatterns;
use crate::tree::{AutoHook, Tree};

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
#[must_use = "a plan does nothing until it is run"]
pub struct Plan<'a, M, H = &'a Hooked<M>> {
    hooked: H,
    /// The model as it was when the plan was made or last run.
    tree: Arc<Tree>,
    requests: Vec<Request<'a>>,
    allow_unfired: bool,
    dispatch: OnceCell<Dispatch>,
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
    fired: Vec<(String, usize)>,
}

impl<T> Run<T> {
    /// The plan's requests in order, as in `cache("blocks.*")`, with how often each has fired.
    pub fn fired(&self) -> impl Iterator<Item = (&str, usize)> {
        self.fired.iter().map(|(request, times)| (request.as_str(), *times))
    }
}

impl<'a, M: AutoHook, H: Access<M>> Plan<'a, M, H> {
    pub(crate) fn new(hooked: H) -> Self {
        let tree = hooked.tree();
        let (requests, dispatch, of) = (Vec::new(), OnceCell::new(), std::marker::PhantomData);
        Self { hooked, tree, requests, allow_unfired: false, dispatch, of }
    }

    fn request(&mut self, pattern: Pattern, action: Action<'a>) -> Result<()> {
        let nodes = select_nodes(&self.tree, &pattern)?;
        self.dispatch.take();
        self.requests.push(Request { pattern, action, nodes });
        Ok(())
    }

    /// Keeps the values at the points that the patterns select.
    pub fn cache(self, patterns: impl IntoPatterns) -> Result<Self> {
        self.cache_with(patterns, CacheOptions::new())
    }

    /// Keeps them on another device or in another dtype.
    pub fn cache_with(mut self, patterns: impl IntoPatterns, options: CacheOptions) -> Result<Self> {
        for pattern in patterns.into_patterns()? {
            self.request(pattern, Action::Cache(options.clone()))?;
        }
        Ok(self)
    }

    /// Calls `hook` with every value at the selected points. It may return a tensor of the same
    /// shape, with which the model then goes on; `None` leaves the value as it is.
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

    /// Replaces the value, or with an index a part of it, by `tensor`. Without an index the shapes
    /// must be equal; with one, the tensor may broadcast over the part.
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

    /// Lets requests pass that a run does not reach.
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
        let finished = self.go(Mode::Whole, || f(self.hooked.model()))?;
        finished_run(&self.requests, &self.tree, self.allow_unfired, finished)
    }

    /// Runs the model until the last wanted value has been cached, and gives the cache alone.
    pub fn collect<T, E, F>(&self, f: F) -> Result<ActivationCache>
    where
        F: FnOnce(&M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_collects(&self.requests)?;
        let (_, finished) = self.go(Mode::UntilCollected, || f(self.hooked.model()))?;
        Ok(finished_run(&self.requests, &self.tree, self.allow_unfired, (Some(()), finished))?.cache)
    }

    fn go<T, E: Into<BoxedError>>(
        &self,
        mode: Mode,
        f: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<(Option<T>, Finished)> {
        let dispatch = self.dispatch.get_or_init(|| Dispatch::new(&self.tree, &self.requests));
        execute(&self.tree, dispatch, &self.requests, mode, self.hooked.shapes(), f)
    }
}

impl<M: AutoHook> Plan<'_, M, &mut Hooked<M>> {
    /// As [`run`](Self::run), for models whose forward takes `&mut self`.
    pub fn run_mut<T, E, F>(&mut self, f: F) -> Result<Run<T>>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let finished = self.go_mut(Mode::Whole, f)?;
        finished_run(&self.requests, &self.tree, self.allow_unfired, finished)
    }

    /// As [`collect`](Self::collect), for models whose forward takes `&mut self`.
    pub fn collect_mut<T, E, F>(&mut self, f: F) -> Result<ActivationCache>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_collects(&self.requests)?;
        let (_, finished) = self.go_mut(Mode::UntilCollected, f)?;
        Ok(finished_run(&self.requests, &self.tree, self.allow_unfired, (Some(()), finished))?.cache)
    }

    fn go_mut<T, E, F>(&mut self, mode: Mode, f: F) -> Result<(Option<T>, Finished)>
    where
        F: FnOnce(&mut M) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        self.follow_model()?;
        let dispatch = self.dispatch.get_or_init(|| Dispatch::new(&self.tree, &self.requests));
        let (model, shapes) = self.hooked.parts_mut();
        execute(&self.tree, dispatch, &self.requests, mode, shapes, || f(model))
    }

    /// The last run may have changed the model. State that came or went is followed; other modules
    /// than before are an error.
    fn follow_model(&mut self) -> Result<()> {
        let tree = self.hooked.tree();
        if std::sync::Arc::ptr_eq(&tree, &self.tree) {
            return Ok(());
        }
        self.tree.same_modules(&tree).map_err(|change| Error::from(ErrorKind::ModelChanged { change }))?;
        for request in &mut self.requests {
            request.nodes = select_nodes(&tree, &request.pattern)?;
        }
        self.dispatch.take();
        self.tree = tree;
        Ok(())
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

/// Runs `f` with the requests in force on this thread.
pub(crate) fn execute<T, E: Into<BoxedError>>(
    tree: &Tree,
    dispatch: &Dispatch,
    requests: &[Request<'_>],
    mode: Mode,
    shapes: &Shapes,
    f: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<(Option<T>, Finished)> {
    let state = RunState::new(tree, dispatch, requests, mode, shapes);
    let result = with_run(&state, f);
    let stopped = state.is_stopped();
    let (error, finished) = state.into_error();
    match (error, result) {
        // What the run itself found wrong says more than what the model made of it.
        (Some(error), _) => Err(error),
        (None, Ok(output)) => Ok((Some(output), finished)),
        (None, Err(_)) if stopped => Ok((None, finished)),
        (None, Err(error)) => Err(Error::from_boxed(error.into())),
    }
}

fn finished_run<T>(
    requests: &[Request<'_>],
    tree: &Tree,
    allow_unfired: bool,
    (output, finished): (Option<T>, Finished),
) -> Result<Run<T>> {
    let mut unfired = requests.iter().zip(&finished.fired).filter(|(_, times)| **times == 0);
    if let Some((request, _)) = unfired.next().filter(|_| !allow_unfired) {
        let name = |id: &u32| match request.pattern.value() {
            Some(value) => format!("{}:{value}", tree.name(*id)),
            None => tree.name(*id).to_string(),
        };
        let points = request.nodes.iter().map(name).collect();
        return Err(ErrorKind::Unfired { request: request.describe(), points }.into());
    }
    let output = output.ok_or_else(|| Error::from(ErrorKind::Stopped))?;
    let fired = requests.iter().map(Request::describe).zip(finished.fired).collect();
    Ok(Run { output, cache: ActivationCache::of_captures(finished.captures), fired })
}
