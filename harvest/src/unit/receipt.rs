//! A receipt: what a unit came to. That it is there is the commit.

use bytes::Bytes;
use hookpoint::{Error, Result};
use serde::{Deserialize, Serialize};

use super::blocks::ShardEntry;
use crate::storage::Storage;

pub(crate) const RECEIPTS: &str = "units";
pub(super) const LONGEST: u64 = 1 << 24;
const FORMAT: &str = "hookpoint harvest receipt";
const REMEDY: &str = "remove it, and run the unit again";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Receipt {
    format: String,
    /// The hash of the plan.
    pub job: String,
    pub unit: usize,
    pub rows: usize,
    pub sequences: usize,
    /// The hash of all tokens.
    pub tokens: String,
    pub shards: Vec<ShardEntry>,
    /// Where it was computed, how long that took, and when it ended, in milliseconds since 1970: not part of the result.
    pub device: String,
    pub seconds: f64,
    pub finished: u64,
}

pub(crate) fn receipt_key(unit: usize) -> String {
    format!("{RECEIPTS}/{unit:06}.json")
}

impl Receipt {
    pub(super) fn new(job: String, unit: usize) -> Self {
        Self {
            format: FORMAT.to_string(),
            job,
            unit,
            rows: 0,
            sequences: 0,
            tokens: String::new(),
            shards: Vec::new(),
            device: String::new(),
            seconds: 0.,
            finished: 0,
        }
    }

    /// Are the results the same?
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let result =
            |receipt: &Self| Self { device: String::new(), seconds: 0., finished: 0, ..receipt.clone() };
        result(self) == result(other)
    }

    pub(super) fn text(&self) -> Result<Bytes> {
        Ok(serde_json::to_vec_pretty(self).map_err(Error::other)?.into())
    }

    /// The receipt of a unit, if it is there.
    pub(crate) fn load(storage: &Storage, job: &str, unit: usize) -> Result<Option<Self>> {
        let text = storage.get(&receipt_key(unit), LONGEST)?;
        text.map(|text| Self::parse(storage, &text, job, unit)).transpose()
    }

    pub(super) fn parse(storage: &Storage, text: &[u8], job: &str, unit: usize) -> Result<Self> {
        let damaged = |what: String| storage.damaged(&receipt_key(unit), what, REMEDY);
        let receipt: Self = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        if receipt.format != FORMAT || receipt.unit != unit {
            return Err(damaged(format!(
                "it is of the format `{}`, of unit {}",
                receipt.format, receipt.unit
            )));
        }
        if receipt.job != job {
            return Err(damaged(format!("it belongs to the plan {}, and this is {job}", receipt.job)));
        }
        receipt.shards.iter().try_for_each(ShardEntry::check).map_err(damaged)?;
        let rows = receipt.shards.iter().try_fold(0usize, |rows, shard| rows.checked_add(shard.rows));
        if rows != Some(receipt.rows) || blake3::Hash::from_hex(&receipt.tokens).is_err() {
            return Err(damaged("its rows do not add up".to_string()));
        }
        Ok(receipt)
    }

    /// Where its data is.
    pub(crate) fn keys(&self) -> impl Iterator<Item = String> + '_ {
        self.shards.iter().enumerate().map(|(number, shard)| shard.key(self.unit, number))
    }
}
