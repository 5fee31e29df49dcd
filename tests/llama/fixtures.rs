use std::path::PathBuf;

use candle_core::DType;
use hookpoint_models::llama::Llama;
use hookpoint_tests::compare::{device, tensors, Expected};

/// Checkpoints with what has to come out.
pub const CASES: [&str; 10] =
    ["base", "tied", "linear", "llama3", "biases", "qwen2", "mistral", "shards", "bare", "f16"];

pub fn folder(case: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/llama")).join(case)
}

pub fn model(case: &str) -> Llama {
    Llama::from_dir(folder(case), DType::F32, &device()).unwrap()
}

/// What transformers computed.
pub fn expected(case: &str) -> Expected {
    tensors(folder(case).join("expected.safetensors"))
}
