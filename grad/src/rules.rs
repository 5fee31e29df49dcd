//! The gradients of the operations on the list in `operations.rs`, by the operands that were seen.

use candle_core::{Result, Tensor};
use candle_nn::attention::AttnMask;

use super::activation::{gelu_erf_rule, gelu_rule};
use super::attention::{flash_rule, sdpa_rule, Attention};
use super::conv::{conv_rule, conv_transpose_rule, Moves};
use super::elementwise::{binary_rule, where_rule, Binary};
use super::extreme::{extreme_rule, Over};
use super::norm::{norm_rule, Mean};
use super::pool::{pool_rule, Pool};
use super::product::matmul_rule;
use super::resample::{bilinear_rule, nearest1d_rule, nearest2d_rule, Bilinear};
use super::rope::{rope_rule, Rope};
use super::rule::Given;
use super::scatter::{scatter_add_rule, scatter_rule};
use super::softmax::softmax_rule;
use super::unfold::unfold_rule;

/// The value with its gradient, none inside where candle's own is right; none at all where too little was seen.
pub type Made = Option<Result<Option<Tensor>>>;

fn some(made: Result<Tensor>) -> Made {
    Some(made.map(Some))
}

pub fn add(given: &Given, value: Tensor) -> Made {
    Some(binary_rule(Binary::Add, given.tensor(0)?, given.tensor(1)?, value))
}

pub fn sub(given: &Given, value: Tensor) -> Made {
    Some(binary_rule(Binary::Sub, given.tensor(0)?, given.tensor(1)?, value))
}

pub fn mul(given: &Given, value: Tensor) -> Made {
    Some(binary_rule(Binary::Mul, given.tensor(0)?, given.tensor(1)?, value))
}

pub fn div(given: &Given, value: Tensor) -> Made {
    Some(binary_rule(Binary::Div, given.tensor(0)?, given.tensor(1)?, value))
}

pub fn where_cond(given: &Given, value: Tensor) -> Made {
    Some(where_rule(given.tensor(0)?, given.tensor(1)?, given.tensor(2)?, value))
}

pub fn matmul(given: &Given, value: Tensor) -> Made {
    some(matmul_rule(given.tensor(0)?, given.tensor(1)?, value))
}

pub fn gelu(given: &Given, value: Tensor) -> Made {
    some(gelu_rule(given.tensor(0)?, value))
}

pub fn gelu_erf(given: &Given, value: Tensor) -> Made {
    some(gelu_erf_rule(given.tensor(0)?, value))
}

/// `x.conv(kernel, padding, stride, dilation, groups)`, in one dimension or two.
pub fn conv(given: &Given, value: Tensor) -> Made {
    let (padding, stride) = (given.count(2)?, given.count(3)?);
    let (dilation, groups) = (given.count(4)?, given.count(5)?);
    let moves = Moves { padding, output_padding: 0, stride, dilation, groups };
    some(conv_rule(given.tensor(0)?, given.tensor(1)?, moves, value))
}

pub fn conv_transpose1d(given: &Given, value: Tensor) -> Made {
    conv_transpose(given, given.count(6)?, value)
}

pub fn conv_transpose2d(given: &Given, value: Tensor) -> Made {
    conv_transpose(given, 1, value)
}

/// `x.conv_transpose(kernel, padding, output_padding, stride, dilation, ..)`
fn conv_transpose(given: &Given, groups: usize, value: Tensor) -> Made {
    let (padding, output_padding) = (given.count(2)?, given.count(3)?);
    let (stride, dilation) = (given.count(4)?, given.count(5)?);
    let moves = Moves { padding, output_padding, stride, dilation, groups };
    some(conv_transpose_rule(given.tensor(0)?, given.tensor(1)?, moves, value))
}

pub fn max_pool2d(given: &Given, value: Tensor) -> Made {
    some(pool_rule(Pool::Max, given.tensor(0)?, given.pair(1)?, given.pair(1)?, value))
}

pub fn max_pool2d_with_stride(given: &Given, value: Tensor) -> Made {
    some(pool_rule(Pool::Max, given.tensor(0)?, given.pair(1)?, given.pair(2)?, value))
}

pub fn avg_pool2d(given: &Given, value: Tensor) -> Made {
    some(pool_rule(Pool::Average, given.tensor(0)?, given.pair(1)?, given.pair(1)?, value))
}

pub fn avg_pool2d_with_stride(given: &Given, value: Tensor) -> Made {
    some(pool_rule(Pool::Average, given.tensor(0)?, given.pair(1)?, given.pair(2)?, value))
}

pub fn nearest1d(given: &Given, value: Tensor) -> Made {
    some(nearest1d_rule(given.tensor(0)?, value))
}

pub fn nearest2d(given: &Given, value: Tensor) -> Made {
    some(nearest2d_rule(given.tensor(0)?, value))
}

/// `x.upsample_bilinear2d(height, width, align_corners)`
pub fn bilinear(given: &Given, value: Tensor) -> Made {
    let how = Bilinear { align_corners: given.flag(3)?, scale: None };
    some(bilinear_rule(given.tensor(0)?, how, value))
}

pub fn bilinear_with_scale(given: &Given, value: Tensor) -> Made {
    let scale = Some((given.number(1)?, given.number(2)?));
    let how = Bilinear { align_corners: given.flag(3)?, scale };
    some(bilinear_rule(given.tensor(0)?, how, value))
}

/// `x.scatter(indexes, source, dim)`
pub fn scatter(given: &Given, value: Tensor) -> Made {
    let x = given.tensor(0)?;
    some(scatter_rule(x, given.tensor(1)?, given.tensor(2)?, given.dim(3, x)?, value))
}

pub fn scatter_add(given: &Given, value: Tensor) -> Made {
    let x = given.tensor(0)?;
    some(scatter_add_rule(x, given.tensor(1)?, given.tensor(2)?, given.dim(3, x)?, value))
}

/// `x.max(dim)`, `x.min_keepdim(dim)`
pub fn extreme(given: &Given, value: Tensor) -> Made {
    let x = given.tensor(0)?;
    some(extreme_rule(x, Over::Dim(given.dim(1, x)?), value))
}

pub fn extreme_of_all(given: &Given, value: Tensor) -> Made {
    some(extreme_rule(given.tensor(0)?, Over::Everything, value))
}

/// `x.unfold(dim, size, step)`
pub fn unfold(given: &Given, value: Tensor) -> Made {
    let x = given.tensor(0)?;
    some(unfold_rule(x, given.dim(1, x)?, given.count(2)?, given.count(3)?, value))
}

pub fn softmax_last_dim(given: &Given, value: Tensor) -> Made {
    some(softmax_rule(given.tensor(0)?, value))
}

/// `layer_norm(x, weight, bias, eps)`
pub fn layer_norm(given: &Given, value: Tensor) -> Made {
    let (weight, bias, eps) = (given.tensor(1)?, given.tensor(2)?, given.number(3)?);
    some(norm_rule(Mean::Removed, given.tensor(0)?, weight, Some(bias), eps, value))
}

/// `rms_norm(x, weight, eps)`
pub fn rms_norm(given: &Given, value: Tensor) -> Made {
    some(norm_rule(Mean::Kept, given.tensor(0)?, given.tensor(1)?, None, given.number(2)?, value))
}

pub fn rope(given: &Given, value: Tensor) -> Made {
    some(rope_rule(Rope::Halves, given.tensor(0)?, given.tensor(1)?, given.tensor(2)?, value))
}

pub fn rope_i(given: &Given, value: Tensor) -> Made {
    some(rope_rule(Rope::Interleaved, given.tensor(0)?, given.tensor(1)?, given.tensor(2)?, value))
}

pub fn rope_thd(given: &Given, value: Tensor) -> Made {
    some(rope_rule(Rope::HalvesThd, given.tensor(0)?, given.tensor(1)?, given.tensor(2)?, value))
}

/// `flash_attn(q, k, v, scale, mask, max_bias, softcap)`
pub fn flash_attn(given: &Given, value: Tensor) -> Made {
    let (mask, scale) = (given.mask(4)?, given.number(3)?);
    let (bias, softcap) = (given.number(5)?, given.number(6)?);
    let tracked = matches!(mask, AttnMask::Mask(mask) if mask.track_op());
    if tracked || bias != 0. {
        return None;
    }
    some(flash_rule(mask, scale, softcap, [given.tensor(0)?, given.tensor(1)?, given.tensor(2)?], value))
}

/// `sdpa(q, k, v, mask, do_causal, scale, softcapping)`
pub fn sdpa(given: &Given, value: Tensor) -> Made {
    let mask = given.optional(3)?.cloned();
    if mask.as_ref().is_some_and(Tensor::track_op) {
        return None;
    }
    let (causal, scale, softcap) = (given.flag(4)?, given.number(5)?, given.number(6)?);
    let attention = Attention { mask, causal, scale, softcap };
    some(sdpa_rule(attention, [given.tensor(0)?, given.tensor(1)?, given.tensor(2)?], value))
}
