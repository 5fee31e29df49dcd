//! Helpers beside a model.

use hookpoint::{auto_hook, AutoHook};

use candle_core::{Result, Tensor};
use candle_nn::Linear;

/// Turns the second half before the first.
#[auto_hook]
fn rotate_half(x: &Tensor) -> Result<Tensor> {
    let parts = x.chunk(2, 1)?;
    Tensor::cat(&[&parts[1].neg()?, &parts[0]], 1)
}

fn size(layer: &Linear) -> usize {
    layer.weight().elem_count()
}

#[derive(AutoHook)]
struct Head(Linear);

#[auto_hook]
impl Head {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        rotate_half(x)?.apply(&self.0)
    }
}
