//! Which files a model is made of, by their hashes: a worker on another machine has to have the same.

use std::path::{Path, PathBuf};

use hookpoint::Result;
use serde::{Deserialize, Serialize};

use super::{Job, EMBEDDED};
use crate::durable::{hash, io};
use crate::error::HarvestError;

/// What belongs to a model.
const ENDINGS: [&str; 4] = ["safetensors", "gguf", "json", "txt"];

/// A file, and the hash of what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FileHash {
    /// Its path; for the files of a model, its name in the folder of the model.
    pub path: String,
    /// As `b3sum` prints it.
    pub blake3: String,
}

/// The files of a model that is a path; none of one that is a name.
pub(super) fn files(model: &str) -> Result<Vec<FileHash>> {
    let path = Path::new(model);
    let mut paths: Vec<PathBuf> = Vec::new();
    if path.is_file() {
        paths.push(path.to_path_buf());
    } else if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(|source| io(path, source))? {
            let path = entry.map_err(|source| io(path, source))?.path();
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if path.is_file() && ENDINGS.contains(&ending) {
                paths.push(path);
            }
        }
    }
    let mut files = Vec::new();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
        files.push(FileHash { path: name, blake3: hash(&path)? });
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// The tokenizer that is at a path.
pub(super) fn tokenizer(path: &str) -> Result<FileHash> {
    // That of the embedded model is part of the program, whose version is compared.
    let blake3 = if path == EMBEDDED { String::new() } else { hash(Path::new(path))? };
    Ok(FileHash { path: path.to_string(), blake3 })
}

/// The tokenizer that comes with a model.
pub(super) fn tokenizer_of(model: &str) -> Option<String> {
    let path = Path::new(model);
    if model == EMBEDDED || path.is_file() && model.ends_with(".gguf") {
        return Some(model.to_string());
    }
    let file = path.join("tokenizer.json");
    file.is_file().then(|| file.display().to_string())
}

/// This program.
pub(super) fn program() -> String {
    format!("{} {}", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
}

impl Job {
    /// An error if this machine has another program, another model or another tokenizer than the plan was made with.
    pub(crate) fn check_here(&self) -> Result<()> {
        let differs = |what: &str, planned: &str, found: &str| {
            let (planned, found) = (planned.to_string(), found.to_string());
            Err(HarvestError::Mismatch { what: what.to_string(), planned, found }.into())
        };
        if self.program != program() {
            return differs("the program", &self.program, &program());
        }
        let found = files(&self.model)?;
        for planned in &self.files {
            let here = found.iter().find(|here| here.path == planned.path);
            let here = here.map_or("no such file", |here| &here.blake3);
            if planned.blake3 != here {
                return differs(&format!("the model's file `{}`", planned.path), &planned.blake3, here);
            }
        }
        if let Some(more) = found.iter().find(|here| !self.files.iter().any(|file| file.path == here.path)) {
            return differs(&format!("the model's file `{}`", more.path), "no such file", &more.blake3);
        }
        if let Some(planned) = &self.tokenizer {
            let here = tokenizer(&planned.path)?;
            if here.blake3 != planned.blake3 {
                return differs(&format!("the tokenizer `{}`", planned.path), &planned.blake3, &here.blake3);
            }
        }
        Ok(())
    }
}
