use candle_core::quantized::QMatMul;
use candle_core::{Module, Result, Tensor};

use super::{KnownLayer, Outline};
use crate::product::quantized_rule;

impl KnownLayer for QMatMul {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        let (out, inner) = dims(self)?;
        Outline::with_last(input, inner, out)
    }

    fn with_gradient(&self, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        Some(self.forward(&input.detach()).and_then(|value| quantized_rule(input, self, value)))
    }

    fn width(&self) -> Option<usize> {
        Some(dims(self)?.0)
    }

    /// Quantized weights are no tensor.
    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        match self {
            Self::QTensor(_) => Vec::new(),
            Self::Tensor(weight) | Self::TensorF16(weight) => vec![("weight", weight)],
        }
    }
}

/// `[out, in]`
fn dims(layer: &QMatMul) -> Option<(usize, usize)> {
    match layer {
        QMatMul::QTensor(weight) => weight.shape().dims2().ok(),
        QMatMul::Tensor(weight) | QMatMul::TensorF16(weight) => weight.dims2().ok(),
    }
}
