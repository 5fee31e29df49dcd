//! What a class has to do with the values at a point.

use candle_core::{Module, Tensor};
use hookpoint::prelude::*;
use hookpoint::{Error, Result};

/// The gradient of the logit of `class` at a point, for each input by itself. `:in` are the pixels; of a layer, it says
/// how much the class would gain where the layer gave more. Works for every annotated model that gives logits
/// `[batch, class]`, with frozen weights.
pub fn saliency<M: AutoHook + Module>(
    model: &Hooked<M>,
    point: &str,
    input: &Tensor,
    class: usize,
) -> Result<Tensor> {
    let run = model.plan().cache_grad(point)?.backward(|m| {
        let logits = m.forward(input)?;
        match logits.dims() {
            [_, classes] if class < *classes => Ok(()),
            dims => Err(Error::msg(format!(
                "there is no class {class} in logits of shape {dims:?}, which have to be [batch, class]"
            ))),
        }?;
        // A row depends on its own input alone, so the sum keeps them apart.
        Ok::<_, Error>(logits.narrow(1, class, 1)?.sum_all()?)
    })?;
    Ok(run.grads.try_get(point)?.clone())
}

/// A picture of a saliency: the largest size in any channel. `[batch, channel, row, column]` gives
/// `[batch, row, column]`.
pub fn heat(saliency: &Tensor) -> Result<Tensor> {
    match saliency.rank() {
        4 => Ok(saliency.abs()?.max(1)?),
        _ => Err(Error::msg(format!(
            "a picture is made of [batch, channel, row, column], and this has shape {:?}",
            saliency.dims()
        ))),
    }
}
