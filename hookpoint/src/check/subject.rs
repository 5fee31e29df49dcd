//! How the model is run for a check.

use std::marker::PhantomData;

use candle_core::Tensor;

use super::gradients::loss;
use super::output::Output;
use crate::access::{Access, Again, Lent};
use crate::cache::ActivationCache;
use crate::error::{BoxedError, Error, Result};
use crate::plan::{Certificate, Plan, Run, Scan};
use crate::recording::Recording;
use crate::run::HookCtx;
use crate::tree::{short_type, AutoHook, HookDict, Kind, NodeId, Tree, Weight};
use crate::value::HookValue;

pub(super) type DynHook<'a> = dyn Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + 'a;

/// One request of a run that the check makes; points are given by name.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    Cache(&'a [String]),
    Hook(&'a [String], &'a DynHook<'a>),
    Patch(&'a ActivationCache),
}

/// Runs the model for the check, which so need not know its type, nor whether it is run by `&` or `&mut`.
pub(super) trait Driver {
    fn model_name(&self) -> String;
    /// The points that the model itself says it has.
    fn own_dict(&self) -> HookDict;
    fn hook_dict(&self) -> HookDict;
    /// Every parameter, and the weights of well-known layers.
    fn weights(&self) -> Vec<Weight>;
    /// Modules whose type has no annotated method.
    fn silent(&self) -> Vec<String>;
    /// The names of modules and parameters that have several.
    fn shared(&self) -> Vec<Vec<String>>;
    /// Without a run.
    fn idle(&mut self) -> Result<Output>;
    fn scan(&mut self) -> Result<(Output, Scan<()>)>;
    fn planned(&mut self, asks: &[Ask<'_>]) -> Result<(Output, ActivationCache)>;
    fn record(&mut self) -> Result<(Output, Recording)>;
    /// With what a recording has; gives how many modules did not run.
    fn replaying(&mut self, recording: &Recording, asks: &[Ask<'_>]) -> Result<(Output, usize)>;
    /// Gradients at all points, compared with differences.
    fn certified(&mut self) -> Result<Certificate>;
    /// May several runs go on at one time?
    fn is_shared(&self) -> bool;
    /// A module that holds a cell or a lock.
    fn state(&self) -> Option<String>;
}

/// A model with the closure that runs it.
pub(super) struct Subject<'a, M, H, F> {
    model: &'a mut H,
    f: F,
    of: PhantomData<fn() -> M>,
}

impl<'a, M, H, F> Subject<'a, M, H, F> {
    pub fn new(model: &'a mut H, f: F) -> Self {
        Self { model, f, of: PhantomData }
    }
}

impl<M, H, T, E, F> Driver for Subject<'_, M, H, F>
where
    M: AutoHook,
    H: Access<M>,
    T: HookValue,
    E: Into<BoxedError>,
    F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<T, E>,
{
    fn model_name(&self) -> String {
        model_name::<M>()
    }

    fn own_dict(&self) -> HookDict {
        self.model.model().hook_dict()
    }

    fn hook_dict(&self) -> HookDict {
        HookDict::of_tree(&self.model.tree())
    }

    fn weights(&self) -> Vec<Weight> {
        Tree::weights_of(self.model.model()).into_iter().filter(|weight| !weight.is_number).collect()
    }

    fn silent(&self) -> Vec<String> {
        silent(&self.model.tree())
    }

    fn shared(&self) -> Vec<Vec<String>> {
        shared(&self.model.tree())
    }

    fn idle(&mut self) -> Result<Output> {
        if self.model.hooks().has_active() {
            return Output::of(Plan::of(Again(self.model)).run(&mut self.f)?.output);
        }
        let output = (self.f)(self.model.parts().0);
        Output::of(output.map_err(|error| Error::from_boxed(error.into()))?)
    }

    fn scan(&mut self) -> Result<(Output, Scan<()>)> {
        let (output, scan) = Plan::of(Again(self.model)).scan(&mut self.f)?.split();
        Ok((Output::of(output)?, scan))
    }

    fn planned(&mut self, asks: &[Ask<'_>]) -> Result<(Output, ActivationCache)> {
        let Run { output, cache, .. } = asked(Plan::of(Again(self.model)), asks)?.run(&mut self.f)?;
        Ok((Output::of(output)?, cache))
    }

    fn record(&mut self) -> Result<(Output, Recording)> {
        let (output, recording) = Plan::of(Again(self.model)).record(&mut self.f)?;
        Ok((Output::of(output)?, recording))
    }

    fn replaying(&mut self, recording: &Recording, asks: &[Ask<'_>]) -> Result<(Output, usize)> {
        let plan = asked(Plan::of(Again(self.model)), asks)?.replay(recording)?;
        let run = plan.run(&mut self.f)?;
        let replayed = run.replayed().count();
        Ok((Output::of(run.output)?, replayed))
    }

    fn certified(&mut self) -> Result<Certificate> {
        let f = &mut self.f;
        Plan::of(Again(self.model)).certify().alone(|model| loss(f(model)))
    }

    fn is_shared(&self) -> bool {
        H::SHARED
    }

    fn state(&self) -> Option<String> {
        let tree = self.model.tree();
        let holds = (0..).zip(&tree.nodes).find(|(id, _)| tree.holds_state(*id));
        holds.map(|(id, _)| tree.name(id).to_string())
    }
}

fn asked<'a, M: AutoHook, H: Access<M>>(
    mut plan: Plan<'a, M, H>,
    asks: &[Ask<'a>],
) -> Result<Plan<'a, M, H>> {
    for ask in asks {
        plan = match *ask {
            Ask::Cache(points) => plan.cache(points)?,
            Ask::Hook(points, hook) => plan.hook(points, hook)?,
            Ask::Patch(cache) => plan.patch_all(cache)?,
        };
    }
    Ok(plan)
}

/// The type of a model, or of what a reference to one refers to.
fn model_name<M>() -> String {
    let name = short_type(std::any::type_name::<M>());
    name.trim_start_matches(['&', ' ']).trim_start_matches("mut ").to_string()
}

fn silent(tree: &Tree) -> Vec<String> {
    let nodes = tree.nodes.iter().zip(tree.names().iter());
    let silent = nodes.filter(|(node, _)| node.kind == Kind::Module && tree.methods(node).is_empty());
    silent.map(|(_, name)| name.to_string()).collect()
}

fn shared(tree: &Tree) -> Vec<Vec<String>> {
    let names = |same: Vec<NodeId>| same.into_iter().map(|id| tree.name(id).to_string()).collect();
    tree.shared().into_iter().map(names).collect()
}
