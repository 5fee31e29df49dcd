use candle_core::{Result, Tensor};
use candle_nn::RmsNorm;

use super::{KnownLayer, Outline};

impl KnownLayer for RmsNorm {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        Some(Outline::of(input))
    }

    fn with_gradient(&self, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        Some(crate::rms_norm(input, self.weight(), self.eps()))
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        vec![("weight", self.weight())]
    }
}
