//! Texts for the model: sentences of its own language, one after another.

use candle_core::{Device, Tensor};
use hookpoint::Result;
use hookpoint_models::english::English;
use hookpoint_models::gpt2::Tokenizer;

/// How many tokens a row has.
pub const LENGTH: usize = 48;

/// `[rows, LENGTH]` token ids that a seed and a number determine.
pub fn rows(tokenizer: &Tokenizer, seed: u64, number: u64, rows: usize) -> Result<Tensor> {
    let mut english = English::new(seed).fork(number);
    let mut ids = Vec::with_capacity(rows * LENGTH);
    for _ in 0..rows {
        let mut row: Vec<u32> = Vec::with_capacity(LENGTH);
        while row.len() < LENGTH {
            // With the token that ends a text between sentences, as in the training of the model.
            row.extend(tokenizer.encode(&english.example().text())?);
            row.push(0);
        }
        ids.extend(row.into_iter().take(LENGTH));
    }
    Ok(Tensor::from_vec(ids, (rows, LENGTH), &Device::Cpu)?)
}
