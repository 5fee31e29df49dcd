//! The same model with the same weights, made of operations that candle can differentiate. Its fused layer
//! norm and softmax have no backward, so this is what somebody has to write who wants a gradient without
//! hookpoint.

use candle_core::{Module, Result, Tensor, D};
use candle_nn::ops::softmax;
use candle_nn::LayerNorm;

use super::plain::{Attention, Block, Gpt2};
use super::{mask, HEADS};

/// What the blocks are given, [batch, pos, width].
pub fn embedded(model: &Gpt2, ids: &Tensor) -> Result<Tensor> {
    model.wte.forward(ids)
}

/// The logits, [batch, pos, vocabulary].
pub fn forward(model: &Gpt2, embedded: &Tensor) -> Result<Tensor> {
    let pos = embedded.dim(1)?;
    let mask = mask(pos, embedded.device())?;
    let positions = Tensor::arange(0, pos as u32, embedded.device())?;
    let mut x = embedded.broadcast_add(&model.wpe.forward(&positions)?)?;
    for layer in &model.h {
        x = block(layer, &x, &mask)?;
    }
    model.lm_head.forward(&norm(&model.ln_f, &x)?)
}

fn block(block: &Block, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let mid = (x + attention(&block.attn, &norm(&block.ln_1, x)?, mask)?)?;
    let pre = block.mlp.c_fc.forward(&norm(&block.ln_2, &mid)?)?;
    &mid + block.mlp.c_proj.forward(&pre.gelu()?)?
}

fn attention(attn: &Attention, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let (batch, pos, width) = x.dims3()?;
    let d_head = width / HEADS;
    let qkv = attn.c_attn.forward(x)?;
    let qkv = qkv.reshape((batch, pos, 3, HEADS, d_head))?.permute((2, 0, 3, 1, 4))?;
    let q = qkv.get(0)?.contiguous()?;
    let k = qkv.get(1)?.contiguous()?;
    let v = qkv.get(2)?.contiguous()?;
    let scores = (q.matmul(&k.t()?)? * (d_head as f64).powf(-0.5))?;
    let pattern = softmax(&scores.broadcast_add(mask)?, D::Minus1)?;
    let z = pattern.matmul(&v)?.transpose(1, 2)?.reshape((batch, pos, width))?;
    attn.c_proj.forward(&z)
}

/// As candle's own layer norm does where it is not fused.
fn norm(norm: &LayerNorm, x: &Tensor) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let scaled = centred.broadcast_div(&(variance + 1e-5)?.sqrt()?)?.broadcast_mul(norm.weight())?;
    match norm.bias() {
        Some(bias) => scaled.broadcast_add(bias),
        None => Ok(scaled),
    }
}
