//! Layers of different types in a row, under names.
//!
//! A derive reads the types of fields from the source; here they are known only where a layer is added. So
//! that is where its call site is: in a generic function that is annotated, for the type that the layer has.

use std::any::Any;

use candle_core::{Module, ModuleT, Result, Tensor};
use hookpoint::{auto_hook, AutoHook, Error, Visitor};

use super::{Layer, LayerValue};

/// A module behind a box that says nothing more of it.
pub(super) type BoxedModule = Box<dyn Module + Send + Sync>;

/// What a layer gives.
type Given = Box<dyn Any>;

#[derive(Default)]
pub(super) struct Chain {
    children: Vec<(String, Box<dyn Child>)>,
}

/// A layer whose type is forgotten.
trait Child: Send + Sync {
    fn visit(&self, visitor: &mut Visitor<'_>);
    fn call(&self, input: &dyn Any, train: bool) -> Result<Given>;
    fn layer(&self) -> &dyn Any;
}

/// A layer with how to visit and call it. It stands first, and something stands behind it: so that every
/// layer has an address of its own, those of size zero too.
#[repr(C)]
pub(super) struct Of<L> {
    layer: L,
    visit: fn(&L, &mut Visitor<'_>),
    call: fn(&L, &dyn Any, bool) -> Result<Given>,
}

impl<L: Send + Sync + 'static> Child for Of<L> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (self.visit)(&self.layer, visitor);
    }

    fn call(&self, input: &dyn Any, train: bool) -> Result<Given> {
        (self.call)(&self.layer, input, train)
    }

    fn layer(&self) -> &dyn Any {
        &self.layer
    }
}

impl AutoHook for dyn Child {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        Child::visit(self, visitor);
    }
}

impl<L: Module + AutoHook> Of<L> {
    pub fn module(layer: L) -> Self {
        Self { layer, visit: L::visit, call: call_module }
    }
}

impl<L: Module> Of<L> {
    /// A module without points of its own.
    pub fn leaf(layer: L) -> Self {
        Self { layer, visit: |layer, visitor| visitor.leaf_module(layer), call: call_module }
    }
}

impl<L: ModuleT + AutoHook> Of<L> {
    pub fn module_t(layer: L) -> Self {
        Self { layer, visit: L::visit, call: call_module_t }
    }
}

impl<L: ModuleT> Of<L> {
    /// A module without points of its own.
    pub fn leaf_t(layer: L) -> Self {
        Self { layer, visit: |layer, visitor| visitor.leaf_module_t(layer), call: call_module_t }
    }
}

impl Of<BoxedModule> {
    pub fn boxed(layer: BoxedModule) -> Self {
        Self { layer, visit: BoxedModule::visit, call: call_boxed }
    }
}

impl<L: AutoHook> Of<L> {
    pub fn layer<I: LayerValue>(layer: L) -> Self
    where
        L: Layer<I, Output: LayerValue>,
    {
        Self { layer, visit: L::visit, call: call_layer::<I, L> }
    }
}

fn call_module<L: Module>(layer: &L, input: &dyn Any, _: bool) -> Result<Given> {
    forward(layer, as_a(input)?).map(given)
}

fn call_module_t<L: ModuleT>(layer: &L, input: &dyn Any, train: bool) -> Result<Given> {
    forward_t(layer, as_a(input)?, train).map(given)
}

fn call_boxed(layer: &BoxedModule, input: &dyn Any, _: bool) -> Result<Given> {
    forward_boxed(layer, as_a(input)?).map(given)
}

fn call_layer<I: LayerValue, L: Layer<I, Output: LayerValue>>(
    layer: &L,
    input: &dyn Any,
    _: bool,
) -> Result<Given> {
    forward_value(layer, as_a(input)?).map(given)
}

#[auto_hook]
fn forward<L: Module>(layer: &L, x: &Tensor) -> Result<Tensor> {
    layer.forward(x)
}

#[auto_hook]
fn forward_t<L: ModuleT>(layer: &L, x: &Tensor, train: bool) -> Result<Tensor> {
    layer.forward_t(x, train)
}

#[auto_hook]
fn forward_boxed(layer: &BoxedModule, x: &Tensor) -> Result<Tensor> {
    layer.forward(x)
}

#[auto_hook]
fn forward_value<I: LayerValue, L: Layer<I, Output: LayerValue>>(layer: &L, input: &I) -> Result<L::Output> {
    layer.forward_value(input)
}

fn given<O: 'static>(output: O) -> Given {
    Box::new(output)
}

/// The types of neighbours are checked where they are put together, so this does not fail.
fn as_a<I: 'static>(input: &dyn Any) -> Result<&I> {
    input.downcast_ref().ok_or_else(|| {
        let wanted = std::any::type_name::<I>();
        Error::msg(format!("a layer that takes a `{wanted}` was given something else")).into()
    })
}

impl Chain {
    /// Adds a layer at the end.
    pub fn add<L: Send + Sync + 'static>(mut self, name: String, layer: Of<L>) -> hookpoint::Result<Self> {
        if name.is_empty() {
            return Err(Error::msg(
                "a layer of a `Sequential` needs a name\n  use `push` to have them numbered",
            ));
        }
        if self.names().any(|other| other == name) {
            return Err(Error::msg(format!(
                "there is a layer `{name}` already\n  give every layer of a `Sequential` a name of its own"
            )));
        }
        self.children.push((name, Box::new(layer)));
        Ok(self)
    }

    /// Gives the input to the first layer, what that gives to the second, and so on.
    pub fn call<I: Clone + 'static, O: 'static>(&self, input: &I, train: bool) -> Result<O> {
        let mut given: Option<Given> = None;
        for (_, child) in &self.children {
            given = Some(child.call(given.as_deref().unwrap_or(input), train)?);
        }
        let given = given.unwrap_or_else(|| Box::new(input.clone()));
        given.downcast::<O>().map(|output| *output).map_err(|_| {
            let wanted = std::any::type_name::<O>();
            Error::msg(format!("the last layer was to give a `{wanted}`")).into()
        })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.children.iter().map(|(name, _)| name.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Any)> {
        self.children.iter().map(|(name, child)| (name.as_str(), child.layer()))
    }

    pub fn get<L: 'static>(&self, name: &str) -> Option<&L> {
        self.iter().find(|(own, _)| *own == name)?.1.downcast_ref()
    }

    pub fn len(&self) -> usize {
        self.children.len()
    }

    pub fn visit(&self, visitor: &mut Visitor<'_>) {
        for (name, child) in &self.children {
            visitor.key(name, &**child);
        }
    }
}
