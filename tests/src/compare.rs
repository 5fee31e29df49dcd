//! How numbers are compared with those of other programs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};

/// What tests return.
pub type Test = anyhow::Result<()>;

/// Tensors by name: what has to come out.
pub type Expected = HashMap<String, Tensor>;

/// The device of `HOOKPOINT_DEVICE`.
pub fn device() -> Device {
    hookpoint::device_from_env().expect("the device of HOOKPOINT_DEVICE")
}

/// The tensors of a safetensors file.
pub fn tensors(path: impl AsRef<Path>) -> Expected {
    candle_core::safetensors::load(path, &device()).unwrap()
}

/// The ids of a row of a two-dimensional tensor.
pub fn row(ids: &Tensor, row: usize) -> Vec<u32> {
    ids.get(row).unwrap().to_dtype(DType::U32).unwrap().to_vec1().unwrap()
}

/// All numbers, in f32.
pub fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// The bits of all numbers.
pub fn bits(tensor: &Tensor) -> Vec<u32> {
    numbers(tensor).into_iter().map(f32::to_bits).collect()
}

/// Equal up to one part in ten thousand.
#[track_caller]
pub fn assert_close(what: &str, found: &Tensor, expected: &Tensor) {
    assert_within(what, found, expected, 1e-4, 2e-5);
}

/// Equal up to `relative` of what is expected, and `absolute`.
#[track_caller]
pub fn assert_within(what: &str, found: &Tensor, expected: &Tensor, relative: f32, absolute: f32) {
    assert_eq!(found.dims(), expected.dims(), "{what}");
    for (at, (a, b)) in numbers(found).into_iter().zip(numbers(expected)).enumerate() {
        let close = (a - b).abs() <= absolute + relative * b.abs();
        // Also two infinities of the same sign.
        assert!(close || a == b, "{what}, element {at}: {a} where {b} is expected");
    }
}

/// Equal up to one part in ten thousand; numbers next to 0 up to a hundred-thousandth of the largest.
#[track_caller]
pub fn assert_same_gradient(what: &str, found: &Tensor, expected: &Tensor) {
    let largest = numbers(expected).into_iter().fold(0., |largest: f32, number| largest.max(number.abs()));
    assert!(largest > 0., "{what} is 0 everywhere");
    assert_within(what, found, expected, 1e-4, 1e-5 * largest);
}
