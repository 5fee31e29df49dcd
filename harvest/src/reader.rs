//! Rows as batches, through a buffer in which they are mixed.

use candle_core::Tensor;
use hookpoint::{Error, Result};

use super::error::HarvestError;
use super::opened::Store;
use super::order::{of_epoch, shuffle, Chunk};
use super::reading::{Position, Reading};
use super::source;

/// The rows of one point, as batches `[n, ..]`. Made by [`Store::read`].
///
/// It is an [`ActivationSource`](super::ActivationSource) as well, so that a sparse autoencoder can be trained on a store.
pub struct Batches(pub(super) Reader);

impl Batches {
    /// Where it is: what was given so far comes before it, all else after it.
    pub fn position(&self) -> Position {
        self.0.position()
    }
}

impl Iterator for Batches {
    type Item = Result<Tensor>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.0.next()?;
        Some(batch.and_then(|mut points| points.pop().ok_or_else(|| Error::msg("no point was asked for"))))
    }
}

/// The rows of several points, as batches `[n, ..]` of each, in the order in which they were asked for. Made by
/// [`Store::read_aligned`].
pub struct Aligned(pub(super) Reader);

impl Aligned {
    /// Where it is: what was given so far comes before it, all else after it.
    pub fn position(&self) -> Position {
        self.0.position()
    }
}

impl Iterator for Aligned {
    type Item = Result<Vec<Tensor>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

pub(super) struct Reader {
    store: Store,
    /// Their numbers, and the bytes of a row of each.
    points: Vec<(usize, usize)>,
    reading: Reading,
    /// How many rows an epoch has.
    rows: usize,
    chunk_rows: usize,
    buffer_rows: usize,
    epoch: u64,
    /// Rows of this epoch that were given.
    row: usize,
    /// The chunks of this epoch in their order, and how many of them were read.
    order: Vec<Chunk>,
    read: usize,
    /// Which filling of the buffer in this epoch it is.
    filling: u64,
    buffer: Buffer,
    failed: bool,
    /// Of the rows and their order, where one number has to tell them from others.
    mark: u64,
}

#[derive(Default)]
struct Buffer {
    /// Of each point.
    data: Vec<Vec<u8>>,
    /// The rows that are in it, in the order in which they are given.
    order: Vec<usize>,
    /// How many of them were given.
    given: usize,
}

impl Reader {
    pub(super) fn new(store: Store, points: Vec<usize>, reading: Reading) -> Result<Self> {
        if reading.batch == 0 {
            return Err(Error::msg("a batch has to have at least one row"));
        }
        let points = points.into_iter().map(|point| Ok((point, store.width(point)?)));
        let points = points.collect::<Result<Vec<(usize, usize)>>>()?;
        let row_bytes = points.iter().map(|(_, width)| width).sum::<usize>().max(1);
        let chunk_rows = (store.chunk_bytes() / row_bytes).max(1);
        let buffer_rows = (reading.buffer_bytes / row_bytes).max(1);
        let buffer = Buffer { data: points.iter().map(|_| Vec::new()).collect(), ..Buffer::default() };
        let order = chunks_of(&store, chunk_rows, reading.part)?;
        let mut reader = Self {
            rows: order.iter().map(|chunk| chunk.rows).sum(),
            order,
            store,
            points,
            chunk_rows,
            buffer_rows,
            epoch: 0,
            row: 0,
            read: 0,
            filling: 0,
            buffer,
            failed: false,
            mark: 0,
            reading,
        };
        reader.mark = source::mark(&reader);
        match reader.reading.from {
            Some(position) => reader.go_to(position)?,
            None => reader.start_epoch(0),
        }
        Ok(reader)
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// How many rows an epoch has.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The numbers of the points.
    pub(super) fn points(&self) -> impl Iterator<Item = usize> + '_ {
        self.points.iter().map(|(point, _)| *point)
    }

    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    /// Did something go wrong? Then it has no place any more, until it is told one.
    pub(super) fn failed(&self) -> bool {
        self.failed
    }

    pub(super) fn position(&self) -> Position {
        Position {
            epoch: self.epoch,
            row: self.row,
            seed: self.reading.seed,
            rows: self.rows,
            chunk: self.chunk_rows,
            buffer: self.buffer_rows,
            part: self.reading.part,
        }
    }

    pub(super) fn go_to(&mut self, position: Position) -> Result<()> {
        let here = Position { epoch: position.epoch, row: position.row, ..self.position() };
        if here != position || position.row > self.rows {
            return Err(Error::msg(format!(
                "{position:?} is a place in another order than this one, {:?}\n  read on with the same store, points, \
                 seed and buffer",
                self.position()
            )));
        }
        self.start_epoch(position.epoch);
        let skipped = self.skip_to(position);
        self.failed = skipped.is_err();
        skipped
    }

    /// From the begin of the epoch.
    fn skip_to(&mut self, position: Position) -> Result<()> {
        // What fills the buffer before the one with the row is not read.
        loop {
            let rows: usize = self.next_chunks().iter().map(|chunk| chunk.rows).sum();
            if rows == 0 || self.row + rows > position.row {
                break;
            }
            self.row += rows;
            self.read += self.next_chunks().len();
            self.filling += 1;
        }
        if position.row > self.row {
            self.fill()?;
            self.buffer.given = position.row - self.row;
            self.row = position.row;
        }
        Ok(())
    }

    fn start_epoch(&mut self, epoch: u64) {
        (self.epoch, self.row, self.read, self.filling) = (epoch, 0, 0, 0);
        self.buffer.order.clear();
        self.buffer.given = 0;
        if let Some(seed) = self.reading.seed {
            // From the same start for every epoch, so that an epoch can be begun without those before it.
            self.order.sort_unstable_by_key(|chunk| (chunk.shard, chunk.start));
            shuffle(&mut self.order, &mut of_epoch(seed, epoch));
        }
    }

    /// The chunks that fill the buffer next.
    fn next_chunks(&self) -> &[Chunk] {
        let rest = self.order.get(self.read..).unwrap_or_default();
        let mut rows = 0;
        let more = |chunk: &&Chunk| {
            let fits = rows < self.buffer_rows;
            rows += chunk.rows;
            fits
        };
        let count = rest.iter().take_while(more).count();
        rest.get(..count).unwrap_or_default()
    }

    /// Fills the buffer, and puts its rows into their order.
    fn fill(&mut self) -> Result<()> {
        let mut next = self.next_chunks().to_vec();
        self.read += next.len();
        // As they are on the disk: each file is opened once.
        next.sort_unstable_by_key(|chunk| (chunk.shard, chunk.start));
        let rows: usize = next.iter().map(|chunk| chunk.rows).sum();
        for (data, (_, width)) in self.buffer.data.iter_mut().zip(&self.points) {
            data.resize(rows * width, 0);
        }
        self.store.fill(&next, &self.points, &mut self.buffer.data)?;
        self.buffer.order = (0..rows).collect();
        self.buffer.given = 0;
        self.filling += 1;
        if let Some(seed) = self.reading.seed {
            shuffle(&mut self.buffer.order, &mut of_epoch(seed, self.epoch).fork(self.filling));
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        self.take(self.reading.batch)
    }

    /// The next rows of an epoch, at most so many.
    pub(super) fn take(&mut self, most: usize) -> Option<Result<Vec<Tensor>>> {
        if self.failed || self.rows == 0 {
            return None;
        }
        if self.row == self.rows {
            self.start_epoch(self.epoch + 1);
        }
        if self.reading.epochs.is_some_and(|epochs| self.epoch >= epochs) {
            return None;
        }
        let batch = self.batch(most);
        self.failed = batch.is_err();
        Some(batch)
    }

    fn batch(&mut self, most: usize) -> Result<Vec<Tensor>> {
        let count = most.min(self.rows - self.row);
        let mut rows: Vec<Vec<u8>> =
            self.points.iter().map(|(_, width)| Vec::with_capacity(count * width)).collect();
        let mut left = count;
        while left > 0 {
            if self.buffer.given == self.buffer.order.len() {
                self.fill()?;
            }
            let given = self.buffer.given;
            let taken = self.buffer.order.get(given..).unwrap_or_default();
            let taken = taken.get(..left.min(taken.len())).unwrap_or_default();
            for ((rows, data), (_, width)) in rows.iter_mut().zip(&self.buffer.data).zip(&self.points) {
                for row in taken {
                    rows.extend_from_slice(data.get(row * width..(row + 1) * width).unwrap_or_default());
                }
            }
            left -= taken.len();
            self.buffer.given += taken.len();
        }
        self.row += count;
        let tensors = rows.iter().zip(&self.points).map(|(bytes, (point, _))| {
            let tensor = self.store.tensor(*point, bytes, count, &self.reading.device)?;
            Ok(tensor.to_dtype(self.reading.dtype.unwrap_or(tensor.dtype()))?)
        });
        tensors.collect()
    }
}

/// The chunks of a part. Every so many-th, so that parts are alike, and the same in all epochs, so that they have as many
/// rows.
fn chunks_of(store: &Store, chunk_rows: usize, (part, parts): (usize, usize)) -> Result<Vec<Chunk>> {
    if part >= parts {
        return Err(HarvestError::NoPart { part, parts }.into());
    }
    let mut chunks = store.chunks(chunk_rows);
    if parts > 1 {
        chunks = chunks.into_iter().skip(part).step_by(parts).collect();
        if chunks.is_empty() {
            return Err(HarvestError::NoPart { part, parts }.into());
        }
    }
    Ok(chunks)
}
