//! How a sweep runs its model: one that it shares with others, or one that runs may change.

use std::sync::Arc;

use candle_core::Tensor;

use crate::access::Access;
use crate::error::Result;
use crate::hooked::Hooked;
use crate::pattern::Pattern;
use crate::plan::{Plan, Taped, Way};
use crate::recording::Recording;
use crate::run::HookFn;
use crate::tree::{AutoHook, Tree};

/// What a run of a sweep is asked.
pub(super) enum Ask<'p> {
    Cache(Pattern),
    Patch(String, Tensor),
    Hook(String, HookFn<'p>),
}

/// What is not done again, and how often the rows of its input are repeated.
pub(super) type Replay<'r> = Option<(&'r Recording, usize)>;

/// A model with the closure that runs it.
pub(super) trait Held<X> {
    fn tree(&self) -> Arc<Tree>;

    fn run(&mut self, asks: Vec<Ask<'_>>, way: Way, replay: Replay<'_>, input: &X) -> Result<Taped<Tensor>>;
}

/// A model whose forward takes `&self`.
pub(super) struct Shared<'e, M, X> {
    pub model: &'e Hooked<M>,
    pub run: &'e dyn Fn(&M, &X) -> Result<Tensor>,
}

impl<M: AutoHook, X> Held<X> for Shared<'_, M, X> {
    fn tree(&self) -> Arc<Tree> {
        self.model.tree()
    }

    fn run(&mut self, asks: Vec<Ask<'_>>, way: Way, replay: Replay<'_>, input: &X) -> Result<Taped<Tensor>> {
        asking(self.model.plan(), asks, replay)?.run_taped(way, |m| (self.run)(m, input))
    }
}

/// A model whose forward takes `&mut self`.
pub(super) struct Exclusive<'e, M, X> {
    pub model: &'e mut Hooked<M>,
    pub run: &'e dyn Fn(&mut M, &X) -> Result<Tensor>,
    /// Puts the model back to where every run begins.
    pub restore: Option<&'e dyn Fn(&mut M)>,
}

impl<M: AutoHook, X> Exclusive<'_, M, X> {
    fn begin(&mut self) {
        if let Some(restore) = self.restore {
            restore(self.model.parts_mut().0);
        }
    }
}

impl<M: AutoHook, X> Held<X> for Exclusive<'_, M, X> {
    fn tree(&self) -> Arc<Tree> {
        self.model.tree()
    }

    fn run(&mut self, asks: Vec<Ask<'_>>, way: Way, replay: Replay<'_>, input: &X) -> Result<Taped<Tensor>> {
        self.begin();
        let run = self.run;
        asking(self.model.plan_mut(), asks, replay)?.run_taped(way, |m| run(m, input))
    }
}

impl<M, X> Drop for Exclusive<'_, M, X> {
    /// A model that is put back for every run is left as it was found.
    fn drop(&mut self) {
        if let Some(restore) = self.restore {
            restore(self.model);
        }
    }
}

fn asking<'p, M: AutoHook, H: Access<M>>(
    mut plan: Plan<'p, M, H>,
    asks: Vec<Ask<'p>>,
    replay: Replay<'_>,
) -> Result<Plan<'p, M, H>> {
    for ask in asks {
        plan = match ask {
            Ask::Cache(pattern) => plan.cache(pattern)?,
            Ask::Patch(point, tensor) => plan.patch(point, &tensor)?,
            Ask::Hook(point, hook) => plan.hook(point, move |ctx, value| hook(ctx, value))?,
        };
    }
    match replay {
        Some((recording, copies)) => plan.replay_rows(recording, copies),
        None => Ok(plan),
    }
}
