#![deny(warnings)]

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

#[derive(AutoHook)]
pub struct Model {
    layer: Linear,
}

// Known blemishes: the first is reported at the attribute, the second twice.
#[auto_hook]
impl Model {
    pub fn unused_result(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x);
        x.tanh()
    }

    pub fn unreachable(&self, x: &Tensor) -> Result<Tensor> {
        return x.tanh();
        self.layer.forward(x)
    }
}

fn main() {}
