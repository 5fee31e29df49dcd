//! Checks that take one point at a time.

use std::cell::Cell;

use candle_core::{DType, Tensor};

use crate::error::{Error, ErrorKind, Result};
use crate::report::Finding;

/// How a value is changed to see whether that shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Every number is one more.
    AddOne,
    /// Every number moves, up or down, by more than its size. A softmax does not see that the same was
    /// added to all its inputs, and a relu does not see negative numbers that stay negative; they see this.
    Shake,
    /// Integers are often indices, to which nothing can be added. They become 0, which most often exists.
    Zero,
}

impl Change {
    /// What to try, in this order, until something shows.
    pub fn for_dtype(dtype: DType) -> &'static [Change] {
        match dtype.is_float() {
            true => &[Change::AddOne, Change::Shake],
            false => &[Change::Zero],
        }
    }

    pub fn apply(self, value: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Change::AddOne => (value + 1.)?,
            Change::Zero => value.zeros_like()?,
            Change::Shake => (value + shake(value)?)?,
        })
    }
}

fn shake(value: &Tensor) -> Result<Tensor> {
    let largest = match value.elem_count() {
        0 => 0.,
        _ => value.to_dtype(DType::F32)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?,
    };
    let step = if largest.is_finite() { 1. + 2. * largest } else { 1. };
    // Up or down without any order, so that no dimension moves as one.
    let up = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) & (1 << 40) == 0;
    let steps: Vec<f32> = (0..value.elem_count()).map(|n| if up(n) { step } else { -step }).collect();
    Ok(Tensor::from_vec(steps, value.dims(), value.device())?.to_dtype(value.dtype())?)
}

/// What a change at one point did.
pub(super) enum Effect {
    /// The output is another one.
    Shown,
    /// The model failed because of it.
    Broke(Error),
    /// The output is the same, bit for bit.
    None,
    /// The value could not be changed.
    NotChanged(Error),
}

impl Effect {
    /// Of a run with the changed value: was its output another one? `changed` says whether the change was made.
    pub fn of(differs: Result<bool>, changed: &Cell<bool>) -> Self {
        match differs {
            Ok(true) => Effect::Shown,
            Ok(false) => Effect::None,
            Err(error) => match error.kind() {
                ErrorKind::Candle(_) | ErrorKind::Model(_) if changed.get() => Effect::Broke(error),
                _ => Effect::NotChanged(error),
            },
        }
    }
}

/// What is to be said of a point after these changes, in order; nothing where adding 1 shows.
pub(super) enum Verdict {
    Shows,
    ShowsNot(Finding),
    Note(Finding),
}

pub(super) fn verdict(point: &str, dtype: DType, effects: &[(Change, Effect)]) -> Verdict {
    let last = effects.last();
    match last {
        Some((Change::AddOne, Effect::Shown)) => Verdict::Shows,
        Some((Change::Shake, Effect::Shown | Effect::Broke(_))) => Verdict::Note(Finding::at(
            point,
            "adding 1 to every number does not show, as before a softmax or below a relu; other changes do",
        )),
        Some((Change::Zero, Effect::Shown)) => Verdict::Note(Finding::at(
            point,
            format!("holds {}, to which nothing was added; that it becomes 0 shows", dtype.as_str()),
        )),
        Some((change, Effect::Broke(error))) => {
            let what = if *change == Change::AddOne { "1 is added" } else { "it becomes 0" };
            Verdict::Note(Finding::at(point, format!("the model fails when {what}: {error}")))
        }
        Some((_, Effect::NotChanged(error))) => {
            Verdict::Note(Finding::at(point, format!("not checked: it could not be changed: {error}")))
        }
        Some((Change::Zero, Effect::None)) | None => Verdict::Note(Finding::at(
            point,
            format!(
                "not checked: it holds {}, to which nothing can be added, and that it becomes 0 does not show",
                dtype.as_str()
            ),
        )),
        // A field of the module: `path:self.past`.
        Some((_, Effect::None)) if point.contains(":self.") => Verdict::Note(Finding::at(
            point,
            "is kept for another run, which is not looked at here: in this one it does not show",
        )),
        Some((_, Effect::None)) => Verdict::ShowsNot(
            Finding::at(point, "the output stays the same when 1 is added, and also with larger changes").remedy(
                "is the value used? With this input? If it is meant to be so, leave the point out: \
                 `CheckOptions::new().except(\"..\")`",
            ),
        ),
    }
}
