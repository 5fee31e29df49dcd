use candle_core::{Result, Tensor};
use candle_nn::Activation;

use super::{KnownLayer, Outline};
use crate::activation::{gelu, gelu_erf};

impl KnownLayer for Activation {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        // It halves the last dimension.
        (*self != Activation::Swiglu).then(|| Outline::of(input))
    }

    fn with_gradient(&self, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        match self {
            Self::Gelu => Some(gelu_erf(input)),
            Self::NewGelu | Self::GeluPytorchTanh => Some(gelu(input)),
            _ => None,
        }
    }
}
