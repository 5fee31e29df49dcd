//! Both are called step by step, and candle shows none of their weights.

use candle_core::{Result, Tensor};
use candle_nn::{GRU, LSTM};

use super::{KnownLayer, Outline};

impl KnownLayer for LSTM {
    fn outline(&self, _: &Tensor) -> Option<Outline> {
        None
    }

    fn with_gradient(&self, _: &Tensor, _: bool) -> Option<Result<Tensor>> {
        None
    }
}

impl KnownLayer for GRU {
    fn outline(&self, _: &Tensor) -> Option<Outline> {
        None
    }

    fn with_gradient(&self, _: &Tensor, _: bool) -> Option<Result<Tensor>> {
        None
    }
}
