//! Sealing: all receipts become one manifest, which readers open. Whoever seals writes the same bytes.

use hookpoint::{Error, Result};

use super::manifest::{page_file, Page, PageEntry, SealedManifest, UnitEntry, PAGE_UNITS, VERSION};
use crate::error::HarvestError;
use crate::job::Job;
use crate::manifest::{FILE, FORMAT};
use crate::parallel::parallel;
use crate::status::{committed, failed};
use crate::storage::Storage;
use crate::unit::Receipt;

const AT_ONCE: usize = 32;
/// As long as a manifest may be.
const LONGEST: u64 = 1 << 26;

/// What may be sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seal {
    /// Only a store with all units.
    #[default]
    Complete,
    /// What is there. The manifest says what is missing, and it stays missing.
    WhatIsThere,
}

/// Seals a store, so that it can be read. An error where units are missing, unless that is allowed.
pub fn seal(storage: &Storage, which: Seal) -> Result<()> {
    let job = Job::load(storage)?;
    let id = job.id()?;
    let there = committed(storage, &job)?;
    let missing: Vec<usize> = (0..job.units.len()).filter(|unit| !there.contains_key(unit)).collect();
    if which == Seal::Complete && !missing.is_empty() {
        let failed = failed(storage, &there)?;
        let shown =
            missing.iter().take(5).map(|unit| match failed.iter().find(|failed| failed.unit == *unit) {
                Some(failed) => format!("unit {unit}: {}", failed.error),
                None => format!("unit {unit}"),
            });
        return Err(HarvestError::Incomplete {
            root: storage.name().to_string(),
            missing: missing.len(),
            units: job.units.len(),
            failed: failed.len(),
            first: shown.collect(),
        }
        .into());
    }
    let mut manifest = SealedManifest {
        format: FORMAT.to_string(),
        version: VERSION,
        complete: missing.is_empty(),
        job: id.clone(),
        model: job.model.clone(),
        points: job.points.clone(),
        dtype: job.dtype.clone(),
        context: job.context,
        units: job.units.len(),
        missing,
        rows: 0,
        sequences: 0,
        tokens: String::new(),
        pages: Vec::new(),
    };
    let mut hasher = blake3::Hasher::new();
    let units: Vec<usize> = there.into_keys().collect();
    for (number, units) in units.chunks(PAGE_UNITS).enumerate() {
        let receipts = parallel(units.len(), AT_ONCE, |place| {
            let unit = units.get(place).copied().unwrap_or_default();
            let gone = || Error::from(HarvestError::NoUnit { unit, units: job.units.len() });
            Receipt::load(storage, &id, unit)?.ok_or_else(gone)
        })?;
        let mut page = Page::default();
        for receipt in receipts {
            hasher.update(receipt.tokens.as_bytes());
            manifest.rows += receipt.rows;
            manifest.sequences += receipt.sequences;
            page.units.push(UnitEntry { unit: receipt.unit, tokens: receipt.tokens, shards: receipt.shards });
        }
        let text: bytes::Bytes = serde_json::to_vec(&page).map_err(Error::other)?.into();
        let blake3 = blake3::hash(&text).to_hex().to_string();
        let file = page_file(number, &blake3);
        storage.put(&file, &text)?;
        let (rows, shards) = (page.rows().unwrap_or_default(), page.shards());
        manifest.pages.push(PageEntry { file, bytes: text.len() as u64, blake3, rows, shards });
    }
    manifest.tokens = hasher.finalize().to_hex().to_string();
    let text = manifest.text()?;
    match storage.create_or_get(FILE, &text, LONGEST)? == text {
        true => Ok(()),
        false => Err(storage.damaged(
            FILE,
            "the store was sealed before, with other units".to_string(),
            "read it as it is, or remove the manifest and seal again",
        )),
    }
}
