//! Units that could not be computed, as records that `status` shows. Never part of a store.

use std::time::SystemTime;

use hookpoint::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::storage::Storage;

const FOLDER: &str = "failed";
const LONGEST: u64 = 1 << 20;

/// One attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub unit: usize,
    pub error: String,
    /// In milliseconds since 1970.
    pub at: u64,
}

impl Failure {
    pub(super) fn new(unit: usize, error: &str) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            unit,
            error: error.chars().take(4000).collect(),
            at: now.map_or(0, |now| now.as_millis() as u64),
        }
    }

    pub(super) fn save(&self, storage: &Storage) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(Error::other)?.into();
        let mut number = 0;
        loop {
            let key = format!("{FOLDER}/{:06}-{}-{}-{number}.json", self.unit, self.at, std::process::id());
            if storage.create(&key, &text)? == crate::storage::Created::New {
                return Ok(());
            }
            number += 1;
        }
    }
}

/// All attempts that failed, by unit, the last of each at the end. What cannot be read counts without its error.
pub(crate) fn failures(storage: &Storage) -> Result<Vec<Failure>> {
    let listed = storage.list(FOLDER)?;
    let read = |key: &str| -> Option<Failure> {
        let name = key.strip_prefix(FOLDER)?.strip_prefix('/')?;
        let mut numbers = name.split('-').map(str::parse::<u64>);
        let (unit, at) = (numbers.next()?.ok()? as usize, numbers.next()?.ok()?);
        let text = storage.get(key, LONGEST).ok().flatten();
        let known = text.and_then(|text| serde_json::from_slice::<Failure>(&text).ok());
        Some(known.filter(|known| known.unit == unit).unwrap_or(Failure { unit, error: String::new(), at }))
    };
    let mut failures: Vec<Failure> = listed.iter().filter_map(|listed| read(&listed.key)).collect();
    failures.sort_by_key(|failure| (failure.unit, failure.at));
    Ok(failures)
}
