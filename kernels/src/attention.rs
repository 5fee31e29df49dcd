//! Attention, at once or in its three parts.
//!
//! Both ways do the same to each row of queries, in the same order: what is seen on the way does not depend
//! on whether somebody looks.

mod at_once;
mod heads;
mod mask;
mod parts;

use candle_core::{DType, Result, Tensor};

use self::at_once::AtOnce;
use self::mask::Mask;
use self::parts::{Scores, Weighing};
use super::numbers::on_cpu;
use super::softmax::softmax;

/// What queries find: `[batch, query, head, d_head]`, for `queries` of `[batch, head, query, d_head]`, `keys` and
/// `values` of `[batch, head, key, d_head]`. `mask` is added to the scores; it is `[query, key]` or
/// `[batch, 1, query, key]`.
///
/// It is what [`attention_scores`], [`softmax`] and [`weighted_sum`] make of each other, bit by bit. What a
/// mask of minus infinity hides from the end of a row is not computed.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint_kernels as kernels;
///
/// let x = Tensor::randn(0f32, 1., (1, 2, 5, 4), &Device::Cpu)?;
/// let z = kernels::attention(&x, &x, &x, None, 0.5)?;
/// let pattern = kernels::softmax(&kernels::attention_scores(&x, &x, None, 0.5)?)?;
/// assert_eq!(z.dims(), [1, 5, 2, 4]);
/// assert_eq!(z.get(0)?.to_vec3::<f32>()?, kernels::weighted_sum(&pattern, &x)?.get(0)?.to_vec3::<f32>()?);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn attention(
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    mask: Option<&Tensor>,
    scale: f64,
) -> Result<Tensor> {
    match Mask::of(mask, queries, keys)? {
        Some(mask) if on_cpu(&[queries, keys, values]) => {
            rows(queries)?.apply_op3(&rows(keys)?, &rows(values)?, AtOnce { mask, scale })
        }
        _ => {
            let pattern = softmax(&attention_scores(queries, keys, mask, scale)?)?;
            weighted_sum(&pattern.to_dtype(values.dtype())?, values)
        }
    }
}

/// How much queries have to do with keys, `[batch, head, query, key]`: `queries · keysᵀ * scale + mask`.
pub fn attention_scores(
    queries: &Tensor,
    keys: &Tensor,
    mask: Option<&Tensor>,
    scale: f64,
) -> Result<Tensor> {
    match Mask::of(mask, queries, keys)? {
        Some(mask) if on_cpu(&[queries, keys]) => {
            rows(queries)?.apply_op2(&rows(keys)?, Scores { mask, scale })
        }
        _ => {
            let scores = hookpoint_grad::matmul(&queries.contiguous()?, &keys.contiguous()?.t()?)?;
            let scores = (scores * scale)?;
            mask.map_or(Ok(scores.clone()), |mask| scores.broadcast_add(mask))
        }
    }
}

/// What is found where the pattern `[batch, head, query, key]` looks, in values of
/// `[batch, head, key, d_head]`: `[batch, query, head, d_head]`.
pub fn weighted_sum(pattern: &Tensor, values: &Tensor) -> Result<Tensor> {
    match on_cpu(&[pattern, values]) && pattern.elem_count() > 0 {
        true => pattern.contiguous()?.apply_op2(&rows(values)?, Weighing),
        false => hookpoint_grad::matmul(&pattern.contiguous()?, &values.contiguous()?)?.transpose(1, 2),
    }
}

/// The tensor with the numbers of each row side by side.
fn rows(x: &Tensor) -> Result<Tensor> {
    match x.stride().last() {
        Some(1) => Ok(x.clone()),
        _ => x.contiguous(),
    }
}

/// `a · b` for each head, for gradients.
fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    debug_assert_eq!(a.dtype(), DType::F32);
    a.detach().contiguous()?.matmul(&b.detach().contiguous()?)
}
