//! How a sweep runs its model, whatever holds it.

use std::sync::Arc;

use candle_core::Tensor;

use crate::error::Result;
use crate::held::{Asks, Held, Lent};
use crate::hooked::Access;
use crate::pattern::Pattern;
use crate::plan::{BoxedError, Plan, Taped, Way};
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

impl<'p> Asks<'p> for (Vec<Ask<'p>>, Replay<'_>) {
    fn of_plan<M: AutoHook, H: Access<M>>(self, mut plan: Plan<'p, M, H>) -> Result<Plan<'p, M, H>> {
        let (asks, replay) = self;
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
}

/// A model with the closure that runs it, of whatever types.
pub(super) trait Runs<X> {
    fn tree(&self) -> Arc<Tree>;

    fn run<'p>(
        &'p mut self,
        asks: Vec<Ask<'p>>,
        way: Way,
        replay: Replay<'p>,
        input: &X,
    ) -> Result<Taped<Tensor>>;
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
    F: for<'m> Fn(Lent<'m, H, M>, &X) -> Result<Tensor, E>,
{
    fn tree(&self) -> Arc<Tree> {
        self.held.tree()
    }

    fn run<'p>(
        &'p mut self,
        asks: Vec<Ask<'p>>,
        way: Way,
        replay: Replay<'p>,
        input: &X,
    ) -> Result<Taped<Tensor>> {
        if let Some(restore) = &self.restore {
            self.held.put_back(restore);
        }
        let run = &self.run;
        self.held.run_in((asks, replay), way, |m| run(m, input))
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
