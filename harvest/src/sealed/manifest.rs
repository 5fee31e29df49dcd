//! What a sealed store says about itself: `manifest.json`, and pages with a few thousand units each.

use std::collections::HashSet;

use candle_core::DType;
use hookpoint::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::job::TOKENS;
use crate::manifest::{Manifest, ModelInfo, PointInfo, FILE, FORMAT};
use crate::rows::Rows;
use crate::storage::Storage;
use crate::unit::ShardEntry;

pub(crate) const VERSION: u32 = 2;
/// How many units a page has.
pub(super) const PAGE_UNITS: usize = 4096;
/// Of pages: it is a list of them.
const LONGEST: u64 = 1 << 26;
/// A shard is spoken of in about 160 bytes.
const LONGEST_PAGE: u64 = 1 << 28;
const REMEDY: &str = "the store is damaged; remove the manifest, and seal it again";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SealedManifest {
    pub format: String,
    pub version: u32,
    /// Are all units there?
    pub complete: bool,
    /// The hash of the plan.
    pub job: String,
    pub model: String,
    pub points: Vec<PointInfo>,
    pub dtype: String,
    pub context: usize,
    pub units: usize,
    /// The numbers of those that are not there.
    pub missing: Vec<usize>,
    pub rows: usize,
    pub sequences: usize,
    /// The hash of the hashes of all units' tokens.
    pub tokens: String,
    pub pages: Vec<PageEntry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageEntry {
    pub file: String,
    pub bytes: u64,
    pub blake3: String,
    /// Of all its units.
    pub rows: usize,
    pub shards: usize,
}

/// Some units in their order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    pub units: Vec<UnitEntry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnitEntry {
    pub unit: usize,
    /// The hash of its tokens.
    pub tokens: String,
    pub shards: Vec<ShardEntry>,
}

pub(super) fn page_file(number: usize, blake3: &str) -> String {
    let begin: String = blake3.chars().take(16).collect();
    format!("pages/{number:04}-{begin}.json")
}

impl Page {
    pub(super) fn rows(&self) -> Option<usize> {
        let shards = self.units.iter().flat_map(|unit| &unit.shards);
        shards.map(|shard| shard.rows).try_fold(0usize, usize::checked_add)
    }

    pub(super) fn shards(&self) -> usize {
        self.units.iter().map(|unit| unit.shards.len()).sum()
    }

    pub(super) fn load(storage: &Storage, entry: &PageEntry) -> Result<Self> {
        let damaged = |what: String| storage.damaged(&entry.file, what, REMEDY);
        let text =
            storage.get(&entry.file, LONGEST_PAGE)?.ok_or_else(|| damaged("it is not there".to_string()))?;
        let found = blake3::hash(&text).to_hex().to_string();
        if found != entry.blake3 {
            return Err(damaged(format!("its hash is {found}, and the manifest says {}", entry.blake3)));
        }
        let page: Self = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        for shard in page.units.iter().flat_map(|unit| &unit.shards) {
            shard.check().map_err(damaged)?;
        }
        match page.rows() == Some(entry.rows) && page.shards() == entry.shards {
            true => Ok(page),
            false => Err(damaged("its rows do not add up to those of the manifest".to_string())),
        }
    }
}

impl SealedManifest {
    /// The manifest of a root, if it is of this version.
    pub(super) fn load(storage: &Storage) -> Result<Option<(Self, String)>> {
        let Some(text) = storage.get(FILE, LONGEST)? else { return Ok(None) };
        let damaged = |what: String| storage.damaged(FILE, what, REMEDY);
        let unreadable =
            |error| damaged(format!("it says that it is of version {VERSION}, which it is not: {error}"));
        let manifest: Self = serde_json::from_slice(&text).map_err(unreadable)?;
        manifest.check().map_err(damaged)?;
        Ok(Some((manifest, blake3::hash(&text).to_hex().to_string())))
    }

    /// Whether it agrees with itself.
    fn check(&self) -> std::result::Result<(), String> {
        if self.format != FORMAT || self.version != VERSION {
            return Err(format!("it is of the format `{}`, version {}", self.format, self.version));
        }
        let about = self.about();
        about.dtype().map_err(|error| error.to_string())?;
        let mut names = HashSet::from([TOKENS]);
        for point in &self.points {
            // So that no size that is computed later overflows.
            let bytes = point.numbers().and_then(|count| count.checked_mul(8)?.checked_mul(self.rows.max(1)));
            if !names.insert(&point.name) || bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
                return Err(format!(
                    "it speaks of `{}` with {} rows of shape {:?}",
                    point.name, self.rows, point.shape
                ));
            }
        }
        let rows = self.pages.iter().try_fold(0usize, |rows, page| rows.checked_add(page.rows));
        if self.points.is_empty() || rows != Some(self.rows) {
            return Err("its rows do not add up".to_string());
        }
        for (number, page) in self.pages.iter().enumerate() {
            if page.file != page_file(number, &page.blake3) || page.blake3.len() != 64 {
                return Err(format!("page {number} has the name `{}`", page.file));
            }
        }
        Ok(())
    }

    /// The same in the words of [`Manifest`].
    pub(super) fn about(&self) -> Manifest {
        let model = ModelInfo { name: self.model.clone(), values: self.job.clone() };
        let mut manifest = Manifest::new(model, Rows::Positions, DType::F32, self.points.clone());
        manifest.version = VERSION;
        manifest.dtype.clone_from(&self.dtype);
        (manifest.rows, manifest.batches) = (self.rows, self.sequences);
        manifest.prompts.clone_from(&self.tokens);
        manifest.complete = self.complete;
        manifest
    }

    pub(super) fn text(&self) -> Result<bytes::Bytes> {
        Ok(serde_json::to_vec_pretty(self).map_err(Error::other)?.into())
    }
}
