//! Candle's layers with right gradients.

use candle_core::quantized::QMatMul;
use candle_core::{DType, Module, ModuleT, Result, Tensor};
use candle_nn::{
    Activation, BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Dropout, Embedding, GroupNorm,
    LayerNorm, Linear, PReLU, RmsNorm, GRU, LSTM,
};

use super::conv::{conv_rule, conv_transpose_rule, Moves};
use super::elementwise::{binary_rule, Binary};
use super::node::attach;
use super::norm::{norm_rule, Mean};
use super::product::{linear_rule, quantized_rule};
use crate::raw::Erased;

/// What a layer gives, with the right gradient: what candle computes, bit for bit. None where the layer
/// is not one of candle's, or where candle's own gradient is right and is all that there is.
pub(crate) fn forward(layer: Erased<'_>, x: &Tensor, train: bool) -> Option<Result<Tensor>> {
    if let Some(layer) = layer.get::<Linear>() {
        return Some(linear(layer, x));
    }
    if let Some(layer) = layer.get::<LayerNorm>() {
        return Some(layer_norm(layer, x));
    }
    if let Some(layer) = layer.get::<RmsNorm>() {
        return Some(rms_norm(layer, x));
    }
    if let Some(layer) = layer.get::<BatchNorm>().filter(|layer| !train && is_frozen(layer)) {
        return Some(batch_norm(layer, x));
    }
    match layer.get::<Activation>() {
        Some(Activation::Gelu) => return Some(super::gelu_erf(x)),
        Some(Activation::NewGelu | Activation::GeluPytorchTanh) => return Some(super::gelu(x)),
        _ => {}
    }
    if let Some(layer) = layer.get::<QMatMul>() {
        return Some(layer.forward(&x.detach()).and_then(|value| quantized_rule(x, layer, value)));
    }
    if let Some(layer) = layer.get::<Conv1d>() {
        let config = layer.config();
        let moves = moves(config.padding, 0, config.stride, config.dilation, config.groups);
        let alone = Conv1d::new(layer.weight().detach(), None, *config);
        let value = alone.forward(&x.detach()).and_then(|y| conv_rule(x, layer.weight(), moves, y));
        return Some(value.and_then(|y| with_bias(y, layer.bias())));
    }
    if let Some(layer) = layer.get::<Conv2d>() {
        let config = layer.config();
        let moves = moves(config.padding, 0, config.stride, config.dilation, config.groups);
        let alone = Conv2d::new(layer.weight().detach(), None, *config);
        let value = alone.forward(&x.detach()).and_then(|y| conv_rule(x, layer.weight(), moves, y));
        return Some(value.and_then(|y| with_bias(y, layer.bias())));
    }
    if let Some(layer) = layer.get::<ConvTranspose1d>() {
        let config = layer.config();
        let moves =
            moves(config.padding, config.output_padding, config.stride, config.dilation, config.groups);
        let alone = ConvTranspose1d::new(layer.weight().detach(), None, *config);
        let value = alone.forward(&x.detach()).and_then(|y| conv_transpose_rule(x, layer.weight(), moves, y));
        return Some(value.and_then(|y| with_bias(y, layer.bias())));
    }
    if let Some(layer) = layer.get::<ConvTranspose2d>() {
        let config = layer.config();
        let moves = moves(config.padding, config.output_padding, config.stride, config.dilation, 1);
        let alone = ConvTranspose2d::new(layer.weight().detach(), None, *config);
        let value = alone.forward(&x.detach()).and_then(|y| conv_transpose_rule(x, layer.weight(), moves, y));
        return Some(value.and_then(|y| with_bias(y, layer.bias())));
    }
    None
}

/// Is this one of candle's layers? A `.forward` of theirs is candle's own.
pub(crate) fn is_candles(layer: Erased<'_>) -> bool {
    is_right(layer)
        || layer.get::<Linear>().is_some()
        || layer.get::<LayerNorm>().is_some()
        || layer.get::<RmsNorm>().is_some()
        || layer.get::<QMatMul>().is_some()
        || layer.get::<Conv1d>().is_some()
        || layer.get::<Conv2d>().is_some()
        || layer.get::<ConvTranspose1d>().is_some()
        || layer.get::<ConvTranspose2d>().is_some()
}

/// Is this one of candle's layers whose gradient in candle is right?
pub(crate) fn is_right(layer: Erased<'_>) -> bool {
    layer.get::<Activation>().is_some()
        || layer.get::<BatchNorm>().is_some()
        || layer.get::<Dropout>().is_some()
        || layer.get::<Embedding>().is_some()
        || layer.get::<GroupNorm>().is_some()
        || layer.get::<PReLU>().is_some()
        || layer.get::<candle_nn::ops::Identity>().is_some()
        || layer.get::<LSTM>().is_some()
        || layer.get::<GRU>().is_some()
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
