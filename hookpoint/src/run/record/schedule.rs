//! Calls that need not be made, because it is known what they give.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::Tensor;

use crate::fingerprint::Fingerprint;
use crate::lookup::FastMap;

/// The calls of a run that was recorded, in the order in which they began.
pub(crate) struct Calls {
    pub list: Vec<RecordedCall>,
    /// What calls gave, repeated as often as was last asked for.
    repeated: Mutex<Repeated>,
}

/// Values by the number of their call, and how often they are repeated.
type Repeated = (usize, FastMap<usize, Tensor>);

impl Calls {
    pub fn new(list: Vec<RecordedCall>) -> Self {
        Self { list, repeated: Mutex::default() }
    }
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
    pub rows: Rows,
}

/// What becomes of a value when the rows of the input are repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rows {
    /// Nobody has looked.
    Unknown,
    /// Its first dimension is the batch.
    Batch,
    /// It does not depend on the batch.
    Same,
    /// Something else.
    Other,
}

/// Which calls of a run are answered.
pub(crate) struct Schedule {
    calls: Arc<Calls>,
    /// By module and number of the call: the number of the recorded one.
    answers: FastMap<(u32, u32), usize>,
    copies: usize,
    /// Are inputs compared with those that were recorded?
    compares: bool,
}

impl Schedule {
    pub fn new(calls: Arc<Calls>, answers: FastMap<(u32, u32), usize>, copies: usize) -> Self {
        Self { calls, answers, copies, compares: false }
    }

    /// Compares what calls are made with, before they are answered.
    pub fn comparing(self) -> Self {
        Self { compares: true, ..self }
    }

    pub fn compares(&self) -> bool {
        self.compares
    }

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
        let call = self.calls.list.get(at)?;
        let value = call.value.as_ref()?;
        if self.copies == 1 || call.rows == Rows::Same {
            return Some(value.clone());
        }
        let mut kept = self.calls.repeated.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.0 != self.copies {
            *kept = (self.copies, FastMap::default());
        }
        if let Some(repeated) = kept.1.get(&at) {
            return Some(repeated.clone());
        }
        let repeated = repeat_rows(value, self.copies).ok()?;
        kept.1.insert(at, repeated.clone());
        Some(repeated)
    }
}

/// The rows of a tensor, all of them so many times.
pub(crate) fn repeat_rows(tensor: &Tensor, times: usize) -> candle_core::Result<Tensor> {
    match times {
        1 => Ok(tensor.clone()),
        _ => Tensor::cat(&vec![tensor.contiguous()?; times], 0),
    }
}
