//! The model that the pages under `docs` use.

pub use candle_core::{DType, Device, Module, Result, Tensor};
pub use candle_nn::Linear;
pub use hookpoint::prelude::*;

/// Two blocks and a head.
#[derive(AutoHook)]
pub struct Net {
    /// The blocks.
    pub blocks: Vec<Block>,
    /// Gives the output.
    pub head: Linear,
}

/// Attention and an mlp, each added to what came in.
#[derive(AutoHook)]
pub struct Block {
    /// Looks at other positions.
    pub attn: Attention,
    /// Looks at one position.
    pub mlp: Mlp,
}

/// Attention with one head.
#[derive(AutoHook)]
pub struct Attention {
    /// Queries and keys at once.
    pub qk: Linear,
    /// Values.
    pub v: Linear,
}

/// Two layers, and a scale that is a bare tensor.
#[derive(AutoHook)]
pub struct Mlp {
    /// The first layer.
    pub fc1: Linear,
    /// The second.
    pub fc2: Linear,
    /// What its output is multiplied by.
    pub scale: Tensor,
}

#[auto_hook]
impl Net {
    /// x: [batch, pos, 4]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.head.forward(&x)
    }
}

#[auto_hook]
impl Block {
    /// x: [batch, pos, 4]
    pub fn forward(&self, resid_pre: &Tensor) -> Result<Tensor> {
        let resid_mid = (resid_pre + self.attn.forward(resid_pre)?)?;
        &resid_mid + self.mlp.forward(&resid_mid)?
    }
}

#[auto_hook]
impl Attention {
    /// x: [batch, pos, 4]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let pattern = self.attend(x)?;
        pattern.matmul(&self.v.forward(x)?)
    }

    /// [batch, pos, pos]
    fn attend(&self, x: &Tensor) -> Result<Tensor> {
        let qk = self.qk.forward(x)?;
        let (q, k) = (qk.narrow(2, 0, 4)?, qk.narrow(2, 4, 4)?);
        candle_nn::ops::softmax_last_dim(&q.contiguous()?.matmul(&k.t()?)?)
    }
}

#[auto_hook]
impl Mlp {
    /// x: [batch, pos, 4]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.fc1.forward(x)?.gelu()?;
        self.fc2.forward(&hidden)?.broadcast_mul(&self.scale)
    }
}

/// The model, and an input for it: [1, 3, 4].
pub fn example() -> Result<(Hooked<Net>, Tensor)> {
    let wave = |seed: usize, dims: &[usize]| {
        let count: usize = dims.iter().product();
        let numbers: Vec<f32> =
            (0..count).map(|n| ((n + 1) as f32 * 0.7 + seed as f32 * 1.3).sin()).collect();
        Tensor::from_vec(numbers, dims, &Device::Cpu)
    };
    let linear = |seed, i, o| Ok::<_, candle_core::Error>(Linear::new(wave(seed, &[o, i])?, None));
    let block = |seed: usize| -> Result<Block> {
        let attn = Attention { qk: linear(seed, 4, 8)?, v: linear(seed + 1, 4, 4)? };
        let (fc1, fc2) = (linear(seed + 2, 4, 8)?, linear(seed + 3, 8, 4)?);
        Ok(Block { attn, mlp: Mlp { fc1, fc2, scale: wave(seed + 4, &[4])? } })
    };
    let net = Net { blocks: vec![block(1)?, block(6)?], head: linear(11, 4, 2)? };
    Ok((Hooked::new(net), wave(12, &[1, 3, 4])?))
}
