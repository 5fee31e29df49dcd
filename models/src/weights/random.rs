//! Weights as they are before training, from a seed.

use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init as Hint, VarBuilder};
use hookpoint::Error;

use crate::init::Init;

/// Weights in f32 as the hints of a model's code ask for. Equal seeds give equal weights, on every machine.
pub fn seeded(seed: u64, device: &Device) -> VarBuilder<'static> {
    let backend = Box::new(Seeded(Mutex::new(Init::new(seed))));
    VarBuilder::from_backend(backend, DType::F32, device.clone())
}

/// Gives weights in the order in which they are asked for.
struct Seeded(Mutex<Init>);

impl SimpleBackend for Seeded {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        hint: Hint,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let tensor = match hint {
            Hint::Const(value) => Tensor::full(value as f32, shape, device)?,
            // As wide as the normal distribution, and without functions that differ between machines.
            Hint::Randn { stdev, .. } => {
                let mut init = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let bound = (stdev * 3f64.sqrt()) as f32;
                init.uniform(1, shape.elem_count(), bound, device)?.reshape(shape)?
            }
            other => return Err(Error::msg(format!("{name}: no random weights for {other:?}")).into()),
        };
        tensor.to_dtype(dtype)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle_core::Result<Tensor> {
        Err(Error::msg(format!("{name}: random weights need a shape")).into())
    }

    fn contains_tensor(&self, _: &str) -> bool {
        false
    }
}
