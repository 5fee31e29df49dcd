//! Reading a sealed store: the shard of a row is found through the pages, its header is read once, and of the rows only
//! the blocks that hold them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hookpoint::{Error, Result};

use super::manifest::{Page, SealedManifest};
use crate::error::HarvestError;
use crate::manifest::Manifest;
use crate::parallel::parallel;
use crate::storage::Storage;
use crate::unit::{Header, ShardEntry};

const REMEDY: &str = "the store is damaged; harvest the unit again into another root";
/// Headers are a few kilobytes. Above this many, all are forgotten, and read again.
const HEADERS: usize = 1 << 15;
/// How many reads are made at once.
const AT_ONCE: usize = 16;

/// A sealed store.
pub(crate) struct Sealed {
    storage: Storage,
    manifest: SealedManifest,
    /// The hash of the manifest.
    id: String,
    /// Where each page's rows begin.
    starts: Vec<usize>,
    pages: Vec<OnceLock<Arc<Shards>>>,
    headers: Mutex<HashMap<String, Arc<Header>>>,
}

/// The shards of a page, with the row of the store with which each begins.
struct Shards(Vec<(usize, String, ShardEntry)>);

/// Rows of one shard.
struct Piece {
    key: String,
    entry: ShardEntry,
    rows: Range<usize>,
}

impl Sealed {
    pub(crate) fn open(storage: Storage) -> Result<Self> {
        let not_sealed = || HarvestError::NotSealed { root: storage.name().to_string() };
        let (manifest, id) = SealedManifest::load(&storage)?.ok_or_else(not_sealed)?;
        let starts = manifest.pages.iter().scan(0, |row, page| {
            let start = *row;
            *row += page.rows;
            Some(start)
        });
        let starts = starts.collect();
        let pages = manifest.pages.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { storage, manifest, id, starts, pages, headers: Mutex::default() })
    }

    pub(crate) fn about(&self) -> Manifest {
        self.manifest.about()
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Is every read a request over a network?
    pub(crate) fn is_remote(&self) -> bool {
        self.storage.folder().is_none()
    }

    /// The number of the column with the tokens.
    pub(crate) fn tokens_column(&self) -> usize {
        self.manifest.points.len()
    }

    fn page(&self, number: usize) -> Result<Arc<Shards>> {
        let none = || Error::from(HarvestError::NotSealed { root: self.storage.name().to_string() });
        let (slot, entry) = self.pages.get(number).zip(self.manifest.pages.get(number)).ok_or_else(none)?;
        if let Some(page) = slot.get() {
            return Ok(page.clone());
        }
        let page = Page::load(&self.storage, entry)?;
        let mut row = self.starts.get(number).copied().unwrap_or(0);
        let mut shards = Vec::with_capacity(page.shards());
        for unit in page.units {
            for (number, shard) in unit.shards.into_iter().enumerate() {
                let key = shard.key(unit.unit, number);
                shards.push((row, key, shard));
                row += shards.last().map_or(0, |(_, _, shard)| shard.rows);
            }
        }
        Ok(slot.get_or_init(|| Arc::new(Shards(shards))).clone())
    }

    /// The parts of shards that rows of the store are.
    fn pieces(&self, rows: &Range<usize>) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut at = rows.start;
        while at < rows.end {
            let page = self.page(self.starts.partition_point(|start| *start <= at).saturating_sub(1))?;
            let number = page.0.partition_point(|(start, _, _)| *start <= at).saturating_sub(1);
            let outside =
                || self.storage.damaged(crate::manifest::FILE, format!("it has no row {at}"), REMEDY);
            let (start, key, entry) = page.0.get(number).ok_or_else(outside)?;
            let end = rows.end.min(start + entry.rows);
            if end <= at {
                return Err(outside());
            }
            pieces.push(Piece { key: key.clone(), entry: entry.clone(), rows: at - start..end - start });
            at = end;
        }
        Ok(pieces)
    }

    fn header(&self, piece: &Piece) -> Result<Arc<Header>> {
        let known = || self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(header) = known().get(&piece.key) {
            return Ok(header.clone());
        }
        let bytes = self.storage.get_range(&piece.key, 0..piece.entry.header_bytes)?;
        let dtype = self.manifest.about().dtype()?;
        let parsed = Header::parse(&bytes, &piece.entry, &self.manifest.points, dtype);
        let header = Arc::new(parsed.map_err(|what| self.storage.damaged(&piece.key, what, REMEDY))?);
        let mut all = known();
        if all.len() >= HEADERS {
            all.clear();
        }
        Ok(all.entry(piece.key.clone()).or_insert(header).clone())
    }

    /// Reads a column of a piece into `target`, which is as long as its rows are.
    fn read_piece(&self, piece: &Piece, column: usize, target: &mut [u8]) -> Result<()> {
        let damaged = |what: String| self.storage.damaged(&piece.key, what, REMEDY);
        let header = self.header(piece)?;
        let wanted = header.wanted(column, piece.rows.clone()).map_err(damaged)?;
        let bytes = self.storage.get_range(&piece.key, wanted.bytes)?;
        header.verify(column, &wanted.rows, &bytes).map_err(damaged)?;
        let width = header.width(column);
        let skipped = (piece.rows.start - wanted.rows.start) * width;
        let found = bytes.get(skipped..skipped + target.len());
        target.copy_from_slice(found.ok_or_else(|| damaged(format!("it has no rows {:?}", piece.rows)))?);
        Ok(())
    }

    /// Reads runs of rows, one behind the other, of several columns, each into a target of its own. A column comes with the
    /// number of bytes of a row.
    pub(crate) fn read(
        &self,
        runs: &[Range<usize>],
        columns: &[(usize, usize)],
        targets: &mut [Vec<u8>],
    ) -> Result<()> {
        let mut pieces = Vec::new();
        for run in runs {
            pieces.extend(self.pieces(run)?);
        }
        let mut jobs: Vec<Mutex<(&Piece, usize, &mut [u8])>> = Vec::new();
        for ((column, width), target) in columns.iter().zip(targets) {
            let mut rest = target.as_mut_slice();
            for piece in &pieces {
                let length = piece.rows.len() * width;
                let short =
                    || self.storage.damaged(&piece.key, format!("its rows are not of {width} bytes"), REMEDY);
                let (own, others) = rest.split_at_mut_checked(length).ok_or_else(short)?;
                rest = others;
                jobs.push(Mutex::new((piece, *column, own)));
            }
        }
        // A disk is not made faster by more threads than there are processors to compare hashes.
        let threads = match self.is_remote() {
            true => AT_ONCE,
            false => std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(AT_ONCE),
        };
        parallel(jobs.len(), threads, |number| {
            let Some(job) = jobs.get(number) else { return Ok(()) };
            let mut job = job.lock().unwrap_or_else(PoisonError::into_inner);
            let (piece, column, target) = &mut *job;
            self.read_piece(piece, *column, target)
        })?;
        Ok(())
    }

    /// Compares all of it with its hashes.
    pub(crate) fn verify(&self, widths: &[(usize, usize)]) -> Result<()> {
        const ROWS: usize = 4096;
        for start in (0..self.manifest.rows).step_by(ROWS) {
            let rows = start..self.manifest.rows.min(start + ROWS);
            let mut targets: Vec<Vec<u8>> =
                widths.iter().map(|(_, width)| vec![0; rows.len() * width]).collect();
            self.read(&[rows], widths, &mut targets)?;
        }
        Ok(())
    }
}
