use std::path::PathBuf;

use candle_core::DType;
use hookpoint_models::bert::{Batch, Bert};
use hookpoint_tests::compare::{device, tensors, Expected};

/// Checkpoints with what has to come out.
pub const CASES: [&str; 4] = ["base", "prefix", "vocab", "f16"];

pub fn folder(case: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/bert")).join(case)
}

pub fn model(case: &str) -> Bert {
    Bert::from_dir(folder(case), DType::F32, &device()).unwrap()
}

/// What transformers computed.
pub fn expected(case: &str) -> Expected {
    tensors(folder(case).join("expected.safetensors"))
}

/// What it was given.
pub fn batch(expected: &Expected) -> Batch {
    let batch = Batch::new(&expected["ids"]).unwrap().with_token_types(&expected["token_types"]).unwrap();
    batch.with_attention_mask(&expected["attention_mask"]).unwrap()
}
