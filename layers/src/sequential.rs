//! Layers in a row, under names.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

use candle_core::{Module, ModuleT, Result, Tensor};
use hookpoint::{AutoHook, Visitor};

use super::chain::{BoxedModule, Chain, Of};
use super::{Layer, LayerValue};

/// Layers in a row, each under a name that is a step of its path. All that is inside a layer can be hooked,
/// as if the layer were a field.
///
/// `Sequential<I, O>` takes an `I` and gives an `O`; both are tensors unless a layer changes that. The
/// compiler checks that neighbours fit. Layers that behave differently while training go into a
/// [`SequentialT`].
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use candle_nn::{Activation, Linear};
/// use hookpoint_layers::Sequential;
/// use hookpoint::prelude::*;
///
/// let linear = |out, inner| Tensor::ones((out, inner), DType::F32, &Device::Cpu).map(|w| Linear::new(w, None));
/// let model = Sequential::new()
///     .add("up", linear(3, 2)?)?
///     .add("act", Activation::Relu)?
///     .add_leaf("half", |x: &Tensor| x * 0.5)?
///     .add("head", Sequential::new().push(linear(1, 3)?)?)?;
/// assert_eq!(model.names().collect::<Vec<_>>(), ["up", "act", "half", "head"]);
/// assert_eq!(model.get::<Linear>("up").map(|up| up.weight().dims()), Some(&[3, 2][..]));
///
/// let model = Hooked::new(model);
/// let x = Tensor::new(&[[1f32, 2.]], &Device::Cpu)?;
/// let (output, cache) = model.run_with_cache("**", |m| m.forward(&x))?;
/// assert_eq!(cache.keys().collect::<Vec<_>>(), ["up", "act", "half", "head.0", "head", ""]);
/// assert_eq!(output.to_vec2::<f32>()?, [[4.5]]);
///
/// // A name that is taken is an error.
/// assert!(Sequential::<Tensor>::new().push(linear(1, 1)?)?.add("0", linear(1, 1)?).is_err());
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Sequential<I = Tensor, O = I> {
    chain: Chain,
    // Functions are `Send` and `Sync` whatever they are between.
    between: PhantomData<fn(&I) -> O>,
}

impl<I> Sequential<I> {
    /// No layers: what goes in comes out.
    pub fn new() -> Self {
        Self { chain: Chain::default(), between: PhantomData }
    }
}

impl<I> Default for Sequential<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I, O> Sequential<I, O> {
    fn with<L: Send + Sync + 'static, N>(
        self,
        name: impl Into<String>,
        layer: Of<L>,
    ) -> hookpoint::Result<Sequential<I, N>> {
        Ok(Sequential { chain: self.chain.add(name.into(), layer)?, between: PhantomData })
    }

    /// Adds a layer between values of any type, which must take what the last layer gives.
    pub fn then<L>(self, name: impl Into<String>, layer: L) -> hookpoint::Result<Sequential<I, L::Output>>
    where
        O: LayerValue,
        L: Layer<O, Output: LayerValue> + AutoHook + Send + Sync + 'static,
    {
        self.with(name, Of::layer::<O>(layer))
    }

    /// The names of the layers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.chain.names()
    }

    /// The layers with their names, in order. Their types are asked for with `downcast_ref`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Any)> {
        self.chain.iter()
    }

    /// The layer of this name, if there is one and it is of this type.
    pub fn get<L: 'static>(&self, name: &str) -> Option<&L> {
        self.chain.get(name)
    }

    /// How many layers there are.
    pub fn len(&self) -> usize {
        self.chain.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<I> Sequential<I, Tensor> {
    /// Adds a layer: one of candle's, one with the derive, or a `Sequential`.
    pub fn add<L>(self, name: impl Into<String>, layer: L) -> hookpoint::Result<Self>
    where
        L: Module + AutoHook + Send + Sync + 'static,
    {
        self.with(name, Of::module(layer))
    }

    /// Adds any module, also a closure, as one point: what is inside it is not known.
    pub fn add_leaf<L>(self, name: impl Into<String>, layer: L) -> hookpoint::Result<Self>
    where
        L: Module + Send + Sync + 'static,
    {
        self.with(name, Of::leaf(layer))
    }

    /// Adds a module in a box, as one point.
    pub fn add_boxed(self, name: impl Into<String>, layer: BoxedModule) -> hookpoint::Result<Self> {
        self.with(name, Of::boxed(layer))
    }

    /// As [`add`](Self::add), with its position as its name.
    pub fn push<L>(self, layer: L) -> hookpoint::Result<Self>
    where
        L: Module + AutoHook + Send + Sync + 'static,
    {
        let name = self.len().to_string();
        self.add(name, layer)
    }
}

impl<I, O> AutoHook for Sequential<I, O> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self, |visitor| self.chain.visit(visitor));
    }
}

#[hookpoint::auto_hook]
impl Module for Sequential<Tensor, Tensor> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.chain.call(input, false)
    }
}

#[hookpoint::auto_hook]
impl<I: LayerValue, O: LayerValue> Layer<I> for Sequential<I, O> {
    type Output = O;

    fn forward_value(&self, input: &I) -> Result<O> {
        self.chain.call(input, false)
    }
}

impl<I, O> fmt::Debug for Sequential<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// As [`Sequential`], for layers that behave differently while training, such as `Dropout` and `BatchNorm`.
///
/// ```
/// use candle_core::{DType, Device, ModuleT, Tensor};
/// use candle_nn::{Activation, Dropout};
/// use hookpoint_layers::SequentialT;
/// use hookpoint::prelude::*;
///
/// let model = SequentialT::new().add("act", Activation::Relu)?.add("drop", Dropout::new(0.5))?;
/// let model = Hooked::new(model);
/// let x = Tensor::ones(100, DType::F32, &Device::Cpu)?;
/// let (output, cache) = model.run_with_cache(["act", "drop"], |m| m.forward_t(&x, true))?;
/// assert_ne!(output.to_vec1::<f32>()?, x.to_vec1::<f32>()?);
/// assert_eq!(cache["act"].to_vec1::<f32>()?, x.to_vec1::<f32>()?);
/// assert_eq!(model.forward_t(&x, false)?.to_vec1::<f32>()?, x.to_vec1::<f32>()?);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Default)]
pub struct SequentialT {
    chain: Chain,
}

impl SequentialT {
    /// No layers: what goes in comes out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a layer: one of candle's, or one with the derive.
    pub fn add<L>(self, name: impl Into<String>, layer: L) -> hookpoint::Result<Self>
    where
        L: ModuleT + AutoHook + Send + Sync + 'static,
    {
        Ok(Self { chain: self.chain.add(name.into(), Of::module_t(layer))? })
    }

    /// Adds any module as one point: what is inside it is not known.
    pub fn add_leaf<L>(self, name: impl Into<String>, layer: L) -> hookpoint::Result<Self>
    where
        L: ModuleT + Send + Sync + 'static,
    {
        Ok(Self { chain: self.chain.add(name.into(), Of::leaf_t(layer))? })
    }

    /// As [`add`](Self::add), with its position as its name.
    pub fn push<L>(self, layer: L) -> hookpoint::Result<Self>
    where
        L: ModuleT + AutoHook + Send + Sync + 'static,
    {
        let name = self.len().to_string();
        self.add(name, layer)
    }

    /// The names of the layers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.chain.names()
    }

    /// The layers with their names, in order. Their types are asked for with `downcast_ref`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Any)> {
        self.chain.iter()
    }

    /// The layer of this name, if there is one and it is of this type.
    pub fn get<L: 'static>(&self, name: &str) -> Option<&L> {
        self.chain.get(name)
    }

    /// How many layers there are.
    pub fn len(&self) -> usize {
        self.chain.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl AutoHook for SequentialT {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self, |visitor| self.chain.visit(visitor));
    }
}

#[hookpoint::auto_hook]
impl ModuleT for SequentialT {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        self.chain.call(input, train)
    }
}

impl fmt::Debug for SequentialT {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
