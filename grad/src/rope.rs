//! Rotary embeddings.

use candle_core::{Result, Tensor, D};
use candle_nn::rotary_emb;

use super::node::attach;

/// How the pairs that are rotated lie in memory.
#[derive(Clone, Copy)]
pub(crate) enum Rope {
    /// `[batch, head, pos, d_head]`, the two halves of a head.
    Halves,
    /// `[batch, head, pos, d_head]`, neighbours.
    Interleaved,
    /// `[batch, pos, head, d_head]`, the two halves of a head.
    HalvesThd,
}

/// [`candle_nn::rotary_emb::rope`] with a gradient.
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    rotate(Rope::Halves, x, cos, sin)
}

/// [`candle_nn::rotary_emb::rope_i`] with a gradient.
pub fn rope_i(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    rotate(Rope::Interleaved, x, cos, sin)
}

/// [`candle_nn::rotary_emb::rope_thd`] with a gradient.
pub fn rope_thd(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    rotate(Rope::HalvesThd, x, cos, sin)
}

fn rotate(rope: Rope, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    rope_rule(rope, x, cos, sin, rope.forward(&x.detach(), &cos.detach(), &sin.detach())?)
}

impl Rope {
    fn name(self) -> &'static str {
        match self {
            Rope::Halves => "rope",
            Rope::Interleaved => "rope_i",
            Rope::HalvesThd => "rope_thd",
        }
    }

    fn forward(self, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
        match self {
            Rope::Halves => rotary_emb::rope(x, cos, sin),
            Rope::Interleaved => rotary_emb::rope_i(x, cos, sin),
            Rope::HalvesThd => rotary_emb::rope_thd(x, cos, sin),
        }
    }

    /// The first and the second number of every pair, `[batch, head, pos, d_head / 2]`.
    fn pairs(self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let x = match self {
            Rope::HalvesThd => x.transpose(1, 2)?,
            Rope::Halves | Rope::Interleaved => x.clone(),
        };
        let half = x.dim(D::Minus1)? / 2;
        match self {
            Rope::Halves | Rope::HalvesThd => {
                Ok((x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?))
            }
            Rope::Interleaved => {
                let (batch, head, pos, _) = x.dims4()?;
                let x = x.reshape((batch, head, pos, half, 2))?;
                let part = |number| x.narrow(D::Minus1, number, 1)?.squeeze(D::Minus1);
                Ok((part(0)?, part(1)?))
            }
        }
    }
}

/// The transpose of a rotation is the rotation back.
pub(crate) fn rope_rule(rope: Rope, x: &Tensor, cos: &Tensor, sin: &Tensor, value: Tensor) -> Result<Tensor> {
    let (input, cosine, sine) = (x.detach(), cos.detach(), sin.detach());
    attach(rope.name(), value, [x, cos, sin], move |step| {
        let dx = step.when(0, || rope.forward(&step.grad.contiguous()?, &cosine, &sine.neg()?))?;
        if !step.wants(1) && !step.wants(2) {
            return Ok([dx, None, None]);
        }
        let (a, b) = rope.pairs(&input)?;
        let (da, db) = rope.pairs(step.grad)?;
        let dcos = step.when(1, || like_table(&((&da * &a)? + (&db * &b)?)?, &cosine))?;
        let dsin = step.when(2, || like_table(&((&db * &a)? - (&da * &b)?)?, &sine))?;
        Ok([dx, dcos, dsin])
    })
}

/// `[batch, head, pos, d_head / 2]` summed to what a table has: `[positions, d_head / 2]`, or one such
/// for every sequence. A table may be longer than the sequence.
fn like_table(grad: &Tensor, table: &Tensor) -> Result<Tensor> {
    let grad = grad.sum(1)?;
    let grad = if table.rank() == 2 { grad.sum(0)? } else { grad };
    let pos = table.rank() - 2;
    let more = table.dim(pos)?.saturating_sub(grad.dim(pos)?);
    grad.pad_with_zeros(pos, 0, more)?.reshape(table.shape())
}
