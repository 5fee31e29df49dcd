//! A store that is there: what is in it, and its rows.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use hookpoint::{Error, ErrorKind, Pattern, Result};

use super::error::HarvestError;
use super::job;
use super::manifest::{Manifest, ShardInfo};
use super::order::{chunks, Chunk};
use super::reader::{Aligned, Batches, Reader};
use super::reading::Reading;
use super::rows::{for_dtype, tensor, Batch};
use super::sealed::Sealed;
use super::shard::Shard;
use super::storage::{is_url, Storage};

/// Activations in a folder, as a [`Recorder`](super::Recorder) wrote them. It may still be at it: a store has the
/// rows that were there when it was opened. The [module](super) has an example.
#[derive(Clone)]
pub struct Store {
    folder: PathBuf,
    manifest: Arc<Manifest>,
    /// The shards whose content was compared with the manifest.
    verified: Arc<[AtomicBool]>,
    /// Of format 2, where this is not a folder that a recorder wrote.
    sealed: Option<Arc<Sealed>>,
}

impl Store {
    /// Opens a store: a folder that a recorder wrote, or the root of a sealed harvest, which may be a URL such as
    /// `s3://bucket/run`.
    ///
    /// Every file of a recorder is compared with what the manifest says about its size, points, shapes and dtype. Of a
    /// harvest only the manifest is read now; what else it has is checked when it is read.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_path_buf();
        let root = folder.to_str().unwrap_or_default();
        if is_url(root) || Manifest::version_in(&folder) == Some(2) || folder.join(job::FILE).is_file() {
            return Self::open_in(&Storage::find(root)?);
        }
        let manifest = Arc::new(Manifest::load(&folder)?);
        let verified = manifest.shards.iter().map(|_| AtomicBool::new(false)).collect();
        let store = Self { folder, manifest, verified, sealed: None };
        for info in &store.manifest.shards {
            store.open_shard(info)?;
        }
        Ok(store)
    }

    /// Opens a sealed harvest in any storage.
    pub fn open_in(storage: &Storage) -> Result<Self> {
        let sealed = Sealed::open(storage.clone())?;
        let manifest = Arc::new(sealed.about());
        let folder = PathBuf::from(storage.name());
        Ok(Self { folder, manifest, verified: Arc::new([]), sealed: Some(Arc::new(sealed)) })
    }

    /// What it says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Is it a harvest, rather than what a recorder wrote?
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// How many rows there are of each point.
    pub fn rows(&self) -> usize {
        self.manifest.rows
    }

    /// The names of the points.
    pub fn points(&self) -> impl Iterator<Item = &str> {
        self.manifest.points.iter().map(|point| point.name.as_str())
    }

    /// The rows of one point, as batches `[n, ..]` in the order that `reading` says. Every shard is compared with its
    /// hash when something of it is first read.
    pub fn read(&self, point: &str, reading: &Reading) -> Result<Batches> {
        Ok(Batches(Reader::new(self.clone(), vec![self.number(point)?], reading.clone())?))
    }

    /// The rows of several points, which belong together: what goes into an mlp and what comes out, for example.
    pub fn read_aligned<P: AsRef<str>>(
        &self,
        points: impl IntoIterator<Item = P>,
        reading: &Reading,
    ) -> Result<Aligned> {
        let points =
            points.into_iter().map(|point| self.number(point.as_ref())).collect::<Result<Vec<_>>>()?;
        Ok(Aligned(Reader::new(self.clone(), points, reading.clone())?))
    }

    /// Rows in the order in which they were recorded.
    pub fn get(&self, point: &str, rows: Range<usize>, device: &Device) -> Result<Tensor> {
        let point = self.number(point)?;
        if rows.start > rows.end || rows.end > self.rows() {
            return Err(Error::msg(format!(
                "{}: there are no rows {rows:?}: it has {}",
                self.folder.display(),
                self.rows()
            )));
        }
        let width = self.width(point)?;
        let mut bytes = vec![0; rows.len() * width];
        if let Some(sealed) = &self.sealed {
            let targets = &mut [bytes];
            sealed.read(std::slice::from_ref(&rows), &[(point, width)], targets)?;
            let [bytes] = targets;
            return self.tensor(point, bytes, rows.len(), device);
        }
        let mut first = 0;
        for (number, info) in self.manifest.shards.iter().enumerate() {
            let (begin, end) = (rows.start.max(first), rows.end.min(first + info.rows));
            if begin < end {
                self.verify_once(number)?;
                let target = bytes.get_mut((begin - rows.start) * width..(end - rows.start) * width);
                let shard = &mut self.open_shard(info)?;
                let path = self.folder.join(&info.file);
                shard.read(&path, point, begin - first..end - first, target.unwrap_or_default())?;
            }
            first += info.rows;
        }
        self.tensor(point, &bytes, rows.len(), device)
    }

    /// The tokens at whose positions rows were taken, in the order in which they were recorded. Only a harvest has them.
    pub fn tokens(&self, rows: Range<usize>) -> Result<Vec<u32>> {
        let root = || self.folder.display().to_string();
        let sealed = self.sealed.as_ref().ok_or_else(|| HarvestError::NoTokens { root: root() })?;
        if rows.start > rows.end || rows.end > self.rows() {
            return Err(HarvestError::NoRows {
                root: root(),
                start: rows.start,
                end: rows.end,
                rows: self.rows(),
            }
            .into());
        }
        let mut targets = [vec![0; rows.len() * 4]];
        sealed.read(&[rows], &[(sealed.tokens_column(), 4)], &mut targets)?;
        let [bytes] = targets;
        Ok(bytes.chunks_exact(4).filter_map(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes).collect())
    }

    /// Compares the content of all files with the manifest.
    pub fn verify(&self) -> Result<()> {
        if let Some(sealed) = &self.sealed {
            let mut columns = vec![(sealed.tokens_column(), 4)];
            for point in 0..self.manifest.points.len() {
                columns.push((point, self.width(point)?));
            }
            return sealed.verify(&columns);
        }
        self.manifest.shards.iter().try_for_each(|info| Shard::verify(&self.folder.join(&info.file), info))
    }

    /// The rows as runs of so many, about.
    pub(super) fn chunks(&self, rows: usize) -> Vec<Chunk> {
        match &self.sealed {
            // A run may go on in the next shard here.
            Some(_) => chunks(&[self.rows()], rows),
            None => chunks(&self.manifest.shards.iter().map(|shard| shard.rows).collect::<Vec<_>>(), rows),
        }
    }

    /// How many bytes a run of rows should have. A request over a network takes as long as reading some megabytes.
    pub(super) fn chunk_bytes(&self) -> usize {
        match &self.sealed {
            Some(sealed) if sealed.is_remote() => 8 << 20,
            Some(_) => 1 << 20,
            None => 128 << 10,
        }
    }

    /// Reads runs of rows of several points, each with the bytes of a row, one behind the other into a target for each
    /// point. The runs are in the order of the store.
    pub(super) fn fill(
        &self,
        runs: &[Chunk],
        points: &[(usize, usize)],
        targets: &mut [Vec<u8>],
    ) -> Result<()> {
        if let Some(sealed) = &self.sealed {
            let runs: Vec<Range<usize>> = runs.iter().map(|run| run.start..run.start + run.rows).collect();
            return sealed.read(&runs, points, targets);
        }
        let mut at = 0;
        let mut open = None;
        for Chunk { shard: number, start, rows } in runs.iter().copied() {
            if open.as_ref().is_none_or(|(opened, _)| *opened != number) {
                self.verify_once(number)?;
                open = Some((number, self.shard(number)?));
            }
            let Some((_, (path, shard))) = &mut open else { continue };
            for (data, (point, width)) in targets.iter_mut().zip(points) {
                let target = data.get_mut(at * width..(at + rows) * width).unwrap_or_default();
                shard.read(path, *point, start..start + rows, target)?;
            }
            at += rows;
        }
        Ok(())
    }

    /// What the content depends on, for the mark of a position.
    pub(super) fn identify(&self, hasher: &mut blake3::Hasher) {
        if let Some(sealed) = &self.sealed {
            hasher.update(sealed.id().as_bytes());
        }
        for shard in &self.manifest.shards {
            hasher.update(format!("{} {}", shard.rows, shard.blake3).as_bytes());
        }
    }

    fn verify_once(&self, number: usize) -> Result<()> {
        let (Some(info), Some(verified)) = (self.manifest.shards.get(number), self.verified.get(number))
        else {
            return Ok(());
        };
        if !verified.load(Ordering::Relaxed) {
            Shard::verify(&self.folder.join(&info.file), info)?;
            verified.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn shard(&self, number: usize) -> Result<(PathBuf, Shard)> {
        let info = self.manifest.shards.get(number);
        let info = info.ok_or_else(|| Error::msg(format!("there is no shard {number}")))?;
        Ok((self.folder.join(&info.file), self.open_shard(info)?))
    }

    fn open_shard(&self, info: &ShardInfo) -> Result<Shard> {
        Shard::open(&self.folder.join(&info.file), self.dtype()?, &self.manifest.points, info)
    }

    pub(super) fn dtype(&self) -> Result<DType> {
        self.manifest.dtype()
    }

    /// How many bytes a row of a point has.
    pub(super) fn width(&self, point: usize) -> Result<usize> {
        let numbers = self.manifest.points.get(point).and_then(|point| point.numbers());
        Ok(numbers.unwrap_or(0) * self.dtype()?.size_in_bytes())
    }

    pub(super) fn tensor(&self, point: usize, bytes: &[u8], rows: usize, device: &Device) -> Result<Tensor> {
        let shape = self.manifest.points.get(point).map_or(&[][..], |point| &point.shape);
        for_dtype!(self.dtype()?, tensor, bytes, rows, shape, device)
    }

    /// The number of a point, by any spelling of its name.
    fn number(&self, name: &str) -> Result<usize> {
        let own =
            |name: &str| name.parse::<Pattern>().map_or(name.to_string(), |pattern| pattern.to_string());
        let wanted = own(name);
        self.points().position(|point| own(point) == wanted).ok_or_else(|| {
            let nearest = self.points().take(3).map(str::to_string).collect();
            ErrorKind::MissingKey { key: name.to_string(), nearest }.into()
        })
    }

    /// An error if its first rows are not these, up to what another machine may compute differently.
    pub(super) fn check_begins_with(&self, batch: &Batch) -> Result<()> {
        let tolerance = match batch.dtype {
            DType::F16 | DType::BF16 => 0.02,
            _ => 1e-3,
        };
        let cpu = &Device::Cpu;
        let rows = batch.rows.min(self.rows());
        for (number, (point, data)) in batch.points.iter().zip(&batch.data).enumerate() {
            let now = self.tensor(number, data, batch.rows, cpu)?.to_dtype(DType::F64)?;
            let then = self.get(&point.name, 0..rows, cpu)?.to_dtype(DType::F64)?;
            let off = match now.dims() == then.dims() && now.elem_count() > 0 {
                true => (now - &then)?.abs()?.max_all()?.to_scalar::<f64>()?,
                false => f64::INFINITY,
            };
            let largest = then.abs()?.max_all()?.to_scalar::<f64>()?;
            // Also where one of them is not a number.
            let is_close = off <= tolerance * largest;
            if !is_close {
                return Err(Error::msg(format!(
                    "{}: the model makes something else of the first batch than the one that it was begun with: `{}` \
                     is off by {off:.3e}, and its largest value is {largest:.3e}\n  continue with the same weights and \
                     the same plan, or record into another folder",
                    self.folder.display(),
                    point.name
                )));
            }
        }
        Ok(())
    }
}
