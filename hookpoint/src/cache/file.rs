//! Caches in files.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use candle_core::{Device, Tensor};

use super::{ActivationCache, Call};
use crate::error::{Error, ErrorKind, Result};
use crate::pattern::Pattern;

/// The entry of a file's metadata that keeps the order, which safetensors itself does not.
const ORDER: &str = "hookpoint.order";

/// Stands between the names in it; no name that a user can type has it.
const SEPARATOR: char = '\u{1f}';

pub(super) fn save(cache: &ActivationCache, path: &Path) -> Result<()> {
    let mut tensors: Vec<(String, Tensor)> = Vec::new();
    for (name, tensor) in cache.named_calls() {
        tensors.push((name, tensor.contiguous()?));
    }
    let order: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    let metadata = HashMap::from([(ORDER.to_string(), order.join(&SEPARATOR.to_string()))]);
    let tensors = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    safetensors::serialize_to_file(tensors, Some(metadata), path)
        .map_err(|error| io_error(path, std::io::Error::other(error)))
}

pub(super) fn load(path: &Path, device: &Device) -> Result<ActivationCache> {
    let damaged = |error: Box<dyn std::error::Error + Send + Sync>| {
        io_error(path, std::io::Error::new(std::io::ErrorKind::InvalidData, error))
    };
    let data = std::fs::read(path).map_err(|error| io_error(path, error))?;
    let (_, header) = safetensors::SafeTensors::read_metadata(&data).map_err(|e| damaged(Box::new(e)))?;
    let order = header.metadata().as_ref().and_then(|metadata| metadata.get(ORDER));
    let mut tensors =
        candle_core::safetensors::load_buffer(&data, device).map_err(|error| damaged(Box::new(error)))?;
    let mut names: Vec<String> =
        order.map_or_else(Vec::new, |order| order.split(SEPARATOR).map(str::to_string).collect());
    // A file that somebody else wrote has no order; its names come sorted.
    let listed: HashSet<&String> = names.iter().collect();
    let mut rest: Vec<String> = tensors.keys().filter(|name| !listed.contains(name)).cloned().collect();
    rest.sort();
    names.append(&mut rest);
    let mut cache = ActivationCache::new();
    for name in names {
        let Some(tensor) = tensors.remove(&name) else { continue };
        let (name, call) = match name.parse::<Pattern>() {
            Ok(pattern) => match pattern.call() {
                Some(call) => (pattern.without_call().to_string(), Some(call)),
                None => (name, None),
            },
            Err(_) => (name, None),
        };
        cache.with_entry(name.into(), |entry| {
            entry.by_call |= call.is_some();
            entry.calls.push(Call { number: call.unwrap_or(0), tensor });
        });
    }
    Ok(cache)
}

fn io_error(path: &Path, source: std::io::Error) -> Error {
    ErrorKind::Io { path: path.display().to_string(), source }.into()
}
