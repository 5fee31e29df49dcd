//! Rows to train on, and a store as a source of them.
//!
//! A trainer saves one number of its source. The lower bits are the rows that were given since the reading began. The
//! upper bits are a mark of the store and of the order, so that a training does not go on with other rows unnoticed.

use candle_core::Tensor;
use hookpoint::{Error, Result};

use super::reader::{Batches, Reader};
use super::reading::Position;

/// Rows of activations, in an order that can be repeated: a [store](super::Batches), a tensor, a model that runs. A
/// training asks for rows, notes the [position](Self::position) when it stops, and later goes on from there.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::ActivationCache;
/// use hookpoint_harvest::{ActivationSource, Reading, Recorder};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let run = |x: &Tensor| Ok(ActivationCache::from_iter([("x", x.clone())]));
/// # let rows = Tensor::rand(0f32, 1., (200, 6), &Device::Cpu)?;
/// # let store = Recorder::new("none").record_caches(folder.path(), [rows], run)?;
/// // A store of 200 rows `[6]`, which are read again and again, each time in another order.
/// let mut source = store.read("x", &Reading::new(1).endless())?;
/// source.next_rows(150)?;
/// let position = ActivationSource::position(&source);
/// let next = source.next_rows(100)?.unwrap();
/// assert_eq!(next.dims(), [100, 6]);
///
/// let mut later = store.read("x", &Reading::new(1).endless())?;
/// later.seek(position)?;
/// assert_eq!(later.next_rows(100)?.unwrap().to_vec2::<f32>()?, next.to_vec2::<f32>()?);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub trait ActivationSource {
    /// The next rows, `[rows, d_in]` in any float type on any device; nothing where they end.
    fn next_rows(&mut self, rows: usize) -> Result<Option<Tensor>>;

    /// Where it is. From here a source goes on as it would have.
    fn position(&self) -> u64;

    /// Goes to a position that it, or one made like it, had.
    fn seek(&mut self, position: u64) -> Result<()>;
}

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
        let rows = (reader.rows() as u64).max(1);
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
    let Position { epoch: _, row: _, seed, rows, chunk, buffer, part } = reader.position();
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{seed:?} {rows} {chunk} {buffer} {}", first_row(reader)).as_bytes());
    let manifest = reader.store().manifest();
    for point in reader.points() {
        hasher.update(manifest.points.get(point).map_or("", |point| &point.name).as_bytes());
    }
    reader.store().identify(&mut hasher);
    if part != (0, 1) {
        hasher.update(format!("{part:?}").as_bytes());
    }
    let [first, second, ..] = *hasher.finalize().as_bytes();
    u64::from(u16::from_le_bytes([first, second]))
}
