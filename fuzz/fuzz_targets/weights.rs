//! A damaged configuration or safetensors file is an error or a model.
//!
//! `cargo +nightly fuzz run weights`

#![no_main]

use candle_core::{DType, Device};
use hookpoint_models::gpt2::Gpt2;
use hookpoint_sae::Sae;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8])| {
    let (config, weights) = input;
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in [
        ("config.json", config),
        ("cfg.json", config),
        ("model.safetensors", weights),
        ("sae_weights.safetensors", weights),
    ] {
        std::fs::write(folder.path().join(name), bytes).expect("a file");
    }
    let _ = Gpt2::from_dir(folder.path(), DType::F32, &Device::Cpu);
    let _ = Sae::from_dir(folder.path(), DType::F32, &Device::Cpu);
});
