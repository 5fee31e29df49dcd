use candle_core::{Result, Tensor};
use candle_nn::PReLU;

use super::{KnownLayer, Outline};

impl KnownLayer for PReLU {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        Some(Outline::of(input))
    }

    fn with_gradient(&self, _: &Tensor, _: bool) -> Option<Result<Tensor>> {
        None
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        vec![("weight", self.weight())]
    }
}
