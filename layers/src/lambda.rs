//! A function as a layer.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use candle_core::{Module, Result, Tensor};
use hookpoint::{AutoHook, Visitor};

use super::{Layer, LayerValue};

/// A function as a layer, with its input and output as points. Between tensors it is a `Module`, between
/// values of other types a [`Layer`].
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use hookpoint_layers::Lambda;
/// use hookpoint::prelude::*;
///
/// let factor = 3.;
/// let model = Hooked::new(Lambda::new(move |x: &Tensor| x * factor).named("triple"));
/// assert_eq!(format!("{:?}", *model), "Lambda(triple)");
///
/// let x = Tensor::new(&[1f32, 2.], &Device::Cpu)?;
/// let (output, cache) = model.run_with_cache(":in", |m| m.forward(&x))?;
/// assert_eq!(output.to_vec1::<f32>()?, [3., 6.]);
/// assert_eq!(cache[":in"].to_vec1::<f32>()?, [1., 2.]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Lambda<I = Tensor, O = Tensor> {
    name: Cow<'static, str>,
    function: Function<I, O>,
}

type Function<I, O> = Arc<dyn Fn(&I) -> Result<O> + Send + Sync>;

impl<I, O> Lambda<I, O> {
    /// Makes a layer of a function.
    pub fn new(function: impl Fn(&I) -> Result<O> + Send + Sync + 'static) -> Self {
        Self { name: Cow::Borrowed(std::any::type_name::<O>()), function: Arc::new(function) }
    }

    /// Gives it a name, by which it is printed. Its path is that of the field or key that it stands under.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Its name; without one, the type of what it gives.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<I, O> AutoHook for Lambda<I, O> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module(self, |_| {});
    }
}

#[hookpoint::auto_hook]
impl Module for Lambda<Tensor, Tensor> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        (self.function)(input)
    }
}

#[hookpoint::auto_hook]
impl<I: LayerValue, O: LayerValue> Layer<I> for Lambda<I, O> {
    type Output = O;

    fn forward_value(&self, input: &I) -> Result<O> {
        (self.function)(input)
    }
}

impl<I, O> Clone for Lambda<I, O> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), function: self.function.clone() }
    }
}

impl<I, O> fmt::Debug for Lambda<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lambda({})", self.name)
    }
}
