//! Cells side by side: inputs with their rows repeated, and the change of every cell in its own rows.

use candle_core::Tensor;
use hookpoint::{Error, ErrorKind, Result};

use super::grid::Place;

/// An input whose rows, the first dimension of its tensors, can be repeated.
///
/// Implemented for tensors, and for tuples, lists and options of such inputs. Implement it for an input of
/// your own, or have `run` capture what is not a tensor.
pub trait Batch: Sized {
    /// The same input so many times, all rows of it one after the other.
    fn repeat(&self, times: usize) -> Result<Self>;
}

impl Batch for Tensor {
    fn repeat(&self, times: usize) -> Result<Self> {
        if self.rank() == 0 {
            return Err(ErrorKind::NothingToRepeat.into());
        }
        match times {
            1 => Ok(self.clone()),
            _ => Ok(Tensor::cat(&vec![self.contiguous()?; times], 0)?),
        }
    }
}

impl<X: Batch> Batch for Option<X> {
    fn repeat(&self, times: usize) -> Result<Self> {
        self.as_ref().map(|input| input.repeat(times)).transpose()
    }
}

impl<X: Batch> Batch for Vec<X> {
    fn repeat(&self, times: usize) -> Result<Self> {
        self.iter().map(|input| input.repeat(times)).collect()
    }
}

impl<A: Batch, B: Batch> Batch for (A, B) {
    fn repeat(&self, times: usize) -> Result<Self> {
        Ok((self.0.repeat(times)?, self.1.repeat(times)?))
    }
}

impl<A: Batch, B: Batch, C: Batch> Batch for (A, B, C) {
    fn repeat(&self, times: usize) -> Result<Self> {
        Ok((self.0.repeat(times)?, self.1.repeat(times)?, self.2.repeat(times)?))
    }
}

/// A place and what is put in there.
pub(super) type Change<'c> = (&'c Place, &'c Tensor);

/// The rows of one of several copies.
pub(super) fn rows_of(what: &str, tensor: &Tensor, copy: usize, copies: usize) -> Result<Tensor> {
    let rows = tensor.dims().first().copied().unwrap_or(0);
    if rows == 0 || rows % copies != 0 {
        return Err(no_rows(what, tensor.dims(), copies));
    }
    Ok(tensor.narrow(0, copy * (rows / copies), rows / copies)?)
}

/// The value with the changes of every cell in the rows of its copy; `changes` has the number of the copy.
pub(super) fn changed_rows(
    point: &str,
    value: &Tensor,
    base: &[usize],
    copies: usize,
    changes: &[(usize, Change<'_>)],
) -> Result<Tensor> {
    let is_repeated = match (base, value.dims()) {
        ([one, rest @ ..], [all, others @ ..]) => rest == others && *all == one * copies,
        _ => false,
    };
    if !is_repeated {
        return Err(no_rows(point, value.dims(), copies));
    }
    let mut pieces = Vec::with_capacity(copies);
    for copy in 0..copies {
        let mut rows = rows_of(point, value, copy, copies)?;
        for (_, (place, part)) in changes.iter().filter(|(of, _)| *of == copy) {
            rows = match &place.index {
                Some(index) => index.write(point, &rows, part)?,
                None => (*part).clone(),
            };
        }
        pieces.push(rows);
    }
    Ok(Tensor::cat(&pieces, 0)?)
}

/// What all copies put in the place of the whole value, one after the other; none where one of them leaves
/// some of it.
pub(super) fn whole_rows(copies: usize, changes: &[(usize, Change<'_>)]) -> Result<Option<Tensor>> {
    let is_whole = changes.len() == copies
        && changes.iter().enumerate().all(|(at, (copy, (place, _)))| at == *copy && place.index.is_none());
    if !is_whole {
        return Ok(None);
    }
    let parts: Vec<&Tensor> = changes.iter().map(|(_, (_, part))| *part).collect();
    Ok(Some(Tensor::cat(&parts, 0)?))
}

fn no_rows(point: &str, dims: &[usize], copies: usize) -> Error {
    ErrorKind::Shape {
        point: point.to_string(),
        what: format!("the value with {copies} copies of the input"),
        expected: vec![copies],
        found: dims.to_vec(),
        remedy: "its first dimension is not the batch: sweep with `.one_by_one()`".to_string(),
    }
    .into()
}
