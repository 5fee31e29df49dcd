//! A damaged file of a saved cache is an error or a cache that can be looked at.
//!
//! `cargo +nightly fuzz run saved_cache`

#![no_main]

use candle_core::Device;
use hookpoint::ActivationCache;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cache.safetensors");
    std::fs::write(&path, bytes).expect("a file");
    if let Ok(cache) = ActivationCache::load(&path, &Device::Cpu) {
        assert!(cache.keys().all(|name| cache.get(name).is_some()));
    }
});
