use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::{weight_and_bias, KnownLayer, Outline};
use crate::product::linear_rule;

impl KnownLayer for Linear {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        let (out, inner) = self.weight().dims2().ok()?;
        Outline::with_last(input, inner, out)
    }

    fn with_gradient(&self, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        let detached = Linear::new(self.weight().detach(), self.bias().map(Tensor::detach));
        let value = detached.forward(&input.detach());
        Some(value.and_then(|value| linear_rule(input, self.weight(), self.bias(), value)))
    }

    fn width(&self) -> Option<usize> {
        self.weight().dim(0).ok()
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        weight_and_bias(self.weight(), self.bias())
    }
}
