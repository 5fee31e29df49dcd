//! Weights that both twins share.

use std::cell::RefCell;
use std::collections::HashMap;

use candle_core::{Device, Result, Shape, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear};
use hookpoint_models::init::Init;

/// Numbers that look random and are the same every time. A weight is made when it is first asked for
/// and handed out again after that, so that both twins read the same memory.
#[derive(Default)]
pub struct Weights {
    made: RefCell<HashMap<String, Tensor>>,
}

impl Weights {
    /// The weight of this name, uniform in `[-scale, scale)`.
    pub fn get(&self, name: &str, shape: impl Into<Shape>, scale: f32) -> Result<Tensor> {
        let mut made = self.made.borrow_mut();
        if let Some(tensor) = made.get(name) {
            return Ok(tensor.clone());
        }
        let shape = shape.into();
        // After a while its numbers anew: 124 million take long under callgrind.
        let mut random = Init::new(made.len() as u64 + 1);
        let mut next = || (2. * random.unit() - 1.) as f32 * scale;
        let count = shape.elem_count();
        let some: Vec<f32> = (0..count.min(100_003)).map(|_| next()).collect();
        let mut data = Vec::with_capacity(count);
        while data.len() < count {
            let missing = count - data.len();
            data.extend_from_slice(some.get(..missing).unwrap_or(&some));
        }
        let tensor = Tensor::from_vec(data, shape, &Device::Cpu)?;
        made.insert(name.to_string(), tensor.clone());
        Ok(tensor)
    }

    /// A linear layer with a bias.
    pub fn linear(&self, name: &str, from: usize, to: usize) -> Result<Linear> {
        let scale = (from as f32).sqrt().recip();
        let weight = self.get(&format!("{name}.weight"), (to, from), scale)?;
        Ok(Linear::new(weight, Some(self.get(&format!("{name}.bias"), to, scale)?)))
    }

    /// A table of vectors.
    pub fn embedding(&self, name: &str, count: usize, width: usize) -> Result<Embedding> {
        Ok(Embedding::new(self.get(name, (count, width), 0.1)?, width))
    }

    /// A layer norm.
    pub fn layer_norm(&self, name: &str, width: usize) -> Result<LayerNorm> {
        let weight = self.get(&format!("{name}.weight"), width, 1.)?;
        Ok(LayerNorm::new(weight, self.get(&format!("{name}.bias"), width, 0.1)?, 1e-5))
    }
}
