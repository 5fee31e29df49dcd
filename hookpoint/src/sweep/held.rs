//! How a sweep runs its model: one that it shares with others, or one that runs may change.

use std::sync::Arc;

use candle_core::Tensor;

use crate::error::{Error, Result};
use crate::hooked::{Access, Hooked};
use crate::pattern::Pattern;
use crate::plan::{BoxedError, Plan, Taped, Way};
use crate::recording::Recording;
use crate::run::HookFn;
use crate::tree::{AutoHook, Tree};

/// What the closure that runs a model is lent: `&M`, or `&mut M` where runs may change it.
pub trait Lends<'m, M, Lives = &'m M> {
    /// `&M` or `&mut M`.
    type Model;
}

impl<'m, M> Lends<'m, M> for &Hooked<M> {
    type Model = &'m M;
}

impl<'m, M> Lends<'m, M> for &mut Hooked<M> {
    type Model = &'m mut M;
}

/// How a sweep holds its model: `&Hooked<M>`, or `&mut Hooked<M>` for a forward that takes `&mut self`.
///
/// It is no trait to implement: what holds a model is known.
pub trait Held<M>: Access<M> + for<'m> Lends<'m, M> {
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn run_asked(
        &mut self,
        asks: Vec<Ask<'_>>,
        way: Way,
        replay: Replay<'_>,
        run: impl for<'m> Fn(<Self as Lends<'m, M>>::Model) -> Result<Tensor>,
    ) -> Result<Taped<Tensor>>;

    /// Changes the model, where runs may.
    #[doc(hidden)]
    fn put_back(&mut self, restore: &dyn Fn(&mut M));
}

impl<M: AutoHook> Held<M> for &Hooked<M> {
    #[allow(private_interfaces)]
    fn run_asked(
        &mut self,
        asks: Vec<Ask<'_>>,
        way: Way,
        replay: Replay<'_>,
        run: impl for<'m> Fn(&'m M) -> Result<Tensor>,
    ) -> Result<Taped<Tensor>> {
        asking(self.plan(), asks, replay)?.run_taped(way, |m| run(m))
    }

    fn put_back(&mut self, _: &dyn Fn(&mut M)) {}
}

impl<M: AutoHook> Held<M> for &mut Hooked<M> {
    #[allow(private_interfaces)]
    fn run_asked(
        &mut self,
        asks: Vec<Ask<'_>>,
        way: Way,
        replay: Replay<'_>,
        run: impl for<'m> Fn(&'m mut M) -> Result<Tensor>,
    ) -> Result<Taped<Tensor>> {
        asking(self.plan_mut(), asks, replay)?.run_taped_mut(way, |m| run(m))
    }

    fn put_back(&mut self, restore: &dyn Fn(&mut M)) {
        restore(self.parts_mut().0);
    }
}

/// What a run of a sweep is asked.
pub(crate) enum Ask<'p> {
    Cache(Pattern),
    Patch(Pattern, Tensor),
    Hook(Pattern, HookFn<'p>),
}

/// What is not done again, and how often the rows of its input are repeated.
pub(crate) type Replay<'r> = Option<(&'r Recording, usize)>;

fn asking<'p, M: AutoHook, H: Access<M>>(
    mut plan: Plan<'p, M, H>,
    asks: Vec<Ask<'p>>,
    replay: Replay<'_>,
) -> Result<Plan<'p, M, H>> {
    for ask in asks {
        plan = match ask {
            Ask::Cache(pattern) => plan.cache(pattern)?,
            Ask::Patch(pattern, tensor) => plan.patch(pattern, &tensor)?,
            Ask::Hook(pattern, hook) => plan.hook(pattern, move |ctx, value| hook(ctx, value))?,
        };
    }
    match replay {
        Some((recording, copies)) => plan.replay_rows(recording, copies),
        None => Ok(plan),
    }
}

/// A model with the closure that runs it, of whatever types.
pub(super) trait Runs<X> {
    fn tree(&self) -> Arc<Tree>;

    fn run(&mut self, asks: Vec<Ask<'_>>, way: Way, replay: Replay<'_>, input: &X) -> Result<Taped<Tensor>>;
}

/// How a model is put back to where every run begins.
pub(super) type Restore<'e, M> = Box<dyn Fn(&mut M) + 'e>;

/// A model, and how it is run.
pub(super) struct Subject<'e, M, H: Held<M>, F> {
    held: H,
    run: F,
    restore: Option<Restore<'e, M>>,
}

impl<'e, M, H: Held<M>, F> Subject<'e, M, H, F> {
    pub fn new(held: H, run: F, restore: Option<Restore<'e, M>>) -> Self {
        Self { held, run, restore }
    }
}

impl<M: AutoHook, X, E: Into<BoxedError>, H, F> Runs<X> for Subject<'_, M, H, F>
where
    H: Held<M>,
    F: for<'m> Fn(<H as Lends<'m, M>>::Model, &X) -> Result<Tensor, E>,
{
    fn tree(&self) -> Arc<Tree> {
        self.held.tree()
    }

    fn run(&mut self, asks: Vec<Ask<'_>>, way: Way, replay: Replay<'_>, input: &X) -> Result<Taped<Tensor>> {
        if let Some(restore) = &self.restore {
            self.held.put_back(restore);
        }
        self.held.run_asked(asks, way, replay, |m| {
            (self.run)(m, input).map_err(|error| Error::from_boxed(error.into()))
        })
    }
}

impl<M, H: Held<M>, F> Drop for Subject<'_, M, H, F> {
    /// A model that is put back for every run is left as it was found.
    fn drop(&mut self) {
        if let Some(restore) = &self.restore {
            self.held.put_back(restore);
        }
    }
}
