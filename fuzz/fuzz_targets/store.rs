//! A manifest that says anything is an error or a store whose shards are checked.
//!
//! `cargo +nightly fuzz run store`

#![no_main]

use candle_core::Device;
use hookpoint_harvest::Store;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("manifest.json"), bytes).expect("a file");
    if let Ok(store) = Store::open(folder.path()) {
        let points: Vec<String> = store.points().map(str::to_string).collect();
        for point in points {
            let _ = store.get(&point, 0..store.rows().min(16), &Device::Cpu);
        }
    }
});
