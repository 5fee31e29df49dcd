//! Checkpoints that are wrong, and what is said about them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A copy of a folder, to be spoiled.
pub fn copy(folder: impl AsRef<Path>) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

/// A text with all of these parts.
#[track_caller]
pub fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// Changes one entry of `config.json`.
pub fn set(folder: &Path, name: &str, value: serde_json::Value) {
    let path = folder.join("config.json");
    let mut config: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config[name] = value;
    fs::write(path, config.to_string()).unwrap();
}

/// Writes a safetensors file with this header and so many bytes behind it.
pub fn write_safetensors(path: &Path, header: &str, data: usize) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    fs::write(path, bytes).unwrap();
}
