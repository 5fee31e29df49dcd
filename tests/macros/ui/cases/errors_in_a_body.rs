use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

#[derive(AutoHook)]
struct Model {
    layer: Linear,
    scale: Tensor,
}

// Each is the user's own, is reported once, and points at the user's tokens.
#[auto_hook]
impl Model {
    fn wrong_type_of_a_binding(&self, x: &Tensor) -> Result<Tensor> {
        let y: Linear = self.layer.forward(x)?;
        Ok(y)
    }

    fn wrong_argument_of_a_layer(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x.clone())
    }

    fn wrong_argument_of_an_operation(&self, x: &Tensor) -> Result<Tensor> {
        x.broadcast_mul(self.scale)
    }

    fn missing_method(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.gelou()?;
        self.layer.foward(&y)
    }

    fn missing_field(&self, x: &Tensor) -> Result<Tensor> {
        self.lyaer.forward(x)
    }

    fn missing_name(&self) -> Result<Tensor> {
        self.layer.forward(x)
    }

    fn missing_question_mark(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.layer.forward(x);
        y.tanh()
    }

    fn wrong_result(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x)?
    }

    fn missing_result(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x)?;
    }

    fn question_mark_without_result(&self, x: &Tensor) -> Tensor {
        self.layer.forward(x)?
    }

    fn wrong_operands(&self, x: &Tensor) -> Result<Tensor> {
        x + "two"
    }
}

fn main() {}
