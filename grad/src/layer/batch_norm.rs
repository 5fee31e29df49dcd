use candle_core::{ModuleT, Result, Tensor};
use candle_nn::BatchNorm;

use super::{KnownLayer, Outline};
use crate::node::attach;

impl KnownLayer for BatchNorm {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        Some(Outline::of(input))
    }

    fn with_gradient(&self, input: &Tensor, train: bool) -> Option<Result<Tensor>> {
        (!train && is_frozen(self)).then(|| scaled(self, input))
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        let own = self.weight_and_bias().map(|(weight, bias)| [("weight", weight), ("bias", bias)]);
        let running = [("running_mean", self.running_mean()), ("running_var", self.running_var())];
        own.into_iter().flatten().chain(running).collect()
    }
}

fn is_frozen(layer: &BatchNorm) -> bool {
    layer.weight_and_bias().is_none_or(|(weight, bias)| !weight.track_op() && !bias.track_op())
}

/// Outside of training, every channel is scaled and shifted: dx = dy w / deviation.
fn scaled(layer: &BatchNorm, x: &Tensor) -> Result<Tensor> {
    let value = layer.forward_t(&x.detach(), false)?;
    let deviation = (layer.running_var().detach() + layer.eps())?.sqrt()?;
    let scale = match layer.weight_and_bias() {
        Some((weight, _)) => weight.div(&deviation)?,
        None => deviation.recip()?,
    };
    attach("batch_norm", value, [x], move |step| {
        let mut dims = vec![1; step.grad.rank()];
        if let Some(channels) = dims.get_mut(1) {
            *channels = scale.elem_count();
        }
        Ok([Some(step.grad.broadcast_mul(&scale.reshape(dims)?)?)])
    })
}
