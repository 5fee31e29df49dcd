use std::path::PathBuf;

use candle_core::DType;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_tests::compare::{tensors, Expected};

pub use hookpoint_tests::compare::{assert_close, assert_within, device, numbers, row, Test};

/// Checkpoints with what has to come out.
pub const CASES: [&str; 10] =
    ["base", "inner", "unscaled", "by_layer", "upcast", "untied", "shards", "bare", "f16", "bf16"];

pub fn folder(case: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/gpt2")).join(case)
}

pub fn model(case: &str) -> Gpt2 {
    Gpt2::from_dir(folder(case), DType::F32, &device()).unwrap()
}

/// What transformers computed.
pub fn expected(case: &str) -> Expected {
    tensors(folder(case).join("expected.safetensors"))
}
