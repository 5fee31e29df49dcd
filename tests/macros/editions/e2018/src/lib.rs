//! The macros in a crate of the 2018 edition, where closures capture whole variables.

#![deny(warnings, clippy::all, missing_docs)]
#![forbid(unsafe_code)]

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

/// A cache beside a layer.
#[derive(AutoHook)]
pub struct Model {
    layer: Linear,
    seen: Vec<Tensor>,
}

#[auto_hook]
impl Model {
    /// One layer.
    pub fn new(layer: Linear) -> Self {
        Self { layer, seen: Vec::new() }
    }

    /// What went through it, together with what did before.
    pub fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let mut count = 0;
        let mut keep = |y: &Tensor, seen: &mut Vec<Tensor>| {
            count += 1;
            seen.push(y.clone());
        };
        keep(&hidden, &mut self.seen);
        let all = self.seen.iter().map(|y| y.tanh()).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&all, 0)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;

    #[test]
    fn a_model_of_the_2018_edition_is_hooked() -> hookpoint::Result<()> {
        let device = hookpoint::device_from_env()?;
        let weight = Tensor::ones((2, 2), DType::F32, &device)?;
        let mut model = Hooked::new(Model::new(Linear::new(weight, None)));
        let x = Tensor::ones((1, 2), DType::F32, &device)?;
        let (out, cache) = model
            .plan_mut()
            .cache(&["**", ":hidden"][..])?
            .run(|m| m.forward(&x))
            .map(|run| (run.output, run.cache))?;
        assert_eq!(cache.keys().collect::<Vec<_>>(), ["layer", ":hidden", ""]);
        assert_eq!(cache[":hidden"].to_vec2::<f32>()?, [[2., 2.]]);
        assert_eq!(out.to_vec2::<f32>()?, cache[""].to_vec2::<f32>()?);
        Ok(())
    }
}
