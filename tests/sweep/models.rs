use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use candle_core::{Device, Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;

pub type Test = anyhow::Result<()>;

/// A tensor of this shape with numbers that are all different.
pub fn wave(seed: usize, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers: Vec<f32> = (0..count).map(|n| ((n + 1) as f32 * 0.7 + seed as f32 * 1.3).sin()).collect();
    Tensor::from_vec(numbers, dims, &Device::Cpu).unwrap()
}

pub fn linear(seed: usize, input: usize, output: usize) -> Linear {
    Linear::new(wave(seed, &[output, input]), Some(wave(seed + 100, &[output])))
}

pub fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// How often blocks have run. It is no part of what they compute.
#[derive(Clone, Default)]
pub struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

#[derive(AutoHook)]
pub struct Layer {
    up: Linear,
    down: Linear,
    scale: Tensor,
    ran: Counter,
}

#[auto_hook]
impl Layer {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.ran.add();
        let hidden = self.up.forward(x)?.tanh()?;
        let change = self.down.forward(&hidden)?.broadcast_mul(&self.scale)?;
        x + change
    }
}

pub fn layer(seed: usize, ran: &Counter) -> Layer {
    Layer {
        up: linear(seed, 4, 6),
        down: linear(seed + 1, 6, 4),
        scale: wave(seed + 2, &[4]),
        ran: ran.clone(),
    }
}

/// Layers one after the other.
#[derive(AutoHook)]
pub struct Stack {
    pub layers: Vec<Layer>,
    head: Linear,
    pub ran: Counter,
}

#[auto_hook]
impl Stack {
    /// `[batch, pos, 4]` to `[batch, pos, 3]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut stream = x.clone();
        for layer in &self.layers {
            stream = layer.forward(&stream)?;
        }
        self.head.forward(&stream)
    }
}

pub fn stack(count: usize) -> Hooked<Stack> {
    let ran = Counter::default();
    let layers = (0..count).map(|number| layer(number * 10, &ran)).collect();
    Hooked::new(Stack { layers, head: linear(77, 4, 3), ran })
}

/// One layer, several times.
#[derive(AutoHook)]
pub struct Repeated {
    layer: Layer,
    times: usize,
    pub ran: Counter,
}

#[auto_hook]
impl Repeated {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut stream = x.clone();
        for _ in 0..self.times {
            stream = self.layer.forward(&stream)?;
        }
        Ok(stream)
    }
}

pub fn repeated(times: usize) -> Hooked<Repeated> {
    let ran = Counter::default();
    Hooked::new(Repeated { layer: layer(3, &ran), times, ran })
}

/// Two fields, one layer.
#[derive(AutoHook)]
pub struct Shared {
    first: Arc<Layer>,
    middle: Layer,
    second: Arc<Layer>,
}

#[auto_hook]
impl Shared {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.first.forward(x)?;
        let x = self.middle.forward(&x)?;
        self.second.forward(&x)
    }
}

pub fn shared() -> Hooked<Shared> {
    let ran = Counter::default();
    let both = Arc::new(layer(5, &ran));
    Hooked::new(Shared { first: both.clone(), middle: layer(8, &ran), second: both })
}

/// Remembers what it saw in a cell, and adds it the next time.
#[derive(AutoHook)]
pub struct Memory {
    linear: Linear,
    seen: RefCell<Option<Tensor>>,
    #[hook(pure)]
    pub calls: Cell<usize>,
}

#[auto_hook]
impl Memory {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.calls.set(self.calls.get() + 1);
        let y = self.linear.forward(x)?;
        let before = self.seen.replace(Some(y.clone()));
        match before {
            Some(before) => y + before,
            None => Ok(y),
        }
    }
}

/// Calls its memory twice, then a layer.
#[derive(AutoHook)]
pub struct Remembers {
    pub memory: Memory,
    layer: Layer,
}

#[auto_hook]
impl Remembers {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.memory.seen.replace(None);
        let x = self.memory.forward(x)?;
        let x = self.memory.forward(&x)?;
        self.layer.forward(&x)
    }
}

pub fn remembers() -> Hooked<Remembers> {
    let memory = Memory { linear: linear(4, 4, 4), seen: RefCell::default(), calls: Cell::default() };
    Hooked::new(Remembers { memory, layer: layer(6, &Counter::default()) })
}

/// Counts what it has seen, with `&mut self` and with a `&mut` argument.
#[derive(AutoHook)]
pub struct Counts {
    linear: Linear,
    pub seen: usize,
}

#[auto_hook]
impl Counts {
    pub fn forward(&mut self, x: &Tensor, log: &mut Vec<usize>) -> Result<Tensor> {
        self.seen += 1;
        log.push(self.seen);
        self.linear.forward(x)?.affine(1., self.seen as f64)
    }
}

#[derive(AutoHook)]
pub struct Counting {
    pub counts: Counts,
    layer: Layer,
    head: Linear,
}

#[auto_hook]
impl Counting {
    pub fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        self.counts.seen = 0;
        let mut log = Vec::new();
        let x = self.counts.forward(x, &mut log)?;
        let x = self.counts.forward(&x, &mut log)?;
        let x = self.layer.forward(&x)?;
        self.head.forward(&x)
    }
}

pub fn counting() -> Hooked<Counting> {
    let counts = Counts { linear: linear(4, 4, 4), seen: 0 };
    Hooked::new(Counting { counts, layer: layer(6, &Counter::default()), head: linear(9, 4, 2) })
}

/// Draws lots.
#[derive(AutoHook)]
pub struct Random {
    layer: Layer,
}

#[auto_hook]
impl Random {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.layer.forward(x)?;
        let noise = x.randn_like(0., 1.)?;
        self.layer.forward(&(x + noise)?)
    }
}

pub fn random() -> Hooked<Random> {
    Hooked::new(Random { layer: layer(2, &Counter::default()) })
}

/// A number for an output of any shape.
pub fn total(output: &Tensor) -> Result<f64> {
    output.sqr()?.sum_all()?.to_scalar::<f32>().map(f64::from)
}
