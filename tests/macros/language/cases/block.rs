//! A child for models that are about something else. It fires `:x`, `layer` and itself.

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;

use super::{auto_hook, AutoHook};
use crate::weights::square;

#[derive(AutoHook)]
pub struct Block {
    layer: Linear,
}

#[auto_hook]
impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x)?.tanh()
    }
}

pub fn block() -> Block {
    Block { layer: square() }
}
