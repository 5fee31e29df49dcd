//! How a sweep runs its model, whichever way it holds it.

use std::sync::Arc;

use candle_core::Tensor;

use crate::access::{Access, Again, Lent};
use crate::error::{BoxedError, Error, Result};
use crate::pattern::Pattern;
use crate::plan::{Plan, Taped, Way};
use crate::recording::Recording;
use crate::run::HookFn;
use crate::tree::{AutoHook, Tree};

/// What a run of a sweep is asked.
pub(super) enum Ask<'p> {
    Cache(Pattern),
    Patch(Pattern, Tensor),
    Hook(Pattern, HookFn<'p>),
}

/// What is not done again, and how often the rows of its input are repeated.
pub(super) type Replay<'r> = Option<(&'r Recording, usize)>;

/// A model with the closure that runs it, of whatever types.
pub(super) trait Runs<X> {
    fn tree(&self) -> Arc<Tree>;

    fn run(&mut self, asks: Vec<Ask<'_>>, way: Way, replay: Replay<'_>, input: &X) -> Result<Taped<Tensor>>;
}

/// How a model is put back to where every run begins.
pub(super) type Restore<'e, M> = Box<dyn Fn(&mut M) + 'e>;

/// A model, and how it is run.
pub(super) struct Subject<'e, M, H: Access<M>, F> {
    held: H,
    run: F,
    restore: Option<Restore<'e, M>>,
}

impl<'e, M, H: Access<M>, F> Subject<'e, M, H, F> {
    pub fn new(held: H, run: F, restore: Option<Restore<'e, M>>) -> Self {
        Self { held, run, restore }
    }

    fn put_back(&mut self) {
        if let Some(restore) = &self.restore {
            self.held.put_back(restore);
        }
    }
}

impl<M: AutoHook, X, E: Into<BoxedError>, H, F> Runs<X> for Subject<'_, M, H, F>
where
    H: Access<M>,
    F: for<'m> Fn(Lent<'m, M, H>, &X) -> Result<Tensor, E>,
{
    fn tree(&self) -> Arc<Tree> {
        self.held.tree()
    }

    fn run(&mut self, asks: Vec<Ask<'_>>, way: Way, replay: Replay<'_>, input: &X) -> Result<Taped<Tensor>> {
        self.put_back();
        let mut plan = Plan::of(Again(&mut self.held));
        for ask in asks {
            plan = match ask {
                Ask::Cache(pattern) => plan.cache(pattern)?,
                Ask::Patch(pattern, tensor) => plan.patch(pattern, &tensor)?,
                Ask::Hook(pattern, hook) => plan.hook(pattern, move |ctx, value| hook(ctx, value))?,
            };
        }
        if let Some((recording, copies)) = replay {
            plan = plan.replay_rows(recording, copies)?;
        }
        let run = &self.run;
        plan.run_taped(way, |m| run(m, input).map_err(|error| Error::from_boxed(error.into())))
    }
}

impl<M, H: Access<M>, F> Drop for Subject<'_, M, H, F> {
    /// A model that is put back for every run is left as it was found.
    fn drop(&mut self) {
        self.put_back();
    }
}
