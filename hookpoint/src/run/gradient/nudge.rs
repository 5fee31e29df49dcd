//! What a certificate of gradients needs of runs: where a tap would stand, the value is noted in one run and moved in
//! others, always in the same directions, and what the gradient says of the move is added up.

use std::cell::{Cell, RefCell};

use candle_core::{DType, Tensor};

use crate::error::Result;
use crate::point::PointKey;
use crate::run::replacement::laid_out;

/// The points whose gradients are wanted, and in which way they are moved.
#[derive(Default)]
pub(crate) struct Nudge {
    seen: RefCell<Vec<Seen>>,
    notes: Cell<bool>,
    seed: Cell<u64>,
    /// How far values are moved in this run, in units of their size.
    by: Cell<f64>,
    /// How far they are moved in every run, in a direction of its own: aside of a place where the loss has a kink.
    aside: Cell<f64>,
    /// What the gradients say of the move.
    said: Cell<f64>,
}

/// A point in one call of it.
pub(crate) struct Seen {
    at: (PointKey, usize),
    pub name: String,
    pub dtype: DType,
    /// How large values are there.
    size: f64,
    grad: Option<Tensor>,
    /// By how much it takes part in moves.
    pub weight: f64,
    /// How long the gradient is, in units of the values' size.
    pub length: f64,
}

impl Nudge {
    /// The next run is one with a backward pass: what comes is noted.
    pub fn note(&self) {
        self.seen.borrow_mut().clear();
        self.notes.set(true);
        self.by.set(0.);
    }

    /// The next run is one without: values are moved by this much in a direction that `seed` says.
    pub fn move_by(&self, by: f64, seed: u64) {
        self.notes.set(false);
        self.by.set(by);
        self.seed.set(seed);
        self.said.set(0.);
    }

    /// All runs from now on are as if the values were a little off.
    pub fn step_aside(&self, by: f64) {
        self.aside.set(by);
    }

    pub fn said(&self) -> f64 {
        self.said.get()
    }

    /// What was noted, in the order of the forward pass.
    pub fn seen(&self) -> std::cell::RefMut<'_, Vec<Seen>> {
        self.seen.borrow_mut()
    }

    pub(super) fn moves(&self) -> bool {
        !self.notes.get()
    }

    /// A value at which there is to be a tap: what the model goes on with.
    pub(super) fn met(&self, at: (PointKey, usize), name: &str, value: &Tensor) -> Result<Tensor> {
        let aside = self.aside.get();
        if self.notes.get() {
            let size = median_size(value)?;
            let number = self.seen.borrow().len();
            let (dtype, name) = (value.dtype(), format!("{name}#{}", at.1));
            let seen = Seen { at, name, dtype, size, grad: None, weight: 1., length: 0. };
            self.seen.borrow_mut().push(seen);
            return shifted(value, aside * size, (!0, number));
        }
        let seen = self.seen.borrow();
        let Some((number, seen)) = seen.iter().enumerate().find(|(_, seen)| seen.at == at) else {
            return Ok(value.clone());
        };
        let value = shifted(value, aside * seen.size, (!0, number))?;
        let moved = shifted(&value, self.by.get() * seen.weight * seen.size, (self.seed.get(), number))?;
        if let Some(grad) = seen.grad.as_ref().filter(|_| moved.id() != value.id()) {
            // After rounding: what the dtype leaves of a small move.
            let way = (moved.to_dtype(DType::F64)? - value.to_dtype(DType::F64)?)?;
            // What is infinite, as in a mask, does not move.
            let way = way.eq(&way)?.where_cond(&way, &way.zeros_like()?)?;
            let said = grad.to_dtype(DType::F64)?.mul(&way)?.sum_all()?.to_scalar::<f64>()?;
            self.said.set(self.said.get() + said);
        }
        Ok(moved)
    }

    /// The gradient of a value has come.
    pub(super) fn arrived(&self, at: (PointKey, usize), grad: &Tensor) -> Result<()> {
        if let Some(seen) = self.seen.borrow_mut().iter_mut().find(|seen| seen.at == at) {
            let square = grad.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar::<f64>()?;
            seen.length = square.sqrt() * seen.size;
            seen.grad = Some(grad.clone());
        }
        Ok(())
    }
}

/// The size that values have: their median, since a mask has numbers that are larger than all others, and a relu leaves
/// zeros.
fn median_size(value: &Tensor) -> Result<f64> {
    let numbers = value.detach().to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
    let mut sizes: Vec<f64> = numbers.iter().map(|number| number.abs()).filter(|size| *size > 0.).collect();
    if sizes.is_empty() {
        return Ok(1.);
    }
    let middle = sizes.len() / 2;
    Ok(sizes.select_nth_unstable_by(middle, f64::total_cmp).1.clamp(1e-3, 10.))
}

/// The value, moved in every place by this much, one way or the other.
fn shifted(value: &Tensor, by: f64, (seed, number): (u64, usize)) -> Result<Tensor> {
    if by == 0. {
        return Ok(value.clone());
    }
    let mut state =
        (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64 + 1)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut sign = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (state >> 40) & 1 == 0 {
            by
        } else {
            -by
        }
    };
    let signs: Vec<f64> = (0..value.elem_count()).map(|_| sign()).collect();
    let way = Tensor::from_vec(signs, value.shape(), value.device())?.to_dtype(value.dtype())?;
    laid_out((value.detach() + way)?, value.stride())
}
