//! What a run gave, in a form that can be compared bit by bit.

use candle_core::{DType, Tensor};

use crate::error::Result;
use crate::value::{HookValue, Place};

/// Every tensor of an output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Output {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
struct Part {
    /// Where in the output, as in `logits` or `hidden.0`; empty where the output is a tensor.
    place: String,
    dtype: DType,
    dims: Vec<usize>,
    bytes: Vec<u8>,
    nans: usize,
}

impl Output {
    pub fn of(mut value: impl HookValue) -> Result<Self> {
        let mut parts = Vec::new();
        value.each_tensor(&mut Place::default(), &mut |place, tensor| {
            parts.push(Part {
                place: place.to_string(),
                dtype: tensor.dtype(),
                dims: tensor.dims().to_vec(),
                bytes: bytes(tensor)?,
                nans: nans(tensor)?,
            });
            Ok(())
        })?;
        Ok(Self { parts })
    }

    pub fn has_tensors(&self) -> bool {
        self.numbers() > 0
    }

    /// How many numbers there are.
    pub fn numbers(&self) -> usize {
        self.parts.iter().map(|part| part.dims.iter().product::<usize>()).sum()
    }

    /// How many of them are NaN.
    pub fn nans(&self) -> usize {
        self.parts.iter().map(|part| part.nans).sum()
    }

    /// Are shapes and dtypes the same, whatever the numbers?
    pub fn is_like(&self, other: &Self) -> bool {
        let outline = |part: &Part| (part.place.clone(), part.dtype, part.dims.clone());
        self.parts.iter().map(outline).eq(other.parts.iter().map(outline))
    }

    /// How many rows the first tensor has.
    pub fn rows(&self) -> Option<usize> {
        self.parts.first()?.dims.first().copied()
    }

    /// Which rows of the first tensor are different in `other`.
    pub fn differing_rows(&self, other: &Self) -> Vec<usize> {
        let (Some(part), Some(rows)) = (self.parts.first(), self.rows()) else { return Vec::new() };
        let Some(others) = other.parts.first() else { return Vec::new() };
        let width = (part.bytes.len() / rows.max(1)).max(1);
        let each = part.bytes.chunks(width).zip(others.bytes.chunks(width)).enumerate();
        each.filter(|(_, (a, b))| a != b).map(|(row, _)| row).collect()
    }

    /// What is different in `other`, in words; none where nothing is.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self == other {
            return None;
        }
        if !self.is_like(other) {
            let shown = |output: &Self| {
                let part = |part: &Part| format!("{:?} {}", part.dims, part.dtype.as_str());
                output.parts.iter().map(part).collect::<Vec<_>>().join(", ")
            };
            return Some(format!("the output is {} instead of {}", shown(other), shown(self)));
        }
        let differs = |(a, b): (&Part, &Part)| {
            let width = a.dtype.size_in_bytes().max(1);
            a.bytes.chunks(width).zip(b.bytes.chunks(width)).filter(|(a, b)| a != b).count()
        };
        let count: usize = self.parts.iter().zip(&other.parts).map(differs).sum();
        Some(format!("{count} of {} numbers of the output differ", self.numbers()))
    }
}

/// The numbers of a tensor, bit by bit.
pub(super) fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(tensor.elem_count() * tensor.dtype().size_in_bytes());
    tensor.write_bytes(&mut bytes)?;
    Ok(bytes)
}

fn nans(tensor: &Tensor) -> Result<usize> {
    if !tensor.dtype().is_float() {
        return Ok(0);
    }
    // Only NaN differs from itself.
    let same = tensor.eq(tensor)?.to_dtype(DType::F64)?.sum_all()?.to_scalar::<f64>()?;
    Ok(tensor.elem_count() - same as usize)
}
