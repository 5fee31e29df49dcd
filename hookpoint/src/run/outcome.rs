//! How a run ends: by itself, with an error, or stopped on purpose.

use std::cell::{Cell, RefCell};

use crate::error::{Error, ErrorKind};

/// The error that ends a run, which is handed on by the next point that can.
#[derive(Default)]
pub(super) struct Outcome {
    error: RefCell<Option<Error>>,
    ended: Cell<bool>,
}

impl Outcome {
    pub fn fail(&self, error: Error) {
        self.error.borrow_mut().get_or_insert(error);
        self.ended.set(true);
    }

    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// The error that ended the run, if it is over.
    #[inline]
    pub fn ended(&self) -> Option<Error> {
        if !self.ended.get() {
            return None;
        }
        self.error.borrow().clone()
    }

    /// Did the run end because everything wanted was there?
    pub fn is_stopped(&self) -> bool {
        self.error.borrow().as_ref().is_some_and(is_stop)
    }

    /// The error, where the run was not stopped on purpose.
    pub fn into_error(self) -> Option<Error> {
        self.error.into_inner().filter(|error| !is_stop(error))
    }
}

fn is_stop(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Stopped)
}
