use candle_core::{DType, Module, Result, Tensor};
use candle_nn::LayerNorm;

use super::{weight_and_bias, KnownLayer, Outline};
use crate::norm::{norm_rule, Mean};

impl KnownLayer for LayerNorm {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        Some(Outline::of(input))
    }

    fn with_gradient(&self, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        Some(differentiable(self, input))
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        weight_and_bias(self.weight(), self.bias())
    }
}

fn differentiable(layer: &LayerNorm, x: &Tensor) -> Result<Tensor> {
    let (weight, bias, eps) = (layer.weight(), layer.bias(), layer.eps());
    let mean = if layer.remove_mean() { Mean::Removed } else { Mean::Kept };
    // Candle's kernel knows no double precision.
    if mean == Mean::Removed && x.dtype() == DType::F64 {
        return crate::layer_norm(x, weight, bias, eps);
    }
    if !weight.track_op() && bias.is_none_or(|bias| !bias.track_op()) {
        return norm_rule(mean, x, weight, bias, eps, layer.forward(&x.detach())?);
    }
    match (mean, bias) {
        (Mean::Removed, bias) => crate::layer_norm(x, weight, bias, eps),
        (Mean::Kept, None) => crate::rms_norm(x, weight, eps),
        (Mean::Kept, Some(_)) => layer.forward(x),
    }
}
