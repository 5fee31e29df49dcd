//! The walk over a model.

use std::borrow::Cow;

use candle_core::{Module, ModuleT, Tensor};

use super::dict::{HookDict, Kind};
use super::index::Tree;
use super::leaves::{ByModule, ByModuleT, NotCallable};
use super::registry::TypeInfo;
use crate::erased::Caller;

/// A model, or a part of one, whose modules and parameters can be found.
///
/// Derive it: `#[derive(AutoHook)]`. Every field that is itself `AutoHook`, a candle module or a
/// tensor is visited, in containers too; all other fields are passed over.
///
/// ```
/// use candle_nn::Linear;
/// use hookpoint::prelude::*;
///
/// #[derive(AutoHook)]
/// struct Mlp { up: Linear, down: Linear, width: usize }
///
/// # use candle_core::{Device, DType, Tensor};
/// # fn main() -> candle_core::Result<()> {
/// # let linear = || Tensor::zeros((4, 4), DType::F32, &Device::Cpu).map(|w| Linear::new(w, None));
/// # let mlp = Mlp { up: linear()?, down: linear()?, width: 4 };
/// # let _ = mlp.width;
/// assert_eq!(mlp.hook_dict().keys().collect::<Vec<_>>(), ["", "up", "down"]);
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no hook points",
    label = "this type does not implement `AutoHook`",
    note = "add `#[derive(AutoHook)]` to the type, and `#[auto_hook]` to its `impl` blocks"
)]
pub trait AutoHook {
    /// Announces this value, and what is inside it, to the visitor.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// The points that this value has: its modules and parameters by path.
    fn hook_dict(&self) -> HookDict
    where
        Self: Sized,
    {
        HookDict::of_tree(&Tree::of(self))
    }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Field(&'static str),
    Item(usize),
    Key(Box<str>),
}

impl Step {
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Step::Field(name) => Cow::Borrowed(name),
            Step::Item(index) => Cow::Owned(index.to_string()),
            Step::Key(key) => Cow::Borrowed(key),
        }
    }
}

/// Collects what [`AutoHook::visit`] announces.
pub struct Visitor<'t> {
    tree: &'t mut Tree,
    depth: usize,
}

/// Deeper than any real model; a value that contains itself ends here.
const DEEPEST: usize = 256;

impl<'t> Visitor<'t> {
    pub(crate) fn new(tree: &'t mut Tree) -> Self {
        Self { tree, depth: 0 }
    }

    /// A module of an annotated type, with what is inside it.
    pub fn module<T: ?Sized>(&mut self, module: &T, inside: impl FnOnce(&mut Visitor<'_>)) {
        let node = self.tree.enter::<T, NotCallable>(module, Kind::Module);
        inside(self);
        self.tree.leave(node);
    }

    /// As [`module`](Self::module), for one of a generic type with this definition.
    pub fn defined<T: ?Sized>(
        &mut self,
        module: &T,
        definition: &'static TypeInfo,
        inside: impl FnOnce(&mut Visitor<'_>),
    ) {
        let node = self.tree.enter::<T, NotCallable>(module, Kind::Module);
        self.tree.is_defined(definition);
        inside(self);
        self.tree.leave(node);
    }

    /// Says that the module now visited has state that may change while it is only borrowed: a cell or a lock.
    pub fn has_state(&mut self) {
        self.tree.has_state();
    }

    /// Visits a field of the module now visited that is, or holds, a cell or a lock.
    pub fn cell(&mut self, inside: impl FnOnce(&mut Visitor<'_>)) {
        let depth = self.depth;
        self.tree.cell(|tree| inside(&mut Visitor { tree, depth }));
    }

    /// Visits a field of the module now visited whose cells and locks are declared not to matter to what the module
    /// computes.
    pub fn pure(&mut self, inside: impl FnOnce(&mut Visitor<'_>)) {
        let depth = self.depth;
        self.tree.pure(|tree| inside(&mut Visitor { tree, depth }));
    }

    /// A module that is called as a whole; `C` says how.
    pub(crate) fn leaf<T, C: Caller<T>>(&mut self, module: &T) {
        let node = self.tree.enter::<T, C>(module, Kind::Leaf);
        self.tree.callable::<T, C>();
        self.tree.leave(node);
    }

    /// A module of somebody else's type, also a closure, as one point: what is inside it is not known.
    ///
    /// ```
    /// use candle_core::{Device, Module, Result, Tensor};
    /// use hookpoint::prelude::*;
    /// use hookpoint::Visitor;
    ///
    /// /// A module of any type, as a field of an annotated model.
    /// struct Leaf<M>(M);
    ///
    /// impl<M: Module> AutoHook for Leaf<M> {
    ///     fn visit(&self, visitor: &mut Visitor<'_>) {
    ///         visitor.leaf_module(&self.0);
    ///     }
    /// }
    ///
    /// #[derive(AutoHook)]
    /// struct Model { half: Leaf<fn(&Tensor) -> Result<Tensor>> }
    ///
    /// #[auto_hook]
    /// impl Module for Model {
    ///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
    ///         self.half.0.forward(x)
    ///     }
    /// }
    ///
    /// let model = Hooked::new(Model { half: Leaf(|x: &Tensor| x * 0.5) });
    /// let x = Tensor::new(&[3f32], &Device::Cpu)?;
    /// let (_, cache) = model.run_with_cache("half", |m| m.forward(&x))?;
    /// assert_eq!(cache["half"].to_vec1::<f32>()?, [1.5]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn leaf_module<M: Module>(&mut self, module: &M) {
        self.leaf::<M, ByModule>(module);
    }

    /// As [`leaf_module`](Self::leaf_module), for a module that behaves differently while training.
    pub fn leaf_module_t<M: ModuleT>(&mut self, module: &M) {
        self.leaf::<M, ByModuleT>(module);
    }

    /// As `leaf`, for modules behind a trait object.
    pub(crate) fn leaf_dyn<T: ?Sized, C: Caller<T>>(&mut self, module: &T) {
        let node = self.tree.enter::<T, C>(module, Kind::Leaf);
        self.tree.leave(node);
    }

    /// A parameter: a tensor that the model owns.
    pub fn parameter(&mut self, tensor: &Tensor) {
        self.tree.parameter(tensor);
    }

    /// What a field holds.
    pub fn field<T: AutoHook + ?Sized>(&mut self, name: &'static str, value: &T) {
        self.step(Step::Field(name), |visitor| value.visit(visitor));
    }

    /// A field of a type that we do not know, visited as `inside` says.
    pub(crate) fn foreign(&mut self, name: &'static str, inside: impl FnOnce(&mut Visitor<'_>)) {
        self.step(Step::Field(name), inside);
    }

    /// What stands at a position of a list.
    pub fn item<T: AutoHook + ?Sized>(&mut self, index: usize, value: &T) {
        self.step(Step::Item(index), |visitor| value.visit(visitor));
    }

    /// What stands under a key of a map.
    pub fn key<T: AutoHook + ?Sized>(&mut self, key: &dyn std::fmt::Display, value: &T) {
        self.step(Step::Key(key.to_string().into()), |visitor| value.visit(visitor));
    }

    /// Notes that the value now visited can also be reached as `place`: its box, or its `Arc`.
    pub(crate) fn also_at<T>(&mut self, place: &T) {
        self.tree.also_at(place);
    }

    /// A field that is made of numbers and text, which the module computes with.
    pub(crate) fn number(&mut self, name: &'static str, bits: impl FnOnce() -> Option<u64>) {
        self.tree.number(name, bits);
    }

    pub(crate) fn step(&mut self, step: Step, inside: impl FnOnce(&mut Visitor<'_>)) {
        if self.depth >= DEEPEST {
            return;
        }
        self.depth += 1;
        self.tree.push(step);
        inside(self);
        self.tree.pop();
        self.depth -= 1;
    }
}
