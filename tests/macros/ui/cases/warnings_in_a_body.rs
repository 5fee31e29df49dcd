#![deny(warnings)]

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

#[derive(AutoHook)]
pub struct Model {
    layer: Linear,
}

// What the compiler would say without the macros, no more and no less.
#[auto_hook]
impl Model {
    pub fn unused(&self, x: &Tensor, other: &Tensor) -> Result<Tensor> {
        let y = self.layer.forward(x)?;
        let mut z = x.tanh()?;
        Ok(z)
    }
}

fn main() {}
