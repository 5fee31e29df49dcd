//! What makes a backward pass right: taps where gradients are wanted, barriers where they cannot pass, right gradients
//! where candle has wrong ones, and the pass itself.
//!
//! A run without a [`Gradient`] among its listeners knows nothing of all this.

mod barriers;
mod candle_faults;
mod finite_differences;
mod nudge;
mod operation;
mod pass;
mod tap;
mod taps;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use candle_core::{Tensor, TensorId};

pub(super) use barriers::{TrackedInputs, Trail};
pub(crate) use nudge::Nudge;
use operation::Filled;
pub use operation::OpSite;
pub(super) use operation::Operation;
pub use pass::BackwardCall;
pub(crate) use pass::{Allows, BackwardPass};
pub(crate) use taps::Taps;
pub(super) use taps::{is_of_call, Tapped, Wanted};

/// What a run notes where there is to be a backward pass: nothing may hinder a gradient then without saying so.
#[derive(Default)]
pub(crate) struct Gradient {
    pub taps: Taps,
    /// How many instrumented methods and operations were begun.
    begun: Cell<usize>,
    /// What was found to be without a gradient.
    barred: RefCell<Vec<TensorId>>,
    /// What operations with a gradient were given besides, and will need for it.
    used: RefCell<Vec<Tensor>>,
    /// What caches of keys and values have given.
    filled: RefCell<Vec<Filled>>,
}

impl Gradient {
    /// In a run that a certificate of gradients needs.
    pub fn nudged(nudge: Option<Rc<Nudge>>) -> Self {
        Self { taps: Taps::nudged(nudge), ..Self::default() }
    }

    /// Notes that instrumented code was begun.
    pub(super) fn begin(&self) {
        self.begun.set(self.begun.get() + 1);
    }
}
