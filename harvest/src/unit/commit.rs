//! The commit: a receipt that can be created once. Whoever comes second, because an engine started a unit twice, a node came
//! back from the dead, or an answer was lost, finds it and looks at it.

use std::collections::HashSet;

use hookpoint::Result;

use super::receipt::{receipt_key, Receipt, LONGEST};
use crate::storage::Storage;

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// This one counts.
    New,
    /// Another one counts, with the same result.
    Same,
    /// Another one counts, with another result, as other hardware has. This one's data is gone.
    Lost,
}

/// Commits a unit whose data is written.
pub(crate) fn commit(storage: &Storage, receipt: &Receipt) -> Result<Committed> {
    let own = receipt.text()?;
    let there = storage.create_or_get(&receipt_key(receipt.unit), &own, LONGEST)?;
    // Also where an earlier attempt of this call succeeded, and its answer was lost.
    if there == own {
        return Ok(Committed::New);
    }
    let winner = Receipt::parse(storage, &there, &receipt.job, receipt.unit)?;
    if winner.is_same(receipt) {
        return Ok(Committed::Same);
    }
    let kept: HashSet<String> = winner.keys().collect();
    for key in receipt.keys().filter(|key| !kept.contains(key)) {
        storage.delete(&key)?;
    }
    Ok(Committed::Lost)
}
