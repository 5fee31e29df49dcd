//! The model with the two annotations. Take them away, and it is an ordinary candle model.

use candle_core::{Module, Result, Tensor};
use candle_nn::{embedding, linear, Embedding, Linear, VarBuilder};
use hookpoint::prelude::*;

use crate::{BLOCKS, HIDDEN, TOKENS, WIDTH};

/// Two layers with a gelu between, and a learned scale for each channel.
#[derive(AutoHook)]
pub struct Mlp {
    up: Linear,
    down: Linear,
    scale: Tensor,
}

#[auto_hook]
impl Mlp {
    pub fn load(vb: VarBuilder<'_>) -> Result<Self> {
        let (up, down) = (linear(WIDTH, HIDDEN, vb.pp("up"))?, linear(HIDDEN, WIDTH, vb.pp("down"))?);
        Ok(Self { up, down, scale: vb.get(WIDTH, "scale")? })
    }

    /// `x` and the result are [batch, pos, width].
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // [batch, pos, hidden]
        let hidden = self.up.forward(x)?.gelu()?;
        let change = self.down.forward(&hidden)?;
        change.broadcast_mul(&self.scale)
    }
}

/// Embeds tokens, lets each block add to the residual stream, and scores the next token.
#[derive(AutoHook)]
pub struct Model {
    embed: Embedding,
    blocks: Vec<Mlp>,
    head: Linear,
}

#[auto_hook]
impl Model {
    pub fn load(vb: VarBuilder<'_>) -> Result<Self> {
        let block = |number| Mlp::load(vb.pp("blocks").pp(number));
        Ok(Self {
            embed: embedding(TOKENS, WIDTH, vb.pp("embed"))?,
            blocks: (0..BLOCKS).map(block).collect::<Result<_>>()?,
            head: linear(WIDTH, TOKENS, vb.pp("head"))?,
        })
    }

    /// `ids` are [batch, pos], the scores [batch, pos, token].
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let mut stream = self.embed.forward(ids)?;
        for block in &self.blocks {
            stream = (&stream + block.forward(&stream)?)?;
        }
        self.head.forward(&stream)
    }
}
