//! Which token ids a model can be given.

use candle_core::{DType, Device, Tensor};
use hookpoint::{Error, Result};

use super::past::Past;

/// How large ids may be, and how many of them there may be.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub vocab_size: usize,
    pub n_positions: usize,
}

/// Gives batch and pos of `ids`, if they can follow `past`.
pub(crate) fn check(ids: &Tensor, past: &Past, limits: Limits) -> Result<(usize, usize)> {
    let &[batch, pos] = ids.dims() else {
        return Err(Error::msg(format!(
            "ids have to be [batch, pos], these have shape {:?}\n  for a single prompt, use `.unsqueeze(0)`",
            ids.dims()
        )));
    };
    if batch == 0 || pos == 0 {
        return Err(Error::msg(format!(
            "the prompt is empty: ids of shape {:?}\n  give at least one token, such as the one that begins a text",
            ids.dims()
        )));
    }
    check_ids(ids, limits)?;
    check_rows(batch, pos, past)?;
    let longest = past.len() + pos - past.padding().iter().min().copied().unwrap_or(0);
    if longest > limits.n_positions {
        return Err(too_long(longest, limits));
    }
    Ok((batch, pos))
}

pub(super) fn too_long(tokens: usize, limits: Limits) -> Error {
    let most = limits.n_positions;
    Error::msg(format!(
        "{tokens} tokens do not fit into the context of this model, which has {most} positions\n  \
         shorten the prompt, or generate fewer tokens"
    ))
}

fn check_rows(batch: usize, pos: usize, past: &Past) -> Result<()> {
    let padded = past.padding().len();
    if padded > 0 && padded != batch {
        return Err(Error::msg(format!("padding is given for {padded} rows, and ids have {batch}")));
    }
    if let Some(before) = past.batch().filter(|before| *before != batch) {
        return Err(Error::msg(format!(
            "{batch} rows cannot follow {before}\n  start with a new `Past` for another batch"
        )));
    }
    let all = past.len() + pos;
    if let Some(row) = past.padding().iter().position(|padding| *padding >= all) {
        return Err(Error::msg(format!("row {row} is nothing but padding: the prompt is empty")));
    }
    Ok(())
}

/// Every id has to be there: candle takes the largest number there is for "none", and gives zeros.
fn check_ids(ids: &Tensor, limits: Limits) -> Result<()> {
    if !matches!(ids.dtype(), DType::U32 | DType::I64) {
        let found = ids.dtype().as_str();
        return Err(Error::msg(format!("ids have to be u32 or i64, these are {found}")));
    }
    let numbers = ids.to_device(&Device::Cpu)?.flatten_all()?.to_dtype(DType::I64)?.to_vec1::<i64>()?;
    let is_wrong = |id: &&i64| usize::try_from(**id).map_or(true, |id| id >= limits.vocab_size);
    match numbers.iter().find(is_wrong) {
        None => Ok(()),
        Some(id) => {
            let (at, last) =
                (numbers.iter().position(|other| other == id).unwrap_or(0), limits.vocab_size - 1);
            let pos = ids.dim(1)?.max(1);
            Err(Error::msg(format!(
                "there is no token {id} (row {}, position {}): this model's tokens are 0 to {last}\n  \
                 ids and model have to come from the same tokenizer",
                at / pos,
                at % pos
            )))
        }
    }
}
