//! Candle's layers, and all that is known of each: one file a layer.
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//! use candle_nn::{LayerNorm, Module};
//! use hookpoint_grad::layer::KnownLayer;
//!
//! let x = Var::randn(0f32, 1., (2, 8), &Device::Cpu)?;
//! let ones = Tensor::ones(8, x.dtype(), x.device())?;
//! let norm = LayerNorm::new(ones.clone(), ones.zeros_like()?, 1e-5);
//! let sum = |y: Tensor| y.narrow(1, 0, 3)?.sum_all()?.backward();
//!
//! // A gradient ends at candle's fused kernel, and no error says so.
//! assert!(sum(norm.forward(&x)?)?.get(&x).is_none());
//!
//! let y = norm.with_gradient(&x, false).unwrap()?;
//! assert_eq!(y.to_vec2::<f32>()?, norm.forward(&x)?.to_vec2::<f32>()?);
//! assert!(sum(y)?.get(&x).is_some());
//!
//! // What the layer gives is known without running it.
//! assert_eq!(norm.outline(&x).unwrap().dims, [2, 8]);
//! # Ok::<(), candle_core::Error>(())
//! ```

mod activation;
mod batch_norm;
mod convolution;
mod dropout;
mod embedding;
mod group_norm;
mod identity;
mod layer_norm;
mod linear;
mod list;
mod prelu;
mod q_mat_mul;
mod recurrent;
mod rms_norm;

use candle_core::{DType, Result, Tensor};

/// One of candle's layers: what can be said of it without running it, and its right gradient.
///
/// Candle's layers implement it, and nothing else does.
pub trait KnownLayer: listed::Listed {
    /// What the layer gives for this input. None where that is not known, or where the input does not fit and the
    /// layer itself should say so.
    fn outline(&self, input: &Tensor) -> Option<Outline>;

    /// The layer's output with the right gradient, which has the bits that candle computes. None where candle's own
    /// gradient is right. `train` is what candle's `forward_t` is given.
    fn with_gradient(&self, input: &Tensor, train: bool) -> Option<Result<Tensor>>;

    /// How wide the last dimension of the output is, whatever the input.
    fn width(&self) -> Option<usize> {
        None
    }

    /// The tensors that the layer computes with, by name, as far as candle shows them.
    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        Vec::new()
    }
}

/// What a tensor is like, its data aside.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// Its shape.
    pub dims: Vec<usize>,
    /// The type of its elements.
    pub dtype: DType,
}

impl Outline {
    /// That of this tensor.
    pub fn of(tensor: &Tensor) -> Self {
        Self { dims: tensor.dims().to_vec(), dtype: tensor.dtype() }
    }

    /// That of a tensor like this one, `new` wide in its last dimension. None where that is not `expected` wide.
    fn with_last(input: &Tensor, expected: usize, new: usize) -> Option<Self> {
        let mut outline = Self::of(input);
        let last = outline.dims.last_mut().filter(|last| **last == expected)?;
        *last = new;
        Some(outline)
    }
}

/// The weight, and the bias where there is one, by name.
fn weight_and_bias<'l>(weight: &'l Tensor, bias: Option<&'l Tensor>) -> Vec<(&'static str, &'l Tensor)> {
    std::iter::once(("weight", weight)).chain(bias.map(|bias| ("bias", bias))).collect()
}

/// Sees to it that the layers with an implementation are those on the list.
mod listed {
    pub trait Listed: 'static {}

    macro_rules! listed {
        ($($($path:ident)::+ : $by:ident;)*) => { $(
            impl Listed for $($path)::+ {}

            const _: fn(&$($path)::+) -> &dyn super::KnownLayer = |layer| layer;
        )* };
    }
    crate::layers!(listed);
}
