//! What candle's own layers give for an input, known without running them.

use candle_core::quantized::QMatMul;
use candle_core::{DType, Tensor};
use candle_nn::{
    Activation, BatchNorm, Conv1d, Conv2d, Dropout, Embedding, GroupNorm, LayerNorm, Linear, PReLU, RmsNorm,
};

use crate::raw::Erased;

/// What a tensor is like, its data aside.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outline {
    pub dims: Vec<usize>,
    pub dtype: DType,
}

/// What this layer gives for this input; none where the layer is not a well-known one, or where the
/// input does not fit and the layer itself should say so.
pub(crate) fn outline(layer: Erased<'_>, input: &Tensor) -> Option<Outline> {
    let (dims, dtype) = (input.dims().to_vec(), input.dtype());
    if let Some(linear) = layer.get::<Linear>() {
        let (out, inner) = linear.weight().dims2().ok()?;
        return with_last(dims, inner, out).map(|dims| Outline { dims, dtype });
    }
    if let Some(matmul) = layer.get::<QMatMul>() {
        let (out, inner) = weight_dims(matmul)?;
        return with_last(dims, inner, out).map(|dims| Outline { dims, dtype });
    }
    if let Some(embedding) = layer.get::<Embedding>() {
        let dims = dims.into_iter().chain([embedding.hidden_size()]).collect();
        return Some(Outline { dims, dtype: embedding.embeddings().dtype() });
    }
    if let Some(conv) = layer.get::<Conv1d>() {
        let (config, (out, inner, kernel)) = (conv.config(), conv.weight().dims3().ok()?);
        let (batch, channels, length) = input.dims3().ok()?;
        let length = convolved(length, kernel, config.padding, config.stride, config.dilation)?;
        let fits = channels == inner * config.groups;
        return fits.then(|| Outline { dims: vec![batch, out, length], dtype });
    }
    if let Some(conv) = layer.get::<Conv2d>() {
        let (config, (out, inner, rows, columns)) = (conv.config(), conv.weight().dims4().ok()?);
        let (batch, channels, height, width) = input.dims4().ok()?;
        let side = |size, kernel| convolved(size, kernel, config.padding, config.stride, config.dilation);
        let dims = vec![batch, out, side(height, rows)?, side(width, columns)?];
        return (channels == inner * config.groups).then_some(Outline { dims, dtype });
    }
    keeps_shape(layer).then_some(Outline { dims, dtype })
}

/// How wide the last dimension of this layer's output is, whatever its input.
pub(super) fn width(layer: Erased<'_>) -> Option<usize> {
    if let Some(linear) = layer.get::<Linear>() {
        return linear.weight().dim(0).ok();
    }
    if let Some(matmul) = layer.get::<QMatMul>() {
        return Some(weight_dims(matmul)?.0);
    }
    layer.get::<Embedding>().map(Embedding::hidden_size)
}

/// The tensors that a well-known layer computes with, by name.
pub(super) fn weights<'l>(layer: Erased<'l>) -> Vec<(&'static str, &'l Tensor)> {
    let (weight, bias) = if let Some(layer) = layer.get::<Linear>() {
        (Some(layer.weight()), layer.bias())
    } else if let Some(layer) = layer.get::<Embedding>() {
        (Some(layer.embeddings()), None)
    } else if let Some(layer) = layer.get::<Conv1d>() {
        (Some(layer.weight()), layer.bias())
    } else if let Some(layer) = layer.get::<Conv2d>() {
        (Some(layer.weight()), layer.bias())
    } else if let Some(layer) = layer.get::<LayerNorm>() {
        (Some(layer.weight()), layer.bias())
    } else {
        (None, None)
    };
    [("weight", weight), ("bias", bias)].into_iter().filter_map(|(name, w)| Some((name, w?))).collect()
}

fn keeps_shape(layer: Erased<'_>) -> bool {
    let activation = layer.get::<Activation>().map(|activation| *activation != Activation::Swiglu);
    let normalizes = layer.get::<LayerNorm>().is_some()
        || layer.get::<RmsNorm>().is_some()
        || layer.get::<GroupNorm>().is_some()
        || layer.get::<BatchNorm>().is_some();
    activation.unwrap_or(normalizes)
        || layer.get::<Dropout>().is_some()
        || layer.get::<PReLU>().is_some()
        || layer.get::<candle_nn::ops::Identity>().is_some()
}

/// `[out, in]`
fn weight_dims(matmul: &QMatMul) -> Option<(usize, usize)> {
    match matmul {
        QMatMul::QTensor(weight) => weight.shape().dims2().ok(),
        QMatMul::Tensor(weight) | QMatMul::TensorF16(weight) => weight.dims2().ok(),
    }
}

fn with_last(mut dims: Vec<usize>, expected: usize, new: usize) -> Option<Vec<usize>> {
    let last = dims.last_mut().filter(|last| **last == expected)?;
    *last = new;
    Some(dims)
}

fn convolved(size: usize, kernel: usize, padding: usize, stride: usize, dilation: usize) -> Option<usize> {
    let covered = dilation * kernel.checked_sub(1)? + 1;
    (size + 2 * padding).checked_sub(covered)?.checked_div(stride).map(|steps| steps + 1)
}
