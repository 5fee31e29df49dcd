//! Trained models, which `scripts/real-models` fetches into `real-models/`. Where they are not, the tests say that
//! they were skipped:
//!
//! ```text
//! scripts/real-models
//! cargo test --workspace --test real -- --nocapture
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

/// SmolLM2-135M-Instruct, from a GGUF file.
mod smollm2;

/// all-MiniLM-L6-v2, from a folder.
mod minilm;

/// A file or folder of a trained model. Where it is not there, says so, and gives nothing.
pub fn real(test: &str, path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../real-models")).join(path);
    if path.exists() {
        return Some(path);
    }
    // Past the test harness, which shows what a test prints only where it fails.
    let said = format!("SKIPPED {test}: {} is not there; `scripts/real-models` fetches it\n", path.display());
    std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes()).unwrap();
    None
}
