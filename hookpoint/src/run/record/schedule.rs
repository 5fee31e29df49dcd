//! Calls that need not be made, because it is known what they give.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::Tensor;

use crate::fingerprint::Fingerprint;
use crate::lookup::FastMap;

/// The calls of a run that was recorded, in the order in which they began.
pub(crate) struct Calls {
    pub list: Vec<RecordedCall>,
    repeats: Mutex<Repeats>,
}

impl Calls {
    pub fn new(list: Vec<RecordedCall>) -> Self {
        Self { list, repeats: Mutex::default() }
    }

    pub fn repeats(&self) -> MutexGuard<'_, Repeats> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of runs whose rows are repeated.
#[derive(Default)]
pub(crate) struct Repeats {
    /// By the number of the call.
    pub rows: Vec<Rows>,
    copies: usize,
    /// What calls gave, repeated as often as was last asked for.
    values: FastMap<usize, Tensor>,
}

/// A call of a module, and what it gave.
pub(crate) struct RecordedCall {
    pub module: u32,
    pub visit: u32,
    /// When it began and ended, on the clock of the points.
    pub time: (u32, u32),
    /// May it be answered?
    pub value: Option<Tensor>,
    /// The modules that are called inside it, and how often.
    pub inside: Vec<(u32, u32)>,
    /// What it was called with.
    pub inputs: Fingerprint,
}

/// What becomes of a value when the rows of the input are repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rows {
    /// Nobody has looked: no run has [noted](crate::Plan::note_rows) it.
    Unknown,
    /// Its first dimension is the batch.
    Batch,
    /// It does not depend on the batch.
    Same,
    /// Something else: such calls are made.
    Other,
}

/// Which calls of a run are answered.
pub(crate) struct Schedule {
    pub calls: Arc<Calls>,
    /// By module and number of the call: the number of the recorded one.
    pub answers: FastMap<(u32, u32), usize>,
    /// How often the rows of the input are repeated.
    pub copies: usize,
    /// Are inputs compared with those that were recorded, before calls are answered?
    pub compares: bool,
}

impl Schedule {
    /// What a call was made with.
    pub fn inputs(&self, call: usize) -> Option<Fingerprint> {
        self.calls.list.get(call).map(|call| call.inputs)
    }

    pub fn answer(&self, module: u32, visit: u32) -> Option<usize> {
        self.answers.get(&(module, visit)).copied()
    }

    /// The modules that a call would have called, and how often.
    pub fn inside(&self, call: usize) -> &[(u32, u32)] {
        self.calls.list.get(call).map_or(&[], |call| &call.inside)
    }

    /// What a call gives, for as many copies of the input as there are.
    pub fn value(&self, at: usize) -> Option<Tensor> {
        let (calls, copies) = (&self.calls, self.copies);
        let value = calls.list.get(at)?.value.as_ref()?;
        if copies == 1 {
            return Some(value.clone());
        }
        let mut repeats = calls.repeats();
        if repeats.rows.get(at) == Some(&Rows::Same) {
            return Some(value.clone());
        }
        if repeats.copies != copies {
            (repeats.copies, repeats.values) = (copies, FastMap::default());
        }
        if let Some(repeated) = repeats.values.get(&at) {
            return Some(repeated.clone());
        }
        let repeated = repeat_rows(value, copies).ok()?;
        repeats.values.insert(at, repeated.clone());
        Some(repeated)
    }
}

/// The rows of a tensor, all of them so many times.
fn repeat_rows(tensor: &Tensor, times: usize) -> candle_core::Result<Tensor> {
    match times {
        1 => Ok(tensor.clone()),
        _ => Tensor::cat(&vec![tensor.contiguous()?; times], 0),
    }
}
