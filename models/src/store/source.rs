//! A store as what a sparse autoencoder is trained on.
//!
//! A trainer saves one number of its source. The lower bits are the rows that were given since the reading began. The
//! upper bits are a mark of the store and of the order, so that a training does not go on with other rows unnoticed.

use candle_core::Tensor;
use hookpoint::{Error, Result};

use super::reader::{Batches, Reader};
use super::reading::Position;
use crate::sae::ActivationSource;

/// Bits for the rows; as many as nobody will read.
const ROW_BITS: u32 = 48;
const ROWS: u64 = (1 << ROW_BITS) - 1;

/// Across epochs, so that all batches but the last are as long as was asked for. [`Reading::batch`] does not matter.
///
/// [`Reading::batch`]: super::Reading::new
impl ActivationSource for Batches {
    fn next_rows(&mut self, rows: usize) -> Result<Option<Tensor>> {
        if self.0.failed() {
            return Err(Error::msg(
                "the store could not be read, and there is nothing behind that\n  begin anew",
            ));
        }
        let (mut parts, mut missing) = (Vec::new(), rows);
        while missing > 0 {
            let Some(part) = self.0.take(missing) else { break };
            for part in part? {
                missing = missing.saturating_sub(part.dim(0)?);
                parts.push(part);
            }
        }
        match parts.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            parts => Ok(Some(Tensor::cat(parts, 0)?)),
        }
    }

    fn position(&self) -> u64 {
        let given = rows_before(&self.0.position()).saturating_sub(first_row(&self.0));
        self.0.mark() << ROW_BITS | given & ROWS
    }

    fn seek(&mut self, position: u64) -> Result<()> {
        let reader = &mut self.0;
        // A training that has not begun does not know any mark.
        if position != 0 && position >> ROW_BITS != reader.mark() {
            return Err(Error::msg(
                "the training was on rows of another store, or in another order\n  go on with the same store, point, \
                 seed and buffer, or begin anew with the autoencoder that is there",
            ));
        }
        let row = first_row(reader).saturating_add(position & ROWS);
        if row == rows_before(&reader.position()) && !reader.failed() {
            return Ok(());
        }
        let rows = (reader.store().rows() as u64).max(1);
        let place = Position { epoch: row / rows, row: (row % rows) as usize, ..reader.position() };
        reader.go_to(place)
    }
}

/// How many rows come before a place, in all epochs.
fn rows_before(position: &Position) -> u64 {
    position.epoch.saturating_mul(position.rows as u64).saturating_add(position.row as u64)
}

/// Where the reading began.
fn first_row(reader: &Reader) -> u64 {
    reader.reading().from.as_ref().map_or(0, rows_before)
}

/// The upper bits of a position: other rows, or another order of them, have others.
pub(super) fn mark(reader: &Reader) -> u64 {
    let Position { epoch: _, row: _, seed, rows, chunk, buffer } = reader.position();
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{seed:?} {rows} {chunk} {buffer} {}", first_row(reader)).as_bytes());
    let manifest = reader.store().manifest();
    for point in reader.points() {
        hasher.update(manifest.points.get(point).map_or("", |point| &point.name).as_bytes());
    }
    for shard in &manifest.shards {
        hasher.update(format!("{} {}", shard.rows, shard.blake3).as_bytes());
    }
    let [first, second, ..] = *hasher.finalize().as_bytes();
    u64::from(u16::from_le_bytes([first, second]))
}
