use candle_core::{DType, Device, IndexOp, Module, Result, Tensor, D};
use candle_nn::{Conv1d, Conv2d, Embedding, Linear};
use hookpoint::prelude::*;

pub type Test = anyhow::Result<()>;

/// The device that the tests run on.
pub fn device() -> Device {
    hookpoint::device_from_env().expect("the device of HOOKPOINT_DEVICE")
}

/// A tensor of this shape with numbers that are all different and of size 1 or less.
pub fn wave(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers: Vec<f64> = (0..count).map(|n| ((n + 1) as f64 * 0.7 + seed as f64 * 1.3).sin()).collect();
    Tensor::from_vec(numbers, dims, &device()).unwrap()
}

pub fn linear(seed: usize, input: usize, output: usize) -> Linear {
    Linear::new(wave(seed, &[output, input]), Some(wave(seed + 100, &[output])))
}

pub fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

pub fn bits(tensor: &Tensor) -> Vec<u64> {
    numbers(tensor).into_iter().map(f64::to_bits).collect()
}

pub fn keys(cache: &ActivationCache) -> Vec<&str> {
    cache.keys().collect()
}

/// `up`, tanh, `down`, times `scale`.
#[derive(AutoHook)]
pub struct Mlp {
    pub up: Linear,
    pub down: Linear,
    pub scale: Tensor,
}

#[auto_hook]
impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.up.forward(x)?.tanh()?;
        self.down.forward(&hidden)?.broadcast_mul(&self.scale)
    }
}

pub fn mlp(seed: usize, width: usize) -> Mlp {
    Mlp {
        up: linear(seed, width, 2 * width),
        down: linear(seed + 1, 2 * width, width),
        scale: wave(seed + 2, &[width]),
    }
}

/// Attention with two heads, written as models write it: views, transposes, a softmax, a mask.
#[derive(AutoHook)]
pub struct Attention {
    qkv: Linear,
    proj: Linear,
    mask: Tensor,
    heads: usize,
}

#[auto_hook]
impl Attention {
    fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let (batch, len, width) = x.dims3()?;
        let qkv = self.qkv.forward(x)?.reshape((batch, len, 3, self.heads, width / self.heads))?;
        // [batch, head, pos, d_head], not contiguous
        let q = qkv.i((.., .., 0))?.transpose(1, 2)?;
        let k = qkv.i((.., .., 1))?.transpose(1, 2)?;
        let v = qkv.i((.., .., 2))?.transpose(1, 2)?;
        let scores = (q.contiguous()?.matmul(&k.t()?.contiguous()?)? * 0.7)?;
        let scores = scores.broadcast_add(&self.mask)?;
        let scores = match bias {
            Some(bias) => scores.broadcast_add(bias)?,
            None => scores,
        };
        let pattern = candle_nn::ops::softmax(&scores, D::Minus1)?;
        let z = pattern.matmul(&v.contiguous()?)?;
        let z = z.transpose(1, 2)?.reshape((batch, len, width))?;
        self.proj.forward(&z)
    }
}

pub fn attention(seed: usize, width: usize, len: usize) -> Attention {
    let below = |i: usize, j: usize| if j > i { -1e4 } else { 0. };
    let mask: Vec<f64> = (0..len * len).map(|n| below(n / len, n % len)).collect();
    Attention {
        qkv: linear(seed, width, 3 * width),
        proj: linear(seed + 3, width, width),
        mask: Tensor::from_vec(mask, (len, len), &device()).unwrap(),
        heads: 2,
    }
}

/// A norm of plain tensors.
#[derive(AutoHook)]
pub struct Norm {
    weight: Tensor,
}

#[auto_hook]
impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let size = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
        x.broadcast_div(&size)?.broadcast_mul(&self.weight)
    }
}

#[derive(AutoHook)]
pub struct Block {
    ln: Norm,
    attn: Attention,
    mlp: Mlp,
}

#[auto_hook]
impl Block {
    fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let mid = (x + self.attn.forward(&self.ln.forward(x)?, bias)?)?;
        let out = (&mid + self.mlp.forward(&mid)?)?;
        Ok(out)
    }
}

/// A small transformer: embeddings, blocks, a head.
#[derive(AutoHook)]
pub struct Transformer {
    pub wte: Embedding,
    pub wpe: Tensor,
    pub blocks: Vec<Block>,
    pub head: Linear,
}

#[auto_hook]
impl Transformer {
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let (_, len) = ids.dims2()?;
        let mut x = self.wte.forward(ids)?.broadcast_add(&self.wpe.narrow(0, 0, len)?)?;
        for (number, block) in self.blocks.iter().enumerate() {
            let bias = (number == 1).then(|| wave(9, &[2, len, len]));
            x = block.forward(&x, bias.as_ref())?;
        }
        self.head.forward(&x)
    }
}

pub const LEN: usize = 3;

pub fn transformer() -> Hooked<Transformer> {
    let width = 4;
    let block = |seed: usize| Block {
        ln: Norm { weight: wave(seed, &[width]) },
        attn: attention(seed + 1, width, LEN),
        mlp: mlp(seed + 2, width),
    };
    Hooked::new(Transformer {
        wte: Embedding::new(wave(1, &[5, width]), width),
        wpe: wave(2, &[8, width]),
        blocks: vec![block(10), block(20)],
        head: linear(30, width, 5),
    })
}

pub fn ids() -> Tensor {
    Tensor::new(&[[1u32, 4, 2], [0, 3, 3]], &device()).unwrap()
}

/// What a transformer's loss is in these tests: a product, so that nothing in it is constant.
pub fn loss_of(logits: &Tensor) -> Result<Tensor> {
    logits.mul(&wave(77, logits.dims()))?.sqr()?.sum_all()
}

pub fn loss(model: &Transformer) -> Result<Tensor> {
    loss_of(&model.forward(&ids())?)
}

/// Convolutions, an enum, a box, results with several tensors, a module that is called twice.
#[derive(AutoHook)]
pub struct Odd {
    conv2: Conv2d,
    conv1: Conv1d,
    twice: Gate,
    boxed: Box<Linear>,
    split: Split,
}

#[derive(AutoHook)]
pub enum Gate {
    Sigmoid,
    Scaled { by: Tensor },
}

#[auto_hook]
impl Module for Gate {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Gate::Sigmoid => candle_nn::ops::sigmoid(x),
            Gate::Scaled { by } => {
                let scaled = x.broadcast_mul(by)?;
                candle_nn::ops::sigmoid(&scaled)
            }
        }
    }
}

#[derive(AutoHook)]
pub struct Split {
    left: Linear,
    right: Linear,
}

#[auto_hook]
impl Split {
    fn forward(&self, x: Tensor, scale: &Tensor) -> Result<(Tensor, Vec<Tensor>)> {
        let left = self.left.forward(&x)?;
        let right = self.right.forward(&x)?.mul(scale)?;
        let both = left.mul(&right)?;
        Ok((both, vec![left, right]))
    }
}

#[auto_hook]
impl Module for Odd {
    /// `x` is [batch, 2, 4, 4].
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let seen = x.apply(&self.conv2)?.gelu_erf()?;
        let line = seen.flatten_from(2)?;
        let line = self.conv1.forward(&line)?;
        let once = self.twice.forward(&line)?;
        let again = self.twice.forward(&(once + line)?)?;
        let flat = again.mean(D::Minus1)?;
        let wide = self.boxed.forward(&flat)?;
        let (both, parts) = self.split.forward(wide.clone(), &wide)?;
        both + parts[1].sqr()?
    }
}

pub fn odd(scaled: bool) -> Hooked<Odd> {
    let twice = if scaled { Gate::Scaled { by: wave(5, &[6]) } } else { Gate::Sigmoid };
    Hooked::new(Odd {
        conv2: Conv2d::new(
            wave(1, &[3, 2, 3, 3]),
            Some(wave(2, &[3])),
            candle_nn::Conv2dConfig { padding: 1, stride: 2, ..Default::default() },
        ),
        conv1: Conv1d::new(
            wave(3, &[4, 3, 2]),
            None,
            candle_nn::Conv1dConfig { padding: 1, stride: 1, ..Default::default() },
        ),
        twice: match twice {
            Gate::Scaled { .. } => Gate::Scaled { by: wave(5, &[5]) },
            gate => gate,
        },
        boxed: Box::new(linear(6, 4, 3)),
        split: Split { left: linear(7, 3, 3), right: linear(8, 3, 3) },
    })
}

pub fn picture() -> Tensor {
    wave(50, &[2, 2, 4, 4])
}
