//! What can be checked, and how it is run.

use std::borrow::{Borrow, BorrowMut};
use std::marker::PhantomData;

use candle_core::Tensor;

use super::output::Output;
use crate::cache::ActivationCache;
use crate::error::Result;
use crate::held::{Asks, Held, Lent};
use crate::hooked::{Access, Hooked, Scan};
use crate::plan::{BoxedError, Plan, Run};
use crate::run::{HookCtx, Mode};
use crate::tree::{short_type, AutoHook, HookDict, Kind, NodeId, Tree, Weight};
use crate::value::HookValue;

/// What [`check_auto_hook`](super::check_auto_hook) takes: a model, a reference to one, or a [`Hooked`], its own
/// or a reference.
pub trait Subject {
    /// What the closure is given a reference to.
    type Model: AutoHook;
    /// How it is held meanwhile.
    type Held: Borrow<Hooked<Self::Model>>;

    /// Ready to be run.
    fn into_held(self) -> Self::Held;
}

impl<M: AutoHook> Subject for M {
    type Model = M;
    type Held = Hooked<M>;

    fn into_held(self) -> Hooked<M> {
        Hooked::new(self)
    }
}

impl<'a, M: AutoHook> Subject for &'a Hooked<M> {
    type Model = M;
    type Held = &'a Hooked<M>;

    fn into_held(self) -> &'a Hooked<M> {
        self
    }
}

/// What [`check_auto_hook_mut`](super::check_auto_hook_mut) takes: a model, or a `&mut` of a model or of a
/// [`Hooked`].
pub trait SubjectMut {
    /// What the closure is given a `&mut` of.
    type Model: AutoHook;
    /// How it is held meanwhile.
    type Held: BorrowMut<Hooked<Self::Model>>;

    /// Ready to be run.
    fn into_held(self) -> Self::Held;
}

impl<M: AutoHook> SubjectMut for M {
    type Model = M;
    type Held = Hooked<M>;

    fn into_held(self) -> Hooked<M> {
        Hooked::new(self)
    }
}

impl<'a, M: AutoHook> SubjectMut for &'a mut Hooked<M> {
    type Model = M;
    type Held = &'a mut Hooked<M>;

    fn into_held(self) -> &'a mut Hooked<M> {
        self
    }
}

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
}

/// A model with the closure that runs it, whatever holds it.
pub(super) struct Driven<M, H, F> {
    held: H,
    f: F,
    of: PhantomData<fn(&M)>,
}

impl<M, H, F> Driven<M, H, F> {
    pub fn new(held: H, f: F) -> Self {
        Self { held, f, of: PhantomData }
    }
}

impl<M, T, E, H, F> Driver for Driven<M, H, F>
where
    M: AutoHook,
    T: HookValue,
    E: Into<BoxedError>,
    H: Held<M>,
    F: for<'m> FnMut(Lent<'m, H, M>) -> std::result::Result<T, E>,
{
    fn model_name(&self) -> String {
        model_name::<M>()
    }

    fn own_dict(&self) -> HookDict {
        AutoHook::hook_dict(self.held.model())
    }

    fn hook_dict(&self) -> HookDict {
        HookDict::of_tree(&self.held.tree())
    }

    fn weights(&self) -> Vec<Weight> {
        Tree::weights_of(self.held.model())
    }

    fn silent(&self) -> Vec<String> {
        silent(&self.held.tree())
    }

    fn shared(&self) -> Vec<Vec<String>> {
        shared(&self.held.tree())
    }

    fn idle(&mut self) -> Result<Output> {
        let f = &mut self.f;
        Output::of(self.held.run_plain(|m| f(m))?)
    }

    fn scan(&mut self) -> Result<(Output, Scan<()>)> {
        let f = &mut self.f;
        compared(self.held.scan_in(Mode::Scan, |m| f(m))?)
    }

    fn planned(&mut self, asks: &[Ask<'_>]) -> Result<(Output, ActivationCache)> {
        let f = &mut self.f;
        let Run { output, cache, .. } = self.held.run_asked(asks, |m| f(m))?;
        Ok((Output::of(output)?, cache))
    }
}

impl<'p> Asks<'p> for &[Ask<'p>] {
    fn of_plan<M: AutoHook, H: Access<M>>(self, mut plan: Plan<'p, M, H>) -> Result<Plan<'p, M, H>> {
        for ask in self {
            plan = match *ask {
                Ask::Cache(points) => plan.cache(points)?,
                Ask::Hook(points, hook) => plan.hook(points, hook)?,
                Ask::Patch(cache) => plan.patch_all(cache)?,
            };
        }
        Ok(plan)
    }
}

fn compared<T: HookValue>(scan: Scan<T>) -> Result<(Output, Scan<()>)> {
    let (output, scan) = scan.split();
    Ok((Output::of(output)?, scan))
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
