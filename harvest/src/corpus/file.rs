//! A file of a corpus, wherever it is.

use std::path::Path;

use bytes::Bytes;
use hookpoint::{Error, Result};

use crate::error::HarvestError;
use crate::job::CorpusFile;
use crate::storage::{is_url, Storage};

/// A file that can be read in parts.
pub(crate) struct Source {
    storage: Storage,
    key: String,
}

impl Source {
    pub(crate) fn of(file: &CorpusFile) -> Result<Self> {
        let (folder, key) = parts(&file.path);
        Ok(Self { storage: Storage::find(folder)?, key: key.to_string() })
    }

    pub(crate) fn read(&self, range: std::ops::Range<u64>) -> Result<Bytes> {
        self.storage.get_range(&self.key, range)
    }
}

/// The folder of a file, and its name there.
fn parts(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", key)) => ("/", key),
        Some((folder, key)) => (folder, key),
        None => (".", path),
    }
}

/// The files that a path, a URL, or one of these with `*` and `?` in it, stands for; in the order of their names.
pub(crate) fn find(corpus: &str) -> Result<Vec<CorpusFile>> {
    let cannot = |what: String, remedy: &str| {
        Error::from(HarvestError::CannotPlan {
            what: format!("{corpus}: {what}"),
            remedy: remedy.to_string(),
        })
    };
    let mut files = Vec::new();
    if is_url(corpus) {
        let fixed = corpus.find(['*', '?', '[']).map_or(corpus, |at| corpus.get(..at).unwrap_or_default());
        let (folder, _) = parts(fixed);
        let pattern =
            glob::Pattern::new(corpus).map_err(|error| cannot(error.to_string(), "mend the pattern"))?;
        for listed in Storage::find(folder)?.list("")? {
            let path = format!("{folder}/{}", listed.key);
            if pattern.matches(&path) {
                files.push(CorpusFile { path, bytes: listed.bytes });
            }
        }
    } else {
        let found = glob::glob(corpus).map_err(|error| cannot(error.to_string(), "mend the pattern"))?;
        for path in found {
            let path = path.map_err(|error| cannot(error.to_string(), "make it readable"))?;
            files.extend(local(&path)?);
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    match files.is_empty() {
        true => {
            Err(cannot("there are no such files".to_string(), "give a path, a URL, or a pattern with `*`"))
        }
        false => Ok(files),
    }
}

/// By the whole path, since workers may be started elsewhere.
fn local(path: &Path) -> Result<Option<CorpusFile>> {
    let io = |source| crate::durable::io(path, source);
    let whole = path.canonicalize().map_err(io)?;
    let about = whole.metadata().map_err(io)?;
    Ok(about.is_file().then(|| CorpusFile { path: whole.display().to_string(), bytes: about.len() }))
}
