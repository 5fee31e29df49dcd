//! Normalization over the last dimension.

use candle_core::{DType, Result, Tensor, D};
use candle_nn::{LayerNorm, Module, RmsNorm};

use super::node::attach;
use super::shape::{precise, rows};

/// What is normalized, besides the scale.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mean {
    Removed,
    Kept,
}

/// [`candle_nn::ops::layer_norm`] with a gradient, the bias being optional; also in double precision.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let (input, scale) = (x.detach(), weight.detach());
    let value = match bias.map(Tensor::detach) {
        // Candle's kernel knows no double precision.
        Some(bias) if x.dtype() == DType::F64 => {
            LayerNorm::new_no_bias(scale, eps).forward(&input)?.broadcast_add(&bias)?
        }
        Some(bias) => LayerNorm::new(scale, bias, eps).forward(&input)?,
        None => LayerNorm::new_no_bias(scale, eps).forward(&input)?,
    };
    norm_rule(Mean::Removed, x, weight, bias, eps, value)
}

/// [`candle_nn::ops::rms_norm`] with a gradient; also in double precision.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let layer = RmsNorm::new(weight.detach(), eps);
    let value = match x.dtype() {
        DType::F64 => layer.forward_diff(&x.detach())?,
        _ => layer.forward(&x.detach())?,
    };
    norm_rule(Mean::Kept, x, weight, None, eps, value)
}

/// With n = (x - mean) / deviation, y = n w + b, and d = dy w:
/// dx = (d - mean(d) - n mean(d n)) / deviation; where the mean is kept, without mean(d).
pub(crate) fn norm_rule(
    mean: Mean,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    eps: f64,
    value: Tensor,
) -> Result<Tensor> {
    let (input, scale) = (x.detach(), weight.detach());
    let shapes = (weight.shape().clone(), bias.map(|bias| bias.dtype()));
    let name = if mean == Mean::Removed { "layer_norm" } else { "rms_norm" };
    let backward = move |step: &super::node::Step<'_>| -> Result<[Option<Tensor>; 3]> {
        let grad = precise(step.grad)?;
        let x = precise(&input)?;
        let centred = match mean {
            Mean::Removed => x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?,
            Mean::Kept => x,
        };
        let deviation = (centred.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?;
        let normed = centred.broadcast_div(&deviation)?;
        let dx = step.when(0, || {
            let d = grad.broadcast_mul(&precise(&scale)?)?;
            let along = (&d * &normed)?.mean_keepdim(D::Minus1)?;
            let mut dx = (&d - normed.broadcast_mul(&along)?)?;
            if mean == Mean::Removed {
                dx = dx.broadcast_sub(&d.mean_keepdim(D::Minus1)?)?;
            }
            dx.broadcast_div(&deviation)?.to_dtype(input.dtype())
        })?;
        let dw =
            step.when(1, || rows(&(&grad * &normed)?)?.sum(0)?.reshape(&shapes.0)?.to_dtype(scale.dtype()))?;
        let db = step.when(2, || {
            rows(&grad)?.sum(0)?.reshape(&shapes.0)?.to_dtype(shapes.1.unwrap_or(scale.dtype()))
        })?;
        Ok([dx, dw, db])
    };
    match bias {
        Some(bias) => attach(name, value, [x, weight, bias], backward),
        None => attach(name, value, [x, weight], move |step| {
            let [dx, dw, _] = backward(step)?;
            Ok([dx, dw])
        }),
    }
}
