//! Numbers that are the same for both twins.

use std::cell::Cell;

use candle_core::{Shape, Tensor};
use candle_nn::Linear;

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(1) };
}

/// Starts the numbers anew.
pub fn restart() {
    STATE.set(1);
}

fn next() -> f32 {
    let state = STATE.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    STATE.set(state);
    ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
}

/// A tensor of numbers between -1 and 1.
pub fn tensor(shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    let numbers: Vec<f32> = (0..shape.elem_count()).map(|_| next()).collect();
    Tensor::from_vec(numbers, shape, &hookpoint::device_from_env().unwrap()).unwrap()
}

/// A linear layer of `from` inputs and `to` outputs.
pub fn linear(from: usize, to: usize) -> Linear {
    Linear::new(tensor((to, from)), Some(tensor(to)))
}

/// A linear layer that keeps the shape of [`input`].
pub fn square() -> Linear {
    linear(4, 4)
}

/// What every case is run on: `[2, 4]`.
pub fn input() -> Tensor {
    tensor((2, 4))
}
