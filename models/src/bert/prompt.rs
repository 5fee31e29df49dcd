//! What a BERT can be given.

use candle_core::{DType, Device};
use hookpoint::{Error, Result};

use super::batch::Batch;
use super::config::Config;
use crate::language::{check_prompt, Limits, Past};

/// Gives the number of positions, if all tokens and types are there.
pub fn check(batch: &Batch, config: &Config) -> Result<usize> {
    let limits = Limits { vocab_size: config.vocab_size, n_positions: config.max_position_embeddings };
    let (_, pos) = check_prompt(batch.ids(), &Past::none(), limits)?;
    let types = batch.token_types().to_device(&Device::Cpu)?.to_dtype(DType::U32)?.flatten_all()?;
    let most = config.type_vocab_size;
    match types.to_vec1::<u32>()?.into_iter().find(|kind| *kind as usize >= most) {
        None => Ok(pos),
        Some(kind) => Err(Error::msg(format!(
            "there is no type of tokens {kind}: this model's types are 0 to {}",
            most.saturating_sub(1)
        ))),
    }
}

pub fn no_pooler() -> Error {
    Error::msg("this checkpoint came without a pooler\n  use the hidden states, or `sentence_embeddings`")
}
