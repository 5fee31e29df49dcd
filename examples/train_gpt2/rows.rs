//! Batches: rows of token ids, and how much each of them counts.

use anyhow::Result;
use candle_core::{Device, Tensor};
use hookpoint_models::english::English;
use hookpoint_models::gpt2::Tokenizer;

/// How much a word counts that does not have to follow from the words before it.
const ORDINARY: f32 = 0.1;
/// How much a token of a repeated sequence counts.
const REPEATED: f32 = 0.5;
/// How much the word counts for which a sentence was made.
const ANSWER: f32 = 1.;

pub struct Batch {
    /// `[batch, pos]`
    pub ids: Tensor,
    /// `[batch * pos, 1]`: the token after each.
    pub targets: Tensor,
    /// `[batch * pos, 1]`: how much it counts.
    pub weights: Tensor,
}

/// A batch that the generator determines: so many rows that repeat random tokens, and the others with sentences.
pub fn batch(
    english: &mut English,
    tokenizer: &Tokenizer,
    (repeating, rows, length): (usize, usize, usize),
    device: &Device,
) -> Result<Batch> {
    let mut ids = Vec::with_capacity(rows * length);
    let (mut targets, mut weights) = (ids.clone(), Vec::with_capacity(rows * length));
    for row in 0..rows {
        let (row, counts) = match row < repeating {
            true => repeats(english, tokenizer.len(), length + 1),
            false => sentences(english, tokenizer, length + 1)?,
        };
        ids.extend_from_slice(&row[..length]);
        targets.extend_from_slice(&row[1..]);
        weights.extend_from_slice(&counts[1..]);
    }
    Ok(Batch {
        ids: Tensor::from_vec(ids, (rows, length), device)?,
        targets: Tensor::from_vec(targets, (rows * length, 1), device)?,
        weights: Tensor::from_vec(weights, (rows * length, 1), device)?,
    })
}

/// Random tokens over and over. The first time they cannot be known, nor that they begin again.
fn repeats(english: &mut English, vocab: usize, length: usize) -> (Vec<u32>, Vec<f32>) {
    // Short ones are learned first, and half of all are short.
    let longest = length / 2;
    let period = match english.below(2) {
        0 => 3 + english.below(longest / 4),
        _ => 3 + english.below(longest - 2),
    };
    let row = english.random_tokens(period, vocab).into_iter().cycle().take(length).collect();
    let counts = (0..length).map(|at| if at <= period { 0. } else { REPEATED }).collect();
    (row, counts)
}

/// Sentences one after another, and the last one cut off.
fn sentences(english: &mut English, tokenizer: &Tokenizer, length: usize) -> Result<(Vec<u32>, Vec<f32>)> {
    let (mut row, mut counts) = (Vec::new(), Vec::new());
    while row.len() < length {
        let example = english.example();
        let answer = row.len() + tokenizer.encode(&example.prompt)?.len();
        row.extend(tokenizer.encode(&example.text())?);
        row.push(0);
        counts.resize(row.len(), ORDINARY);
        counts[answer] = ANSWER;
    }
    row.truncate(length);
    counts.truncate(length);
    Ok((row, counts))
}
