use std::fs;

use candle_core::{DType, Device, Tensor};
use hookpoint_models::llama::{Llama, Tokenizer};
use hookpoint_tests::made_gguf::Made;
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::NamedTempFile;

use crate::in_little_memory;
use crate::mutation::{mutated, mutations};

/// Loads a file in all ways. What can be loaded has to be fit to run.
fn load(bytes: &[u8]) -> bool {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let (path, device) = (file.path(), &Device::Cpu);
    in_little_memory(|| {
        if let Ok(tokenizer) = Tokenizer::from_gguf(path) {
            let _ = tokenizer.encode("abba");
        }
        let both = [
            Llama::from_gguf(path, DType::F32, device),
            Llama::from_gguf_quantized(path, DType::F32, device),
        ];
        for model in both.iter().flatten() {
            let _ = model.forward(&Tensor::new(&[[1u32, 2, 0]], device).unwrap());
        }
        both.iter().all(Result::is_ok)
    })
}

#[test]
fn what_is_damaged_can_be_loaded_when_it_is_whole() {
    assert!(load(&Made::small().bytes()) && load(&Made::smallest().bytes()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn a_file_that_was_changed_anywhere(mutations in mutations()) {
        load(&mutated(&Made::small().bytes(), &mutations));
    }

    #[test]
    fn any_bytes_behind_the_magic(bytes in vec(any::<u8>(), 0..400)) {
        load(&[&b"GGUF"[..], &bytes].concat());
    }

    /// With as many tensors and entries as there can be, so that they are read.
    #[test]
    fn any_bytes_behind_the_counts(tensors in 0..4u64, entries in 0..4u64, bytes in vec(0..12u8, 0..400)) {
        let counts = [tensors.to_le_bytes(), entries.to_le_bytes()].concat();
        load(&[&b"GGUF\x03\0\0\0"[..], &counts, &bytes].concat());
    }

    /// One entry of the metadata, of any type and content.
    #[test]
    fn any_value_of_an_entry(at in any::<prop::sample::Index>(), kind in 0..14u32, value in vec(any::<u8>(), 0..24)) {
        let mut made = Made::small();
        let at = at.index(made.metadata.len());
        made.metadata[at].1 = [&kind.to_le_bytes()[..], &value].concat();
        load(&made.bytes());
    }
}
