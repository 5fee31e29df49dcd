//! How far a harvest is, from what is in the storage, whatever the engines say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use hookpoint::Result;
use serde::Serialize;

use crate::job::Job;
use crate::manifest;
use crate::storage::{Listed, Storage};
use crate::unit::{receipt_key, Receipt, RECEIPTS};
use crate::worker::failures;

/// How many of the last receipts tell how fast it goes.
const RECENT: usize = 256;
/// How many of them are read.
const SAMPLE: usize = 16;

/// How far a harvest is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// How many units the plan has.
    pub units: usize,
    /// How many of them are committed.
    pub done: usize,
    /// How many are not.
    pub missing: usize,
    /// Those among the missing ones that could not be computed.
    pub failed: Vec<FailedUnit>,
    /// Tokens a second of all workers together, over the last units.
    pub tokens_per_second: Option<f64>,
    /// How long it takes until all units are there, if it goes on like that.
    pub seconds_left: Option<f64>,
    /// How long ago the last unit was committed.
    pub seconds_idle: Option<f64>,
    /// Is the store sealed?
    pub sealed: bool,
}

/// A unit that could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedUnit {
    /// Its number.
    pub unit: usize,
    /// How often it was tried.
    pub attempts: usize,
    /// Why the last attempt failed.
    pub error: String,
}

/// The units that are committed, each with the object that says so.
pub(crate) fn committed(storage: &Storage, job: &Job) -> Result<BTreeMap<usize, Listed>> {
    let mut committed = BTreeMap::new();
    for listed in storage.list(RECEIPTS)? {
        let number =
            listed.key.strip_prefix(RECEIPTS).and_then(|name| name.strip_prefix('/')?.strip_suffix(".json"));
        let number: Option<usize> = number.and_then(|number| number.parse().ok());
        if let Some(unit) = number.filter(|unit| *unit < job.units.len() && receipt_key(*unit) == listed.key)
        {
            committed.insert(unit, listed);
        }
    }
    Ok(committed)
}

/// The units that are not committed yet.
pub fn missing(storage: &Storage) -> Result<Vec<usize>> {
    let job = Job::load(storage)?;
    let committed = committed(storage, &job)?;
    Ok((0..job.units.len()).filter(|unit| !committed.contains_key(unit)).collect())
}

/// The failed units among those that are not committed.
pub(crate) fn failed(storage: &Storage, committed: &BTreeMap<usize, Listed>) -> Result<Vec<FailedUnit>> {
    let mut failed: BTreeMap<usize, FailedUnit> = BTreeMap::new();
    for failure in failures(storage)? {
        if !committed.contains_key(&failure.unit) {
            let unit = failure.unit;
            let entry = failed.entry(unit).or_insert(FailedUnit { unit, attempts: 0, error: String::new() });
            entry.attempts += 1;
            entry.error = failure.error;
        }
    }
    Ok(failed.into_values().collect())
}

impl Status {
    /// Looks at a root. Receipts are listed, and a few are read.
    pub fn of(storage: &Storage) -> Result<Self> {
        let job = Job::load(storage)?;
        let committed = committed(storage, &job)?;
        let failed = failed(storage, &committed)?;
        let mut last: Vec<(&usize, &Listed)> = committed.iter().collect();
        last.sort_by_key(|(_, listed)| std::cmp::Reverse(listed.modified));
        last.truncate(RECENT);
        let idle =
            last.first().and_then(|(_, listed)| SystemTime::now().duration_since(listed.modified).ok());
        let rate = match (last.first(), last.last()) {
            (Some((_, newest)), Some((_, oldest))) => {
                let over =
                    newest.modified.duration_since(oldest.modified).unwrap_or(Duration::ZERO).as_secs_f64();
                (over > 0.).then(|| (last.len() - 1) as f64 / over)
            }
            _ => None,
        };
        let (mut rows, mut read) = (0, 0);
        for (unit, _) in last.iter().take(SAMPLE) {
            // One that is damaged is found by `seal`.
            if let Ok(Some(receipt)) = Receipt::load(storage, &job.id()?, **unit) {
                (rows, read) = (rows + receipt.rows, read + 1);
            }
        }
        let missing = job.units.len() - committed.len();
        Ok(Self {
            units: job.units.len(),
            done: committed.len(),
            missing,
            failed,
            tokens_per_second: rate.filter(|_| read > 0).map(|rate| rate * rows as f64 / f64::from(read)),
            seconds_left: rate.filter(|_| missing > 0).map(|rate| missing as f64 / rate),
            seconds_idle: idle.map(|idle| idle.as_secs_f64()),
            sealed: storage.exists(manifest::FILE)?,
        })
    }
}

/// A duration as people say it.
fn span(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120. => format!("{seconds:.0} s"),
        seconds if seconds < 7200. => format!("{:.0} min", seconds / 60.),
        seconds if seconds < 172_800. => format!("{:.1} h", seconds / 3600.),
        seconds => format!("{:.1} days", seconds / 86400.),
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = 100. * self.done as f64 / self.units.max(1) as f64;
        write!(f, "{} of {} units, {share:.1} %", self.done, self.units)?;
        if let Some(rate) = self.tokens_per_second {
            write!(f, ", {rate:.0} tokens a second")?;
        }
        if let Some(left) = self.seconds_left {
            write!(f, ", {} left", span(left))?;
        }
        if let Some(idle) = self.seconds_idle.filter(|idle| self.missing > 0 && *idle > 60.) {
            write!(f, "; the last unit came {} ago", span(idle))?;
        }
        writeln!(f, "{}", if self.sealed { "; sealed" } else { "" })?;
        let errors: BTreeSet<&str> = self.failed.iter().map(|failed| failed.error.as_str()).collect();
        if !self.failed.is_empty() {
            writeln!(f, "{} units failed, with {} different errors:", self.failed.len(), errors.len())?;
        }
        const SHOWN: usize = 10;
        for failed in self.failed.iter().take(SHOWN) {
            writeln!(f, "  unit {} ({} attempts): {}", failed.unit, failed.attempts, failed.error)?;
        }
        if self.failed.len() > SHOWN {
            writeln!(f, "  and {} more; `--json` has all", self.failed.len() - SHOWN)?;
        }
        Ok(())
    }
}
