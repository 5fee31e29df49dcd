use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

#[derive(AutoHook)]
struct Model {
    layer: Linear,
    last: Option<Tensor>,
}

#[auto_hook]
impl Model {
    fn used_after_it_was_moved(&self, x: Tensor) -> Result<Tensor> {
        let y = self.layer.forward(&x)?;
        drop(y);
        y + x
    }

    fn assigned_without_mut(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.layer.forward(x)?;
        y = y.tanh()?;
        Ok(y)
    }

    fn changed_through_a_shared_reference(&self, x: &Tensor) -> Result<Tensor> {
        self.last = Some(x.clone());
        Ok(x.clone())
    }

    fn borrowed_twice(&mut self, x: &Tensor) -> Result<Tensor> {
        let last = &self.last;
        self.last = Some(x.clone());
        last.as_ref().unwrap().tanh()
    }
}

fn main() {}
