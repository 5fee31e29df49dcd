//! Removing what no manifest speaks of: data of attempts that did not count, and files that killed workers left half
//! written.

use std::collections::HashSet;

use hookpoint::Result;

use super::manifest::{Page, SealedManifest};
use crate::durable::io;
use crate::error::HarvestError;
use crate::storage::Storage;

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// How many files.
    pub files: usize,
    /// How many bytes they had.
    pub bytes: u64,
}

/// Removes all data of a sealed store that does not belong to it. Refused before it is sealed: data is written before the
/// receipt that names it. No worker may be running.
pub fn collect_garbage(storage: &Storage) -> Result<Collected> {
    let not_sealed = || HarvestError::NotSealed { root: storage.name().to_string() };
    let (manifest, _) = SealedManifest::load(storage)?.ok_or_else(not_sealed)?;
    let mut kept: HashSet<String> = manifest.pages.iter().map(|page| page.file.clone()).collect();
    for page in &manifest.pages {
        for unit in Page::load(storage, page)?.units {
            kept.extend(unit.shards.iter().enumerate().map(|(number, shard)| shard.key(unit.unit, number)));
        }
    }
    let mut collected = Collected::default();
    for folder in ["data", "pages"] {
        for listed in storage.list(folder)?.into_iter().filter(|listed| !kept.contains(&listed.key)) {
            storage.delete(&listed.key)?;
            collected.files += 1;
            collected.bytes += listed.bytes;
        }
    }
    // Half-written files of a disk are in no listing.
    for folder in ["data", "pages", "units", "failed", ""] {
        let Some(root) = storage.folder() else { break };
        let folder = root.join(folder);
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let staged = name.rsplit_once('#').is_some_and(|(_, number)| number.parse::<u64>().is_ok());
            if staged && path.is_file() {
                collected.bytes += path.metadata().map_or(0, |about| about.len());
                std::fs::remove_file(&path).map_err(|source| io(&path, source))?;
                collected.files += 1;
            }
        }
    }
    Ok(collected)
}
