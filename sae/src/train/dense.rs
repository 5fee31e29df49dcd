//! Gradients as products of whole matrices, for batches with many active features.

use candle_core::Tensor;
use hookpoint::Result;
use rayon::prelude::*;

use super::gradients::{b_dec, Batch, Gradients, BLOCK};
use super::numbers::{change, read};
use crate::config::Architecture;

/// `pre` is `[rows, d_sae]` with the bias added, and for ReLU is the activations already.
pub fn gradients(batch: &Batch<'_>, pre: Tensor) -> Result<(Gradients, Tensor, Vec<f32>)> {
    let parameters = batch.parameters;
    let (d_in, d_sae) = (batch.config.d_in, batch.config.d_sae);
    let jump = batch.config.architecture == Architecture::JumpRelu;
    let acts = match jump {
        true => jumped(&pre, &parameters.threshold, d_sae)?,
        false => pre.clone(),
    };
    let slope = acts.matmul(&parameters.decoder)?;
    let scale = 2. / batch.rows as f32;
    let missed = read(batch.x, |x| {
        read(&parameters.b_dec, |bias| {
            change(&slope, |recons| {
                let blocks = recons.par_chunks_mut(BLOCK * d_in).zip(x.par_chunks(BLOCK * d_in));
                let missed = blocks.flat_map_iter(|(recons, x)| {
                    recons
                        .chunks_mut(d_in)
                        .zip(x.chunks(d_in))
                        .map(|(recons, x)| miss(recons, bias, x, scale))
                });
                missed.collect::<Vec<f32>>()
            })
        })
    })???;
    let decoder = acts.t()?.matmul(&slope)?;
    // [rows, d_sae]: the gradient at the activations, of which that at the pre-activations is made in place.
    let back = slope.matmul(&parameters.decoder.t()?)?;
    let cost = (batch.cost / batch.rows as f64) as f32;
    let (half, near) = ((batch.bandwidth / 2.) as f32, (1. / batch.bandwidth) as f32);
    let (b_enc, threshold) = read(&parameters.threshold, |threshold| {
        read(&pre, |pre| {
            change(&back, |back| {
                let blocks = back.par_chunks_mut(BLOCK * d_sae).zip(pre.par_chunks(BLOCK * d_sae));
                let sums: Vec<(Vec<f32>, Vec<f32>)> = blocks
                    .map(|(back, pre)| match jump {
                        true => through_jumps(back, pre, threshold, cost, half, near),
                        false => (through_relus(back, pre, d_sae, cost), Vec::new()),
                    })
                    .collect();
                (total(sums.iter().map(|sums| &sums.0), d_sae), total(sums.iter().map(|sums| &sums.1), d_sae))
            })
        })
    })???;
    let encoder = back.t()?.matmul(&batch.centred)?;
    let b_dec = b_dec(batch, &slope, &b_enc)?;
    Ok((Gradients { encoder, decoder, b_enc, b_dec, threshold }, slope, missed))
}

/// Makes the gradient at a reconstruction of it, and tells the squared length of what is missed.
pub fn miss(recons: &mut [f32], bias: &[f32], x: &[f32], scale: f32) -> f32 {
    let mut squares = 0f32;
    for ((recons, bias), x) in recons.iter_mut().zip(bias).zip(x) {
        let missed = *recons + bias - x;
        squares += missed * missed;
        *recons = scale * missed;
    }
    squares
}

fn jumped(pre: &Tensor, threshold: &Tensor, d_sae: usize) -> Result<Tensor> {
    let acts = pre.force_contiguous()?;
    read(threshold, |threshold| {
        change(&acts, |acts| {
            acts.par_chunks_mut(BLOCK * d_sae).for_each(|block| {
                for row in block.chunks_mut(d_sae) {
                    for (x, threshold) in row.iter_mut().zip(threshold) {
                        *x = if *x > *threshold && *x > 0. { *x } else { 0. };
                    }
                }
            })
        })
    })??;
    Ok(acts)
}

fn through_relus(back: &mut [f32], acts: &[f32], width: usize, cost: f32) -> Vec<f32> {
    let mut sums = vec![0f32; width];
    for (back, acts) in back.chunks_mut(width).zip(acts.chunks(width)) {
        for ((back, act), sum) in back.iter_mut().zip(acts).zip(&mut sums) {
            *back = if *act > 0. { *back + cost } else { 0. };
            *sum += *back;
        }
    }
    sums
}

fn through_jumps(
    back: &mut [f32],
    pre: &[f32],
    threshold: &[f32],
    cost: f32,
    half: f32,
    near: f32,
) -> (Vec<f32>, Vec<f32>) {
    let width = threshold.len();
    let (mut sums, mut thresholds) = (vec![0f32; width], vec![0f32; width]);
    for (back, pre) in back.chunks_mut(width).zip(pre.chunks(width)) {
        let learned = sums.iter_mut().zip(&mut thresholds);
        for (((back, pre), threshold), (sum, learned)) in back.iter_mut().zip(pre).zip(threshold).zip(learned)
        {
            if (*pre - threshold).abs() < half {
                *learned -= near * (threshold * *back + cost);
            }
            *back = if *pre > *threshold && *pre > 0. { *back } else { 0. };
            *sum += *back;
        }
    }
    (sums, thresholds)
}

fn total<'a>(parts: impl Iterator<Item = &'a Vec<f32>>, width: usize) -> Vec<f32> {
    let mut total = vec![0f32; width];
    parts.for_each(|part| total.iter_mut().zip(part).for_each(|(total, part)| *total += part));
    total
}
