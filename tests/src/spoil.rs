//! Checkpoints that are wrong, and what is said about them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
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

/// What every loader has to complain about, whatever the model: weights that are not there, that claim terabytes, and
/// in which `tensor` has another shape or is missing. `folder` has them in `file`, and has to be a copy.
pub fn spoil_weights(folder: &Path, file: &str, tensor: &str, complaint: impl Fn(&Path) -> String) {
    let path = folder.join(file);
    let whole = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_says(&complaint(folder), &[file]);
    let claims = (1u64 << 42).to_le_bytes();
    fs::write(&path, [&claims[..], &whole[8..]].concat()).unwrap();
    assert_says(&complaint(folder), &[file, "claims a header of 4398046511104 bytes", "damaged"]);
    // All numbers agree with each other, but not with the file.
    let shape = "\"shape\":[1048576,1048576],\"data_offsets\":[0,4398046511104]";
    write_safetensors(&path, &format!(r#"{{"{tensor}":{{"dtype":"F32",{shape}}}}}"#), 100);
    assert_says(&complaint(folder), &[file, "4398046511", "damaged"]);

    let mut tensors = candle_core::safetensors::load_buffer(&whole, &Device::Cpu).unwrap();
    tensors.insert(tensor.to_string(), Tensor::zeros((3, 5), DType::F32, &Device::Cpu).unwrap());
    candle_core::safetensors::save(&tensors, &path).unwrap();
    assert_says(&complaint(folder), &[&format!("`{tensor}` has shape [3, 5]"), "asks for"]);
    tensors.remove(tensor);
    candle_core::safetensors::save(&tensors, &path).unwrap();
    assert_says(&complaint(folder), &[&format!("no tensor `{tensor}`")]);
}
