//! Attention in one operation.

use candle_core::{Result, Tensor};
use candle_nn::attention::AttnMask;

use super::node::attach_composed;

/// What an attention does besides its three products.
#[derive(Clone)]
pub(crate) struct Attention {
    /// Added to the scores.
    pub mask: Option<Tensor>,
    pub causal: bool,
    pub scale: f64,
    /// Scores are kept below this by `cap tanh(score / cap)`; 1 and 0 mean that they are not.
    pub softcap: f64,
}

/// [`candle_nn::ops::sdpa`] with a gradient, on every device: where candle has no fused attention it is
/// computed from matrix products. `q` is `[batch, head, pos, d]`, `k` and `v` are
/// `[batch, kv_head, kv_pos, d]`.
pub fn sdpa(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    do_causal: bool,
    scale: f32,
    softcapping: f32,
) -> Result<Tensor> {
    let attention = Attention {
        mask: mask.cloned(),
        causal: do_causal,
        scale: f64::from(scale),
        softcap: f64::from(softcapping),
    };
    if !q.device().is_metal() || attention.mask.as_ref().is_some_and(Tensor::track_op) {
        return attention.composed([q, k, v]);
    }
    let mask = mask.map(Tensor::detach);
    let (x, y, z) = (q.detach(), k.detach(), v.detach());
    let value = candle_nn::ops::sdpa(&x, &y, &z, mask.as_ref(), do_causal, scale, softcapping)?;
    sdpa_rule(attention, [q, k, v], value)
}

pub(crate) fn sdpa_rule(attention: Attention, args: [&Tensor; 3], value: Tensor) -> Result<Tensor> {
    attach_composed("sdpa", value, args, move |args| attention.composed(args))
}

/// [`candle_nn::attention::flash_attn`], which takes `[batch, pos, head, d]` and gives
/// `[batch, head, pos, d]`.
pub(crate) fn flash_rule(
    mask: &AttnMask,
    scale: f64,
    softcap: f64,
    args: [&Tensor; 3],
    value: Tensor,
) -> Result<Tensor> {
    let [q, k, _] = args;
    let mask = match mask {
        AttnMask::None => None,
        AttnMask::Causal { kv_offset } => Some(causal_mask(q.dim(1)?, k.dim(1)?, *kv_offset, q)?),
        AttnMask::Mask(mask) => Some(mask.detach()),
    };
    let attention = Attention { mask, causal: false, scale, softcap };
    attach_composed("flash_attn", value, args, move |args| {
        let [q, k, v] = args.map(|x| x.transpose(1, 2)?.contiguous());
        attention.composed([&q?, &k?, &v?])
    })
}

impl Attention {
    fn composed(&self, [q, k, v]: [&Tensor; 3]) -> Result<Tensor> {
        let (_, heads, pos, _) = q.dims4()?;
        let (_, kv_heads, kv_pos, _) = k.dims4()?;
        let groups = heads / kv_heads.max(1);
        let (k, v) = (repeated(k, groups)?, repeated(v, groups)?);
        let mut scores = (super::matmul(&q.contiguous()?, &k.t()?.contiguous()?)? * self.scale)?;
        if self.softcap != 0. && self.softcap != 1. {
            scores = ((scores / self.softcap)?.tanh()? * self.softcap)?;
        }
        if let Some(mask) = &self.mask {
            scores = scores.broadcast_add(mask)?;
        }
        if self.causal {
            let offset = kv_pos.saturating_sub(pos);
            scores = scores.broadcast_add(&causal_mask(pos, kv_pos, offset, &scores)?)?;
        }
        super::matmul(&super::softmax_last_dim(&scores)?, &v.contiguous()?)
    }
}

/// Every key head serves `groups` query heads that follow each other.
fn repeated(x: &Tensor, groups: usize) -> Result<Tensor> {
    if groups == 1 {
        return Ok(x.clone());
    }
    let (batch, heads, pos, width) = x.dims4()?;
    x.unsqueeze(2)?.broadcast_as((batch, heads, groups, pos, width))?.contiguous()?.reshape((
        batch,
        heads * groups,
        pos,
        width,
    ))
}

/// Every query sees the keys up to its own, which comes after `offset` others.
fn causal_mask(pos: usize, kv_pos: usize, offset: usize, like: &Tensor) -> Result<Tensor> {
    let seen = |row: usize, column: usize| column <= row + offset;
    let cell = |row, column| if seen(row, column) { 0f32 } else { f32::NEG_INFINITY };
    let cells: Vec<f32> = (0..pos).flat_map(|row| (0..kv_pos).map(move |column| cell(row, column))).collect();
    Tensor::from_vec(cells, (pos, kv_pos), like.device())?.to_dtype(like.dtype())
}
