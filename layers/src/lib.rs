//! Layers that candle does not have, with points of their own, for models that [`hookpoint`] hooks.
//!
//! * [`Sequential`] and [`SequentialT`]: layers in a row, each under a name.
//! * [`Lambda`]: a function as a layer. [`Sample`]: a draw from a [`Distribution`], such as [`Normal`].
//! * [`MaxPool2d`], which knows where its maxima were, and [`MaxUnpool2d`], which puts values back there.
//!   [`save_maxpool_indices`] and [`use_indices_in_maxunpool`] carry the indices from a run of an encoder
//!   to a run of a decoder, past everything between them.
//!
//! None of them keeps anything between calls, so a model that holds them can be run by several threads at
//! a time. What belongs to a run stays in the run: indices and noise are named values, `pool:indices` and
//! `sample:noise`, which a plan can read and replace like any other.
//!
//! ```
//! use candle_core::{DType, Device, Module, Tensor};
//! use candle_nn::Linear;
//! use hookpoint_layers::{Lambda, Normal, Sample, Sequential};
//! use hookpoint::prelude::*;
//!
//! let weight = Tensor::ones((1, 4), DType::F32, &Device::Cpu)?;
//! let model = Sequential::new()
//!     .add("flatten", Lambda::new(|x: &Tensor| x.flatten_from(1)))?
//!     .add("linear", Linear::new(weight, None))?
//!     .then("normal", Lambda::new(|mean: &Tensor| Normal::new(mean, 0.1)))?
//!     .then("sample", Sample::new())?;
//! let model = Hooked::new(model);
//!
//! let x = Tensor::ones((1, 2, 2), DType::F32, &Device::Cpu)?;
//! let samples = model.points_of_type::<Sample>();
//! let (_, inputs) = model.get_layer_inputs(&samples, |m| m.forward(&x))?;
//!
//! // What went into the layer is a distribution.
//! let normal = inputs.get_any::<Normal>("sample:in")?;
//! assert_eq!(normal.mean().to_vec2::<f32>()?, [[4.]]);
//! # Ok::<(), hookpoint::Error>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod chain;
mod distribution;
mod indices;
mod lambda;
mod max_indices;
mod max_pool;
mod max_unpool;
mod random;
mod sample;
mod sequential;
mod window;

use candle_core::Result;
use hookpoint::HookValue;

pub use distribution::{Distribution, Normal};
pub use indices::{save_maxpool_indices, use_indices_in_maxunpool, AfterUse, MaxPoolIndices};
pub use lambda::Lambda;
pub use max_pool::MaxPool2d;
pub use max_unpool::MaxUnpool2d;
pub use random::Random;
pub use sample::Sample;
pub use sequential::{Sequential, SequentialT};
pub use window::Rounding;

/// What layers hand on to each other: a tensor, or any value that can be copied and says which tensors it
/// holds. Derive [`HookValue`](derive@hookpoint::HookValue) for a type to make it one.
pub trait LayerValue: HookValue + Clone + Send + Sync + 'static {}

impl<V: HookValue + Clone + Send + Sync + 'static> LayerValue for V {}

/// A layer between values of any type, where candle's `Module` is one between tensors.
///
/// Annotate its implementation with [`#[auto_hook]`](hookpoint::auto_hook), as that of a `Module`, and its
/// input and output are points.
///
/// ```
/// use candle_core::{Device, Result, Tensor};
/// use hookpoint_layers::{Layer, Sequential};
/// use hookpoint::prelude::*;
///
/// #[derive(Clone, HookValue)]
/// struct Polar { radius: Tensor, angle: Tensor }
///
/// #[derive(AutoHook)]
/// struct ToPolar;
///
/// #[auto_hook]
/// impl Layer<Tensor> for ToPolar {
///     type Output = Polar;
///
///     fn forward_value(&self, x: &Tensor) -> Result<Polar> {
///         Ok(Polar { radius: x.sqr()?.sum_all()?.sqrt()?, angle: x.get(0)?.zeros_like()? })
///     }
/// }
///
/// let model = Hooked::new(Sequential::new().then("polar", ToPolar)?);
/// let x = Tensor::new(&[3f32, 4.], &Device::Cpu)?;
/// let (output, cache) = model.run_with_cache("polar:out.*", |m| m.forward_value(&x))?;
/// assert_eq!(output.radius.to_scalar::<f32>()?, 5.);
/// assert_eq!(cache["polar:out.angle"].to_scalar::<f32>()?, 0.);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub trait Layer<I> {
    /// What it gives.
    type Output;

    /// Computes the output.
    fn forward_value(&self, input: &I) -> Result<Self::Output>;
}
