//! A trait with a parameter, in a type that is no module by itself.

use candle_core::{Module, Result, Tensor};
use candle_nn::LayerNorm;

pub trait Step<T>
where
    T: Copy,
{
    fn step(&self, x: &Tensor, by: T) -> Result<Tensor>;
}

pub struct Norm {
    pub norm: LayerNorm,
}

impl Step<f64> for Norm {
    fn step(&self, x: &Tensor, by: f64) -> Result<Tensor> {
        self.norm.forward(&(x * by)?)
    }
}

pub struct Steps {
    pub all: Vec<Box<dyn Step<f64>>>,
}

impl Steps {
    pub fn go(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = x.clone();
        for step in &self.all {
            h = step.step(&h, 2.0)?;
        }
        Ok(h)
    }
}
