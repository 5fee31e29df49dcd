//! What all attentions do alike.

use candle_core::{Result, Tensor};

/// Scores `[batch, head, query, key]` with the mask added, where there is one.
pub fn masked(scores: Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    match mask {
        Some(mask) => scores.broadcast_add(mask),
        None => Ok(scores),
    }
}

/// What each head contributes to the output, `[batch, pos, head, d_model]`, for `z` of
/// `[batch, pos, head, d_head]`. `weight` is that of the output layer, `[d_model, head * d_head]`.
pub fn head_results(z: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let heads = z.transpose(1, 2)?.contiguous()?;
    heads.broadcast_matmul(&by_head(weight, heads.dim(1)?)?)?.transpose(1, 2)
}

/// The weight of an output layer, `[d_model, head * d_head]`, by head: `[head, d_head, d_model]`.
pub fn by_head(weight: &Tensor, heads: usize) -> Result<Tensor> {
    let weight = weight.t()?;
    let (input, output) = weight.dims2()?;
    weight.reshape((heads, input / heads, output))
}
