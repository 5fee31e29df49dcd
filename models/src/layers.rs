//! Layers that compute with [`hookpoint_kernels`], in the places of candle's.
//!
//! ```
//! use candle_core::{Device, Module, Tensor};
//! use hookpoint_models::layers::Linear;
//!
//! let weight = Tensor::new(&[[3f32, 4.], [5., 6.], [7., 8.]], &Device::Cpu)?;
//! let layer = Linear::new(weight, Some(Tensor::new(&[0f32, 1., 2.], &Device::Cpu)?));
//! let x = Tensor::new(&[[1f32, 2.]], &Device::Cpu)?;
//! assert_eq!(layer.forward(&x)?.to_vec2::<f32>()?, [[11., 18., 25.]]);
//! # Ok::<(), candle_core::Error>(())
//! ```

use candle_core::{Module, Result, Tensor};
use candle_nn::VarBuilder;
use hookpoint::prelude::*;
use hookpoint_kernels::{layer_norm, linear};

/// A linear layer, as `candle_nn::Linear` is one, that computes with [`linear`].
#[derive(Clone, Debug, AutoHook)]
pub struct Linear {
    #[hook(skip)]
    weight: Tensor,
    #[hook(skip)]
    bias: Option<Tensor>,
}

impl Linear {
    /// `weight` is `[out, in]`, also as a transposed `[in, out]`; `bias` is `[out]`.
    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Self {
        Self { weight, bias }
    }

    /// `[out, in]`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// `[out]`.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }
}

#[auto_hook]
impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        linear(x, &self.weight, self.bias.as_ref())
    }
}

/// A layer norm with a bias, as `candle_nn::LayerNorm` is one, that computes with [`layer_norm`].
#[derive(Clone, Debug, AutoHook)]
pub struct LayerNorm {
    #[hook(skip)]
    weight: Tensor,
    #[hook(skip)]
    bias: Tensor,
    eps: f64,
}

impl LayerNorm {
    /// `weight` and `bias` are `[width]`.
    pub fn new(weight: Tensor, bias: Tensor, eps: f64) -> Self {
        Self { weight, bias, eps }
    }

    /// Takes `weight` and `bias`.
    pub fn load(width: usize, eps: f64, vb: VarBuilder<'_>) -> Result<Self> {
        let weight = vb.get_with_hints(width, "weight", candle_nn::Init::Const(1.))?;
        Ok(Self::new(weight, vb.get_with_hints(width, "bias", candle_nn::Init::Const(0.))?, eps))
    }

    /// `[width]`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// `[width]`; there always is one.
    pub fn bias(&self) -> Option<&Tensor> {
        Some(&self.bias)
    }

    /// What is added to the variance.
    pub fn eps(&self) -> f64 {
        self.eps
    }
}

#[auto_hook]
impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm(x, &self.weight, &self.bias, self.eps)
    }
}
