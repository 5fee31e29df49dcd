//! Candle's layers with right gradients.
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//! use candle_nn::{LayerNorm, Linear, Module};
//! use hookpoint_grad::layer::Layer;
//!
//! let x = Var::randn(0f32, 1., (2, 8), &Device::Cpu)?;
//! let ones = Tensor::ones(8, x.dtype(), x.device())?;
//! let norm = LayerNorm::new(ones.clone(), ones.zeros_like()?, 1e-5);
//! let sum = |y: Tensor| y.narrow(1, 0, 3)?.sum_all()?.backward();
//!
//! // A gradient ends at candle's fused kernel, and no error says so.
//! assert!(sum(norm.forward(&x)?)?.get(&x).is_none());
//!
//! let y = Layer::from(&norm).forward(&x, false).unwrap()?;
//! assert_eq!(y.to_vec2::<f32>()?, norm.forward(&x)?.to_vec2::<f32>()?);
//! assert!(sum(y)?.get(&x).is_some());
//! # Ok::<(), candle_core::Error>(())
//! ```

use std::any::Any;

use candle_core::quantized::QMatMul;
use candle_core::{DType, Module, ModuleT, Result, Tensor};
use candle_nn::ops::Identity;
use candle_nn::{
    Activation, BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Dropout, Embedding, GroupNorm,
    LayerNorm, Linear, PReLU, RmsNorm, GRU, LSTM,
};

use super::conv::{conv_rule, conv_transpose_rule, Moves};
use super::elementwise::{binary_rule, Binary};
use super::node::attach;
use super::norm::{norm_rule, Mean};
use super::product::{linear_rule, quantized_rule};

macro_rules! layers {
    ($($name:ident),* $(,)?) => {
        /// One of candle's layers.
        #[derive(Clone, Copy)]
        #[allow(missing_docs)]
        pub enum Layer<'l> {
            $($name(&'l $name),)*
        }

        impl<'l> Layer<'l> {
            /// The layer that this is; none where it is not one of candle's.
            pub fn of(layer: &'l dyn Any) -> Option<Self> {
                None$(.or_else(|| layer.downcast_ref().map(Self::$name)))*
            }
        }

        $(impl<'l> From<&'l $name> for Layer<'l> {
            fn from(layer: &'l $name) -> Self {
                Self::$name(layer)
            }
        })*
    };
}
layers!(
    Activation,
    BatchNorm,
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
    Dropout,
    Embedding,
    GroupNorm,
    Identity,
    LSTM,
    LayerNorm,
    Linear,
    PReLU,
    QMatMul,
    RmsNorm,
    GRU,
);

impl Layer<'_> {
    /// What the layer gives, with the right gradient: what candle computes, bit for bit. None where candle's own
    /// gradient is all that there is: [`is_right`](Self::is_right) says whether it can be relied on. `train` is what
    /// candle's `forward_t` is given.
    pub fn forward(self, x: &Tensor, train: bool) -> Option<Result<Tensor>> {
        Some(match self {
            Self::Linear(layer) => linear(layer, x),
            Self::LayerNorm(layer) => layer_norm(layer, x),
            Self::RmsNorm(layer) => rms_norm(layer, x),
            Self::BatchNorm(layer) if !train && is_frozen(layer) => batch_norm(layer, x),
            Self::Activation(Activation::Gelu) => super::gelu_erf(x),
            Self::Activation(Activation::NewGelu | Activation::GeluPytorchTanh) => super::gelu(x),
            Self::QMatMul(layer) => {
                layer.forward(&x.detach()).and_then(|value| quantized_rule(x, layer, value))
            }
            Self::Conv1d(layer) => {
                let config = layer.config();
                let moves = moves(config.padding, 0, config.stride, config.dilation, config.groups);
                let alone = Conv1d::new(layer.weight().detach(), None, *config);
                let value = alone.forward(&x.detach()).and_then(|y| conv_rule(x, layer.weight(), moves, y));
                value.and_then(|y| with_bias(y, layer.bias()))
            }
            Self::Conv2d(layer) => {
                let config = layer.config();
                let moves = moves(config.padding, 0, config.stride, config.dilation, config.groups);
                let alone = Conv2d::new(layer.weight().detach(), None, *config);
                let value = alone.forward(&x.detach()).and_then(|y| conv_rule(x, layer.weight(), moves, y));
                value.and_then(|y| with_bias(y, layer.bias()))
            }
            Self::ConvTranspose1d(layer) => {
                let config = layer.config();
                let moves = moves(
                    config.padding,
                    config.output_padding,
                    config.stride,
                    config.dilation,
                    config.groups,
                );
                let alone = ConvTranspose1d::new(layer.weight().detach(), None, *config);
                let value =
                    alone.forward(&x.detach()).and_then(|y| conv_transpose_rule(x, layer.weight(), moves, y));
                value.and_then(|y| with_bias(y, layer.bias()))
            }
            Self::ConvTranspose2d(layer) => {
                let config = layer.config();
                let moves = moves(config.padding, config.output_padding, config.stride, config.dilation, 1);
                let alone = ConvTranspose2d::new(layer.weight().detach(), None, *config);
                let value =
                    alone.forward(&x.detach()).and_then(|y| conv_transpose_rule(x, layer.weight(), moves, y));
                value.and_then(|y| with_bias(y, layer.bias()))
            }
            _ => return None,
        })
    }

    /// Is the gradient that candle computes for this layer right?
    pub fn is_right(self) -> bool {
        matches!(
            self,
            Self::Activation(_)
                | Self::BatchNorm(_)
                | Self::Dropout(_)
                | Self::Embedding(_)
                | Self::GroupNorm(_)
                | Self::PReLU(_)
                | Self::Identity(_)
                | Self::LSTM(_)
                | Self::GRU(_)
        )
    }
}

fn linear(layer: &Linear, x: &Tensor) -> Result<Tensor> {
    let (weight, bias) = (layer.weight(), layer.bias());
    let value = Linear::new(weight.detach(), bias.map(Tensor::detach)).forward(&x.detach())?;
    linear_rule(x, weight, bias, value)
}

fn layer_norm(layer: &LayerNorm, x: &Tensor) -> Result<Tensor> {
    let (weight, bias, eps) = (layer.weight(), layer.bias(), layer.eps());
    let mean = if layer.remove_mean() { Mean::Removed } else { Mean::Kept };
    // Candle's kernel knows no double precision.
    if mean == Mean::Removed && x.dtype() == DType::F64 {
        return super::layer_norm(x, weight, bias, eps);
    }
    if !weight.track_op() && bias.is_none_or(|bias| !bias.track_op()) {
        return norm_rule(mean, x, weight, bias, eps, layer.forward(&x.detach())?);
    }
    match (mean, bias) {
        (Mean::Removed, bias) => super::layer_norm(x, weight, bias, eps),
        (Mean::Kept, None) => super::rms_norm(x, weight, eps),
        (Mean::Kept, Some(_)) => layer.forward(x),
    }
}

fn rms_norm(layer: &RmsNorm, x: &Tensor) -> Result<Tensor> {
    super::rms_norm(x, layer.weight(), layer.eps())
}

fn is_frozen(layer: &BatchNorm) -> bool {
    layer.weight_and_bias().is_none_or(|(weight, bias)| !weight.track_op() && !bias.track_op())
}

/// Outside of training, every channel is scaled and shifted: dx = dy w / deviation.
fn batch_norm(layer: &BatchNorm, x: &Tensor) -> Result<Tensor> {
    let value = layer.forward_t(&x.detach(), false)?;
    let deviation = (layer.running_var().detach() + layer.eps())?.sqrt()?;
    let scale = match layer.weight_and_bias() {
        Some((weight, _)) => weight.div(&deviation)?,
        None => deviation.recip()?,
    };
    attach("batch_norm", value, [x], move |step| {
        let mut dims = vec![1; step.grad.rank()];
        if let Some(channels) = dims.get_mut(1) {
            *channels = scale.elem_count();
        }
        Ok([Some(step.grad.broadcast_mul(&scale.reshape(dims)?)?)])
    })
}

fn moves(padding: usize, output_padding: usize, stride: usize, dilation: usize, groups: usize) -> Moves {
    Moves { padding, output_padding, stride, dilation, groups }
}

/// Adds `[channels]` to `[batch, channels, ..]`.
fn with_bias(x: Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(x) };
    let mut dims = vec![1; x.rank()];
    if let Some(channels) = dims.get_mut(1) {
        *channels = bias.dims1()?;
    }
    let bias = bias.reshape(dims)?;
    match binary_rule(Binary::Add, &x, &bias, x.detach().broadcast_add(&bias.detach())?)? {
        Some(sum) => Ok(sum),
        None => x.broadcast_add(&bias),
    }
}
