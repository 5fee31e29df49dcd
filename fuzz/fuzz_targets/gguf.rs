//! A damaged GGUF file is an error or a tokenizer and a model.
//!
//! `cargo +nightly fuzz run gguf`

#![no_main]

use candle_core::{DType, Device};
use hookpoint_models::language::Tokenizer;
use hookpoint_models::llama::Llama;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("a file");
    let _ = Tokenizer::from_gguf(&path);
    let _ = Llama::from_gguf(&path, DType::F32, &Device::Cpu);
});
