use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::{DType, Device, Tensor};
use hookpoint_models::gpt2::Gpt2;

pub type Test = anyhow::Result<()>;

/// Checkpoints with what has to come out.
pub const CASES: [&str; 10] =
    ["base", "inner", "unscaled", "by_layer", "upcast", "untied", "shards", "bare", "f16", "bf16"];

pub fn folder(case: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/gpt2")).join(case)
}

pub fn device() -> Device {
    hookpoint::device_from_env().expect("the device of HOOKPOINT_DEVICE")
}

pub fn model(case: &str) -> Gpt2 {
    Gpt2::from_dir(folder(case), DType::F32, &device()).unwrap()
}

/// What transformers computed.
pub fn expected(case: &str) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(folder(case).join("expected.safetensors"), &device()).unwrap()
}

/// The ids of a row of a two-dimensional tensor.
pub fn row(ids: &Tensor, row: usize) -> Vec<u32> {
    ids.get(row).unwrap().to_dtype(DType::U32).unwrap().to_vec1().unwrap()
}

pub fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Equal up to one part in ten thousand.
#[track_caller]
pub fn assert_close(what: &str, found: &Tensor, expected: &Tensor) {
    assert_within(what, found, expected, 1e-4, 2e-5);
}

#[track_caller]
pub fn assert_within(what: &str, found: &Tensor, expected: &Tensor, relative: f32, absolute: f32) {
    assert_eq!(found.dims(), expected.dims(), "{what}");
    for (at, (a, b)) in numbers(found).into_iter().zip(numbers(expected)).enumerate() {
        let close = (a - b).abs() <= absolute + relative * b.abs();
        // Also two infinities of the same sign.
        assert!(close || a == b, "{what}, element {at}: {a} where {b} is expected");
    }
}
