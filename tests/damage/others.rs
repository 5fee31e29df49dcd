use std::fs;
use std::path::Path;

use candle_core::{Device, Tensor};
use hookpoint::prelude::*;
use hookpoint_harvest::{Recorder, Store};
use hookpoint_models::gpt2::Gpt2;
use hookpoint_models::language::Tokenizer;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::in_little_memory;
use crate::mutation::{mutated, mutations, Mutation};

/// Writes other bytes into a file for as long as something is done.
fn with<T>(path: &Path, mutations: &[Mutation], f: impl FnOnce() -> T) -> T {
    let whole = fs::read(path).unwrap();
    fs::write(path, mutated(&whole, mutations)).unwrap();
    let result = in_little_memory(f);
    fs::write(path, whole).unwrap();
    result
}

fn cache() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = Hooked::new(Gpt2::embedded(&Device::Cpu).unwrap());
    let ids = Tensor::new(&[[1u32, 5, 2, 9]], &Device::Cpu).unwrap();
    let points = ["blocks.0.attn:pattern", "blocks.*", "blocks.1.mlp:in"];
    let (_, cache) = model.run_with_cache(points, |m| m.forward(&ids)).unwrap();
    cache.save(folder.path().join("cache.safetensors")).unwrap();
    folder
}

fn store() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = Hooked::new(Gpt2::embedded(&Device::Cpu).unwrap());
    let plan = model.plan().cache("blocks.0.hook_resid_post").unwrap();
    let batches = (0..3u32).map(|n| Tensor::new(&[[n, n + 1, n + 7, 2]], &Device::Cpu).unwrap());
    Recorder::new("embedded")
        .record(folder.path().join("store"), &plan, batches, |m, ids| m.forward(ids))
        .unwrap();
    folder
}

/// A byte-level tokenizer of a few words.
fn tokenizer() -> String {
    let whole = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/gpt2/base/tokenizer.json"))
        .unwrap();
    assert!(whole.len() < 1 << 20);
    whole
}

#[test]
fn what_is_damaged_can_be_read_when_it_is_whole() {
    let (caches, stores) = (cache(), store());
    let cache = ActivationCache::load(caches.path().join("cache.safetensors"), &Device::Cpu).unwrap();
    assert!(cache.keys().count() > 3);
    let store = Store::open(stores.path().join("store")).unwrap();
    assert_eq!(store.rows(), 12);
    assert!(Tokenizer::from_json(&tokenizer()).unwrap().encode("the cat").is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn a_cache_that_was_changed_anywhere(all in prop::collection::vec(mutations(), 40)) {
        let folder = cache();
        let path = folder.path().join("cache.safetensors");
        for mutations in &all {
            // What is read may have other names and numbers, and can be looked at.
            if let Ok(cache) = with(&path, mutations, || ActivationCache::load(&path, &Device::Cpu)) {
                for (name, tensor) in cache.iter() {
                    prop_assert!(cache.get(name).is_some() && tensor.elem_count() < 1 << 20);
                }
            }
        }
    }

    #[test]
    fn a_store_that_was_changed_anywhere(all in prop::collection::vec(mutations(), 30)) {
        let folder = store();
        let folder = folder.path().join("store");
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        for (number, mutations) in all.iter().enumerate() {
            // The manifest every second time.
            let path = match number % 2 {
                0 => folder.join("manifest.json"),
                _ => files[number / 2 % files.len()].clone(),
            };
            with(&path, mutations, || {
                if let Ok(store) = Store::open(&folder) {
                    let points: Vec<String> = store.points().map(str::to_string).collect();
                    for point in points {
                        let _ = store.get(&point, 0..store.rows().min(64), &Device::Cpu);
                    }
                    let _ = store.verify();
                }
            });
        }
    }

    #[test]
    fn a_tokenizer_that_was_changed_anywhere(all in prop::collection::vec(mutations(), 20)) {
        let whole = tokenizer();
        for mutations in &all {
            let bytes = mutated(whole.as_bytes(), mutations);
            let text = String::from_utf8_lossy(&bytes);
            if let Ok(tokenizer) = Tokenizer::from_json(&text) {
                // What is missing from a vocabulary is an error, or another token.
                if let Ok(ids) = tokenizer.encode("the cat sat, 12 ß") {
                    let _ = tokenizer.decode(&ids);
                }
            }
        }
    }
}
