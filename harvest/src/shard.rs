//! One file of a store: rows of whole batches, as safetensors.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use candle_core::DType;
use hookpoint::{Error, Result};
use hookpoint_models::weights::header;
use safetensors::{Dtype, View};

use super::durable::{create_with, hash, io};
use super::manifest::{Manifest, PointInfo, ShardInfo};
use super::rows::Batch;

const REMEDY: &str = "the store is damaged; record it again in another folder";

/// A shard that is being filled.
#[derive(Default)]
pub(super) struct Filling {
    pub rows: usize,
    pub batches: usize,
    data: Vec<Vec<u8>>,
}

impl Filling {
    pub(super) fn bytes(&self) -> usize {
        self.data.iter().map(Vec::len).sum()
    }

    pub(super) fn add(&mut self, mut batch: Batch) {
        self.rows += batch.rows;
        self.batches += 1;
        if self.data.is_empty() {
            self.data = batch.data;
            return;
        }
        for (all, more) in self.data.iter_mut().zip(&mut batch.data) {
            all.append(more);
        }
    }

    /// The rows of each point.
    pub(super) fn into_data(self) -> Vec<Vec<u8>> {
        self.data
    }

    /// Puts the rows on the disk, and says what a manifest has to say about them.
    pub(super) fn write(
        self,
        folder: &Path,
        manifest: &Manifest,
        file: String,
        prompts: String,
    ) -> Result<ShardInfo> {
        let dtype = manifest.dtype()?;
        let tensors = manifest.points.iter().zip(&self.data).map(|(point, data)| {
            let shape = std::iter::once(self.rows).chain(point.shape.iter().copied()).collect();
            (point.name.as_str(), Column { dtype: stored(dtype), shape, data })
        });
        let about = HashMap::from([("hookpoint.first_row".to_string(), manifest.rows.to_string())]);
        let path = folder.join(&file);
        // Not `serialize_to_file`, which has an unfinished file of its own, that a killed process would leave here.
        let whole = safetensors::serialize(tensors, Some(about))
            .map_err(|error| io(&path, std::io::Error::other(error)))?;
        create_with(&path, &whole)?;
        let (bytes, blake3) = (whole.len() as u64, blake3::hash(&whole).to_hex().to_string());
        Ok(ShardInfo { file, rows: self.rows, batches: self.batches, bytes, blake3, prompts })
    }
}

/// The rows of one point, for the file.
pub(super) struct Column<'d> {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: &'d [u8],
}

impl View for Column<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.data)
    }

    fn data_len(&self) -> usize {
        self.data.len()
    }
}

pub(super) fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F64 => Dtype::F64,
        _ => Dtype::F32,
    }
}

/// A shard whose header is what the manifest says.
pub(super) struct Shard {
    file: File,
    rows: usize,
    /// Where the rows of each point begin, and how long one is.
    points: Vec<(u64, usize)>,
}

impl Shard {
    pub(super) fn open(path: &Path, dtype: DType, points: &[PointInfo], info: &ShardInfo) -> Result<Self> {
        let wrong = |what: String| Error::msg(format!("{}: {what}\n  {REMEDY}", path.display()));
        let mut file = File::open(path).map_err(|source| io(path, source))?;
        let length = file.metadata().map_err(|source| io(path, source))?.len();
        if length != info.bytes {
            return Err(wrong(format!("it has {length} bytes, and the manifest says {}", info.bytes)));
        }
        let (data, metadata) = header(path, &mut file, REMEDY)?;
        let tensors = metadata.tensors();
        let mut places = Vec::new();
        for point in points {
            let name = &point.name;
            let tensor = tensors.get(name).ok_or_else(|| wrong(format!("it has no `{name}`")))?;
            let dims: Vec<usize> = std::iter::once(info.rows).chain(point.shape.iter().copied()).collect();
            if tensor.shape != dims || tensor.dtype != stored(dtype) {
                return Err(wrong(format!(
                    "`{name}` is {:?} of shape {:?}, and the manifest says {} of shape {dims:?}",
                    tensor.dtype,
                    tensor.shape,
                    dtype.as_str()
                )));
            }
            let width = point.numbers().unwrap_or(0) * dtype.size_in_bytes();
            places.push((data + tensor.data_offsets.0 as u64, width));
        }
        Ok(Self { file, rows: info.rows, points: places })
    }

    /// An error if the bytes of the file are not those that were written.
    pub(super) fn verify(path: &Path, info: &ShardInfo) -> Result<()> {
        let found = hash(path)?;
        if found == info.blake3 {
            return Ok(());
        }
        Err(Error::msg(format!(
            "{}: its content was changed: its hash is {found}, and the manifest says {}\n  {REMEDY}",
            path.display(),
            info.blake3
        )))
    }

    /// Reads rows of the point with this number into `target`, which is as long as they are.
    pub(super) fn read(
        &mut self,
        path: &Path,
        point: usize,
        rows: Range<usize>,
        target: &mut [u8],
    ) -> Result<()> {
        let outside = || Error::msg(format!("{}: there are no rows {rows:?}", path.display()));
        let (start, width) = *self.points.get(point).ok_or_else(outside)?;
        if rows.end > self.rows || rows.len() * width != target.len() {
            return Err(outside());
        }
        self.file
            .seek(SeekFrom::Start(start + (rows.start * width) as u64))
            .map_err(|source| io(path, source))?;
        self.file.read_exact(target).map_err(|source| io(path, source))
    }
}
