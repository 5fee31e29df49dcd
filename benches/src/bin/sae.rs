//! Steps of training a sparse autoencoder, timed one by one on request, for `scripts/compare-sae`.
//!
//! Reads lines from stdin: a number of steps to make. Answers each with the seconds that they took and the loss of
//! the last. Weights and rows are made from a formula, which the other side has too.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, Write};
use std::time::Instant;

use candle_core::{Device, Tensor};
use hookpoint_sae::{Architecture, Config, Sae, TrainOptions, Trainer, Weights};

/// Numbers from -1 to 1 that look random: the fractional parts of a sequence, in integers so that all agree.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u32 << 24) as f32) * 2. - 1.
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let size = |at: usize| args[at].parse::<usize>();
    let (d_in, d_sae, batch) = (size(2)?, size(3)?, size(4)?);
    let architecture = match args[1].as_str() {
        "relu" => Architecture::Relu,
        "topk" => Architecture::TopK { k: 32.min(d_sae / 4) },
        _ => Architecture::JumpRelu,
    };
    let device = &Device::Cpu;
    let w_dec = Tensor::from_vec(numbers(1, d_sae * d_in), (d_sae, d_in), device)?;
    let w_dec = w_dec.broadcast_div(&w_dec.sqr()?.sum_keepdim(1)?.sqrt()?)?;
    let weights = Weights {
        w_enc: w_dec.t()?.contiguous()?,
        b_enc: Tensor::zeros(d_sae, candle_core::DType::F32, device)?,
        w_dec,
        b_dec: Tensor::zeros(d_in, candle_core::DType::F32, device)?,
        threshold: match architecture {
            Architecture::JumpRelu => Some(Tensor::full(0.01f32, d_sae, device)?),
            _ => None,
        },
    };
    let sae = Sae::new(Config::new(d_in, d_sae, architecture), weights)?;
    let options = TrainOptions {
        batch,
        learning_rate: 1e-3,
        warm_up: 0,
        cool_down: 0,
        sparsity: 0.1,
        sparsity_warm_up: 0,
        bandwidth: 0.1,
        clip: Some(1.),
        resample: None,
        begin_at_mean: false,
        ..TrainOptions::new(architecture, u64::MAX)
    };
    let mut trainer = Trainer::new(&sae, options)?;
    let batches: Vec<Tensor> = (0..4)
        .map(|n| Tensor::from_vec(numbers(10 + n, batch * d_in), (batch, d_in), device))
        .collect::<candle_core::Result<_>>()?;
    let mut made = 0;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let begun = Instant::now();
        let mut last = f64::NAN;
        for _ in 0..line?.trim().parse::<usize>()? {
            last = trainer.step(&batches[made % batches.len()])?.loss;
            made += 1;
        }
        println!("{} {last}", begun.elapsed().as_secs_f64());
        std::io::stdout().flush()?;
    }
    Ok(())
}
