use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{LayerNorm, Linear};
use hookpoint::prelude::*;

pub type Test = anyhow::Result<()>;

/// The device that the tests run on.
pub fn device() -> Device {
    hookpoint::device_from_env().expect("the device of HOOKPOINT_DEVICE")
}

/// A tensor of this shape with numbers that are all different and of size 1 or less.
pub fn wave(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers: Vec<f32> = (0..count).map(|n| ((n + 1) as f32 * 0.7 + seed as f32 * 1.3).sin()).collect();
    Tensor::from_vec(numbers, dims, &device()).unwrap()
}

pub fn full(value: f32, dims: &[usize]) -> Tensor {
    Tensor::full(value, dims, &device()).unwrap()
}

pub fn zeros(dims: &[usize]) -> Tensor {
    Tensor::zeros(dims, DType::F32, &device()).unwrap()
}

pub fn linear(seed: usize, input: usize, output: usize) -> Linear {
    Linear::new(wave(seed, &[output, input]), Some(wave(seed + 100, &[output])))
}

/// All numbers of a tensor, to be compared bit by bit.
pub fn bits(tensor: &Tensor) -> Vec<u32> {
    numbers(tensor).into_iter().map(f32::to_bits).collect()
}

pub fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

pub fn keys(cache: &ActivationCache) -> Vec<&str> {
    cache.keys().collect()
}

/// Counts how often something happens.
#[derive(Clone, Default)]
pub struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// What was counted so far; from now on it counts from 0.
    pub fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

/// A foreign layer that counts its executions, and multiplies.
#[derive(Clone)]
pub struct Times(pub f64, pub Counter);

impl Module for Times {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.1.add();
        x.affine(self.0, 0.)
    }
}

/// `up`, gelu, `down`, times `scale`.
#[derive(AutoHook)]
pub struct Mlp {
    pub up: Linear,
    pub down: Linear,
    pub scale: Tensor,
}

#[auto_hook]
impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.up.forward(x)?.gelu()?;
        self.down.forward(&hidden)?.broadcast_mul(&self.scale)
    }
}

impl Mlp {
    pub fn new(seed: usize, width: usize) -> Self {
        let (up, down) = (linear(seed, width, 2 * width), linear(seed + 1, 2 * width, width));
        Self { up, down, scale: wave(seed + 2, &[width]) }
    }
}

/// Attention without learned weights, with a pattern that no submodule sees.
#[derive(AutoHook)]
pub struct Attention {
    pub qkv: Linear,
    pub out: Linear,
    pub heads: usize,
}

#[auto_hook]
impl Attention {
    /// x: [batch, pos, width]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, pos, width) = x.dims3()?;
        let split = |x: &Tensor| x.reshape((batch, pos, self.heads, width / self.heads))?.transpose(1, 2);
        let qkv = self.qkv.forward(x)?;
        let q = split(&qkv.narrow(2, 0, width)?)?.contiguous()?;
        let k = split(&qkv.narrow(2, width, width)?)?.contiguous()?;
        let v = split(&qkv.narrow(2, 2 * width, width)?)?.contiguous()?;
        // [batch, head, pos, pos]
        let pattern = candle_nn::ops::softmax_last_dim(&q.matmul(&k.t()?)?)?;
        let z = pattern.matmul(&v)?.transpose(1, 2)?.reshape((batch, pos, width))?;
        self.out.forward(&z)
    }
}

#[derive(AutoHook)]
pub struct Block {
    pub norm: LayerNorm,
    pub attn: Attention,
    pub mlp: Mlp,
}

#[auto_hook]
impl Block {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let resid_mid = (x + self.attn.forward(&self.norm.forward(x)?)?)?;
        &resid_mid + self.mlp.forward(&resid_mid)?
    }
}

/// Two blocks and a head: [batch, pos, 4] to [batch, pos, 3].
#[derive(AutoHook)]
pub struct Model {
    pub blocks: Vec<Block>,
    pub head: Option<Linear>,
}

#[auto_hook]
impl Model {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        match &self.head {
            Some(head) => x.apply(head),
            None => Ok(x),
        }
    }
}

pub const WIDTH: usize = 4;

/// The input that goes with `model()`.
pub fn input() -> Tensor {
    wave(7, &[2, 3, WIDTH])
}

pub fn model() -> Hooked<Model> {
    let block = |seed: usize| Block {
        norm: LayerNorm::new(full(1., &[WIDTH]), zeros(&[WIDTH]), 1e-5),
        attn: Attention {
            qkv: linear(seed, WIDTH, 3 * WIDTH),
            out: linear(seed + 1, WIDTH, WIDTH),
            heads: 2,
        },
        mlp: Mlp::new(seed + 2, WIDTH),
    };
    Hooked::new(Model { blocks: vec![block(10), block(20)], head: Some(linear(30, WIDTH, 3)) })
}
