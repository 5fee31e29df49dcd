//! The gradients of a batch, in closed form.
//!
//! With `pre = (x - b_dec) E' + b_enc`, `acts = activation(pre)`, `missed = acts D + b_dec - x` and the loss
//! `mean(|missed|^2)` and what features cost, all gradients are sums over rows. While many features are active they
//! are products of matrices (`dense`); once few are, it is quicker to go from one active feature to the next
//! (`sparse`).

use candle_core::Tensor;
use hookpoint::Result;
use hookpoint_kernels::linear;
use rayon::prelude::*;

use super::numbers::{change, read};
use super::parameters::Parameters;
use super::{dense, sparse};
use crate::config::{Architecture, Config};
use crate::top_k::positive_top_k;

/// Rows that one thread works on at a time: always as many, so that sums do not depend on the machine.
pub const BLOCK: usize = 64;

/// From this part of active features on, products of whole matrices are quicker.
const MANY: f64 = 0.1;

/// From so many numbers on, candle's product is the quicker one.
const MUCH: usize = 1 << 20;

/// What a batch says about the parameters.
pub struct Gradients {
    /// `[d_sae, d_in]`
    pub encoder: Tensor,
    /// `[d_sae, d_in]`
    pub decoder: Tensor,
    /// `[d_sae]`
    pub b_enc: Vec<f32>,
    /// `[d_in]`
    pub b_dec: Vec<f32>,
    /// `[d_sae]`
    pub threshold: Vec<f32>,
}

/// A batch after its gradients were computed.
pub struct Outcome {
    pub gradients: Gradients,
    /// `[rows, d_in]`: the gradient at the reconstruction, which is `2 / rows` times what is missed.
    pub slope: Tensor,
    /// The squared length of what is missed, for each row.
    pub missed: Vec<f32>,
    /// What the batch pays for features, per row.
    pub penalty: f64,
    /// How many features are active in all rows together.
    pub active: u64,
    /// For each feature, whether it is active in some row.
    pub fired: Vec<bool>,
}

/// What the gradients of a batch depend on, besides parameters.
pub struct Batch<'a> {
    pub config: &'a Config,
    pub parameters: &'a Parameters,
    /// `[rows, d_in]`
    pub x: &'a Tensor,
    /// `x`, less the decoder's bias where the config says so.
    pub centred: Tensor,
    pub rows: usize,
    /// What an active feature costs.
    pub cost: f64,
    pub bandwidth: f64,
}

/// A feature that is active in a row, or so near to its threshold that the threshold has a gradient.
#[derive(Clone, Copy)]
pub struct Entry {
    pub feature: u32,
    pub act: f32,
    /// For JumpReLU: 1 / bandwidth if it is near its threshold, and else 0.
    pub near: f32,
}

/// What the activation of a block of rows gave.
pub struct Block {
    pub active: u64,
    pub touched: u64,
    pub sum: f64,
    pub fired: Vec<bool>,
    /// Row by row, only where few are touched.
    pub entries: Vec<Vec<Entry>>,
}

impl<'a> Batch<'a> {
    pub fn new(
        config: &'a Config,
        parameters: &'a Parameters,
        x: &'a Tensor,
        cost: f64,
        bandwidth: f64,
    ) -> Result<Self> {
        let centred = match config.apply_b_dec_to_input {
            true => x.broadcast_sub(&parameters.b_dec)?,
            false => x.clone(),
        };
        Ok(Self { config, parameters, x, centred, rows: x.dim(0)?, cost, bandwidth })
    }

    pub fn gradients(&self) -> Result<Outcome> {
        let encoder = &self.parameters.encoder;
        let pre = match self.rows * self.config.d_sae > MUCH {
            true => self.centred.matmul(&encoder.t()?)?,
            false => linear(&self.centred, encoder, None)?,
        };
        let (blocks, few) = self.activate(&pre)?;
        let (gradients, slope, missed) = match few {
            true => sparse::gradients(self, &blocks)?,
            false => dense::gradients(self, pre)?,
        };
        let active = blocks.iter().map(|block| block.active).sum();
        let spent = match self.config.architecture {
            Architecture::Relu => blocks.iter().map(|block| block.sum).sum(),
            Architecture::TopK { .. } => 0.,
            Architecture::JumpRelu => active as f64,
        };
        let mut fired = vec![false; self.config.d_sae];
        for block in &blocks {
            fired.iter_mut().zip(&block.fired).for_each(|(fired, here)| *fired |= here);
        }
        let penalty = self.cost * spent / self.rows as f64;
        Ok(Outcome { gradients, slope, missed, penalty, active, fired })
    }

    /// Adds the bias to `pre`, and for ReLU makes activations of it in place. Tells whether few features are active;
    /// only then blocks have entries.
    pub fn activate(&self, pre: &Tensor) -> Result<(Vec<Block>, bool)> {
        let width = self.config.d_sae;
        let architecture = self.config.architecture;
        let half = (self.bandwidth / 2.) as f32;
        let mut blocks: Vec<Block> = read(&self.parameters.b_enc, |bias| {
            read(&self.parameters.threshold, |threshold| {
                change(pre, |pre| {
                    let blocks = pre.par_chunks_mut(BLOCK * width);
                    blocks.map(|block| activate(block, architecture, bias, threshold, half)).collect()
                })
            })
        })???;
        let touched: u64 = blocks.iter().map(|block| block.touched).sum();
        let few = (touched as f64) <= MANY * (self.rows * width) as f64;
        if matches!(architecture, Architecture::TopK { .. }) {
            return Ok((blocks, true));
        }
        if few {
            self.note_entries(pre, &mut blocks)?;
        }
        Ok((blocks, few))
    }

    /// Row by row which features are touched, from what [`activate`](Self::activate) made of `pre`.
    pub fn note_entries(&self, pre: &Tensor, blocks: &mut [Block]) -> Result<()> {
        let width = self.config.d_sae;
        let jump = self.config.architecture == Architecture::JumpRelu;
        let (half, near) = ((self.bandwidth / 2.) as f32, (1. / self.bandwidth) as f32);
        read(pre, |pre| {
            read(&self.parameters.threshold, |threshold| {
                let numbers = pre.par_chunks(BLOCK * width);
                blocks.par_iter_mut().zip(numbers).for_each(|(block, numbers)| {
                    let entries = numbers.chunks(width).map(|row| match jump {
                        true => touched_by(row, threshold, half, near),
                        false => active(row),
                    });
                    block.entries = entries.collect();
                });
            })
        })??;
        Ok(())
    }
}

fn activate(
    block: &mut [f32],
    architecture: Architecture,
    bias: &[f32],
    threshold: &[f32],
    half: f32,
) -> Block {
    let width = bias.len();
    let (mut active, mut touched, mut sum) = (0u64, 0u64, 0f64);
    let mut fired = vec![false; width];
    let mut entries = Vec::new();
    let mut kept = Vec::new();
    for row in block.chunks_mut(width) {
        match architecture {
            Architecture::Relu => {
                let (mut count, mut total) = (0u32, 0f32);
                for ((x, bias), fired) in row.iter_mut().zip(bias).zip(&mut fired) {
                    *x = (*x + bias).max(0.);
                    count += u32::from(*x > 0.);
                    *fired |= *x > 0.;
                    total += *x;
                }
                active += u64::from(count);
                touched += u64::from(count);
                sum += f64::from(total);
            }
            Architecture::JumpRelu => {
                let (mut count, mut close) = (0u32, 0u32);
                for (((x, bias), threshold), fired) in row.iter_mut().zip(bias).zip(threshold).zip(&mut fired)
                {
                    *x += bias;
                    let above = *x > *threshold && *x > 0.;
                    count += u32::from(above);
                    close += u32::from(above || (*x - threshold).abs() < half);
                    *fired |= above;
                }
                active += u64::from(count);
                touched += u64::from(close);
            }
            Architecture::TopK { k } => {
                row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
                let mut found = Vec::with_capacity(k);
                positive_top_k(row, k, &mut kept, |place| {
                    found.push(Entry { feature: place as u32, act: row[place], near: 0. });
                    fired[place] = true;
                });
                active += found.len() as u64;
                touched += found.len() as u64;
                entries.push(found);
            }
        }
    }
    Block { active, touched, sum, fired, entries }
}

fn active(row: &[f32]) -> Vec<Entry> {
    let above = row.iter().enumerate().filter(|(_, x)| **x > 0.);
    above.map(|(feature, x)| Entry { feature: feature as u32, act: *x, near: 0. }).collect()
}

fn touched_by(row: &[f32], threshold: &[f32], half: f32, near: f32) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (feature, (x, threshold)) in row.iter().zip(threshold).enumerate() {
        let act = if *x > *threshold && *x > 0. { *x } else { 0. };
        let close = (*x - threshold).abs() < half;
        if act > 0. || close {
            entries.push(Entry { feature: feature as u32, act, near: if close { near } else { 0. } });
        }
    }
    entries
}

/// Sums of columns, block by block.
pub fn column_sums(numbers: &[f32], width: usize) -> Vec<f32> {
    let blocks = numbers.par_chunks(BLOCK * width).map(|block| {
        let mut sums = vec![0f32; width];
        block.chunks(width).for_each(|row| sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x));
        sums
    });
    let blocks: Vec<Vec<f32>> = blocks.collect();
    let mut sums = vec![0f32; width];
    blocks.iter().for_each(|block| sums.iter_mut().zip(block).for_each(|(sum, x)| *sum += x));
    sums
}

/// The gradient of the decoder's bias: directly, and where it is taken off the input.
pub fn b_dec(batch: &Batch<'_>, slope: &Tensor, b_enc: &[f32]) -> Result<Vec<f32>> {
    let mut sums = read(slope, |slope| column_sums(slope, batch.config.d_in))?;
    if batch.config.apply_b_dec_to_input {
        let b_enc = Tensor::from_slice(b_enc, (1, b_enc.len()), &candle_core::Device::Cpu)?;
        let taken = b_enc.matmul(&batch.parameters.encoder)?;
        read(&taken, |taken| sums.iter_mut().zip(taken).for_each(|(sum, taken)| *sum -= taken))?;
    }
    Ok(sums)
}
