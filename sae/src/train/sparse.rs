//! Gradients from one active feature to the next, for batches with few of them.

use candle_core::{Device, Tensor};
use hookpoint::Result;
use rayon::prelude::*;

use super::dense::miss;
use super::gradients::{b_dec, Batch, Block, Entry, Gradients, BLOCK};
use super::numbers::{add_scaled, dot, read};
use crate::config::Architecture;

/// An entry of a row, with the gradients that it has there.
#[derive(Clone, Copy, Default)]
struct Share {
    row: u32,
    act: f32,
    /// At the pre-activation.
    back: f32,
    /// At the threshold.
    threshold: f32,
}

/// Of a row: the squared length of what is missed, and for each entry the gradients at its pre-activation and its
/// threshold.
type Missed = (f32, Vec<(f32, f32)>);

pub fn gradients(batch: &Batch<'_>, blocks: &[Block]) -> Result<(Gradients, Tensor, Vec<f32>)> {
    let parameters = batch.parameters;
    let (d_in, d_sae) = (batch.config.d_in, batch.config.d_sae);
    let rows = Rows {
        d_in,
        scale: 2. / batch.rows as f32,
        // What a threshold pays for an active feature, and what the feature itself does.
        gate: match batch.config.architecture {
            Architecture::JumpRelu => (batch.cost / batch.rows as f64) as f32,
            _ => 0.,
        },
        cost: match batch.config.architecture {
            Architecture::Relu => (batch.cost / batch.rows as f64) as f32,
            _ => 0.,
        },
    };
    let mut slope = vec![0f32; batch.rows * d_in];
    // For each row of each block, the gradients of its entries.
    let (missed, backs) = read(batch.x, |x| {
        read(&parameters.b_dec, |bias| {
            read(&parameters.decoder, |decoder| {
                read(&parameters.threshold, |threshold| {
                    let of_block = |((slope, x), block): ((&mut [f32], &[f32]), &Block)| {
                        let rows_of = slope.chunks_mut(d_in).zip(x.chunks(d_in)).zip(&block.entries);
                        rows_of
                            .map(|((slope, x), entries)| {
                                rows.back(slope, x, entries, bias, decoder, threshold)
                            })
                            .collect::<Vec<_>>()
                    };
                    let parts = slope.par_chunks_mut(BLOCK * d_in).zip(x.par_chunks(BLOCK * d_in));
                    let done: Vec<Vec<Missed>> = parts.zip(blocks.par_iter()).map(of_block).collect();
                    done.into_iter().flatten().unzip::<f32, Vec<(f32, f32)>, Vec<_>, Vec<_>>()
                })
            })
        })
    })????;
    let (starts, shares) = by_feature(blocks, &backs, d_sae);

    // Every feature has a row of its own in each gradient.
    let (mut encoder, mut decoder) = (vec![0f32; d_sae * d_in], vec![0f32; d_sae * d_in]);
    let (mut b_enc, mut threshold) = (vec![0f32; d_sae], vec![0f32; d_sae]);
    read(&batch.centred, |centred| {
        let features = encoder.par_chunks_mut(d_in).zip(decoder.par_chunks_mut(d_in));
        let scalars = b_enc.par_iter_mut().zip(threshold.par_iter_mut());
        let of_feature = |(feature, ((encoder, decoder), (b_enc, threshold)))| {
            let (encoder, decoder): (&mut [f32], &mut [f32]) = (encoder, decoder);
            let (b_enc, threshold): (&mut f32, &mut f32) = (b_enc, threshold);
            let feature: usize = feature;
            for share in &shares[starts[feature]..starts[feature + 1]] {
                let row = share.row as usize * d_in..(share.row as usize + 1) * d_in;
                if share.act > 0. {
                    add_scaled(decoder, share.act, &slope[row.clone()]);
                    add_scaled(encoder, share.back, &centred[row]);
                    *b_enc += share.back;
                }
                *threshold += share.threshold;
            }
        };
        features.zip(scalars).enumerate().with_min_len(16).for_each(of_feature);
    })?;
    let matrix = |numbers: Vec<f32>| Tensor::from_vec(numbers, (d_sae, d_in), &Device::Cpu);
    let slope = Tensor::from_vec(slope, (batch.rows, d_in), &Device::Cpu)?;
    let b_dec = b_dec(batch, &slope, &b_enc)?;
    let (encoder, decoder) = (matrix(encoder)?, matrix(decoder)?);
    Ok((Gradients { encoder, decoder, b_enc, b_dec, threshold }, slope, missed))
}

struct Rows {
    d_in: usize,
    scale: f32,
    gate: f32,
    cost: f32,
}

impl Rows {
    /// Fills `slope`, the gradient at the reconstruction of a row. Gives the squared length of what is missed, and for
    /// each entry the gradients at its pre-activation and its threshold.
    fn back(
        &self,
        slope: &mut [f32],
        x: &[f32],
        entries: &[Entry],
        bias: &[f32],
        decoder: &[f32],
        threshold: &[f32],
    ) -> Missed {
        let direction = |feature: u32| {
            let start = feature as usize * self.d_in;
            &decoder[start..start + self.d_in]
        };
        for entry in entries.iter().filter(|entry| entry.act > 0.) {
            add_scaled(slope, entry.act, direction(entry.feature));
        }
        let missed = miss(slope, bias, x, self.scale);
        let back = entries.iter().map(|entry| {
            let at_act = dot(slope, direction(entry.feature));
            let back = if entry.act > 0. { at_act + self.cost } else { 0. };
            let at_threshold = match entry.near > 0. {
                true => -entry.near * (threshold[entry.feature as usize] * at_act + self.gate),
                false => 0.,
            };
            (back, at_threshold)
        });
        (missed, back.collect())
    }
}

/// All entries in the order of features, and where those of each feature begin.
fn by_feature(blocks: &[Block], backs: &[Vec<(f32, f32)>], d_sae: usize) -> (Vec<usize>, Vec<Share>) {
    let rows = || blocks.iter().flat_map(|block| &block.entries).zip(backs);
    let mut starts = vec![0usize; d_sae + 1];
    for (entries, _) in rows() {
        for entry in entries {
            starts[entry.feature as usize + 1] += 1;
        }
    }
    for feature in 0..d_sae {
        starts[feature + 1] += starts[feature];
    }
    let mut next = starts.clone();
    let mut shares = vec![Share::default(); starts[d_sae]];
    for (row, (entries, backs)) in rows().enumerate() {
        for (entry, (back, threshold)) in entries.iter().zip(backs) {
            let place = &mut next[entry.feature as usize];
            shares[*place] = Share { row: row as u32, act: entry.act, back: *back, threshold: *threshold };
            *place += 1;
        }
    }
    (starts, shares)
}
