//! A shard: a safetensors file with the rows of all points and their tokens, whose header has the hashes of short blocks
//! of rows. The receipt has the hash of the header. So a few rows can be read from afar, and checked, without the rest of
//! the file, and a file with the same content has the same name, whoever writes it and how often.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use candle_core::DType;
use hookpoint::{Error, Result};
use safetensors::tensor::Metadata;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use crate::job::TOKENS;
use crate::manifest::PointInfo;
use crate::shard::{stored, Column};

/// A block has whole rows, and as many as fit.
const BLOCK_BYTES: usize = 1 << 20;
/// The one entry of the metadata. One, because several would be written in any order.
const METADATA: &str = "hookpoint";
/// More than any shard has that is written here.
const LONGEST_HEADER: u64 = 1 << 26;

/// What a receipt and a manifest say about a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShardEntry {
    pub rows: usize,
    pub bytes: u64,
    pub header_bytes: u64,
    /// The hash of the header.
    pub header: String,
}

impl ShardEntry {
    /// Where it is: of the unit and the hash, so that what differs has another name.
    pub(crate) fn key(&self, unit: usize, number: usize) -> String {
        let begin: String = self.header.chars().take(16).collect();
        format!("data/u{unit:06}-{number:02}-{begin}.safetensors")
    }

    /// Whether it agrees with itself.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let is_hash = blake3::Hash::from_hex(&self.header).is_ok();
        match is_hash
            && self.rows > 0
            && (9..=LONGEST_HEADER).contains(&self.header_bytes)
            && self.header_bytes <= self.bytes
        {
            true => Ok(()),
            false => Err(format!("it speaks of a shard as {self:?}")),
        }
    }
}

/// What the metadata of a shard holds.
#[derive(Serialize, Deserialize)]
struct Hashes {
    unit: usize,
    block_bytes: usize,
    /// Of each tensor, of each block of it.
    blake3: BTreeMap<String, Vec<String>>,
}

/// The tensors of a shard, in the order of the plan, and the tokens last.
fn columns(points: &[PointInfo], dtype: DType) -> impl Iterator<Item = (&str, Dtype, &[usize], usize)> + '_ {
    let size = dtype.size_in_bytes();
    let point = move |point: &'_ PointInfo| -> usize { point.numbers().unwrap_or(0) * size };
    points
        .iter()
        .map(move |info| (info.name.as_str(), stored(dtype), info.shape.as_slice(), point(info)))
        .chain(std::iter::once((TOKENS, Dtype::U32, &[][..], 4)))
}

fn block_rows(width: usize) -> usize {
    (BLOCK_BYTES / width.max(1)).max(1)
}

/// The file of a shard, and what is said about it.
pub(crate) fn write(
    unit: usize,
    points: &[PointInfo],
    dtype: DType,
    rows: usize,
    data: &[Vec<u8>],
    tokens: &[u32],
) -> Result<(ShardEntry, Bytes)> {
    let all = data.iter().map(Vec::as_slice).chain(std::iter::once(bytemuck::cast_slice(tokens)));
    let mut hashes = Hashes { unit, block_bytes: BLOCK_BYTES, blake3: BTreeMap::new() };
    let mut tensors = Vec::new();
    for ((name, dtype, shape, width), data) in columns(points, dtype).zip(all) {
        let blocks = data.chunks((block_rows(width) * width).max(1));
        let blocks = blocks.map(|block| blake3::hash(block).to_hex().to_string());
        hashes.blake3.insert(name.to_string(), blocks.collect());
        let shape = std::iter::once(rows).chain(shape.iter().copied()).collect();
        tensors.push((name, Column { dtype, shape, data }));
    }
    let metadata = serde_json::to_string(&hashes).map_err(Error::other)?;
    let about = HashMap::from([(METADATA.to_string(), metadata)]);
    let file: Bytes = safetensors::serialize(tensors, Some(about)).map_err(Error::other)?.into();
    let length = file.get(..8).and_then(|length| length.try_into().ok()).map_or(0, u64::from_le_bytes);
    let header_bytes = (length + 8).min(file.len() as u64);
    let header = blake3::hash(file.get(..header_bytes as usize).unwrap_or_default()).to_hex().to_string();
    Ok((ShardEntry { rows, bytes: file.len() as u64, header_bytes, header }, file))
}

/// The header of a shard, which says where rows are, and what they hash to.
#[derive(Debug)]
pub(crate) struct Header {
    rows: usize,
    columns: Vec<HeaderColumn>,
}

#[derive(Debug)]
struct HeaderColumn {
    /// Where the first row is in the file.
    start: u64,
    width: usize,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    blake3: blake3::Hash,
    /// Was it compared already?
    verified: AtomicBool,
}

/// What has to be read for some rows: bytes of the file, and the rows that they are.
pub(crate) struct Wanted {
    pub bytes: Range<u64>,
    pub rows: Range<usize>,
}

impl Header {
    /// Reads the first bytes of a file, and compares them with what is said about it.
    pub(crate) fn parse(
        bytes: &[u8],
        entry: &ShardEntry,
        points: &[PointInfo],
        dtype: DType,
    ) -> std::result::Result<Self, String> {
        let found = blake3::hash(bytes).to_hex().to_string();
        if found != entry.header {
            return Err(format!("the hash of its header is {found}, and the manifest says {}", entry.header));
        }
        let text = bytes.get(8..).unwrap_or_default();
        let metadata: Metadata = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let hashes = metadata.metadata().as_ref().and_then(|about| about.get(METADATA));
        let hashes = hashes.ok_or("its header has no hashes")?;
        let hashes: Hashes = serde_json::from_str(hashes).map_err(|error| error.to_string())?;
        let tensors = metadata.tensors();
        let mut all = Vec::new();
        for (name, dtype, shape, width) in columns(points, dtype) {
            let tensor = tensors.get(name).ok_or_else(|| format!("it has no `{name}`"))?;
            let dims: Vec<usize> = std::iter::once(entry.rows).chain(shape.iter().copied()).collect();
            if tensor.shape != dims || tensor.dtype != dtype {
                return Err(format!("`{name}` is {:?} of shape {:?}", tensor.dtype, tensor.shape));
            }
            let (from, to) = tensor.data_offsets;
            let length = entry.rows.checked_mul(width);
            let ends = entry.header_bytes.checked_add(to as u64).is_some_and(|end| end <= entry.bytes);
            if !ends || to.checked_sub(from) != length {
                return Err(format!("`{name}` has shape {:?} and offsets that do not fit", tensor.shape));
            }
            let start = entry.header_bytes + from as u64;
            let texts = hashes.blake3.get(name).filter(|_| hashes.block_bytes == BLOCK_BYTES);
            let texts = texts.filter(|texts| texts.len() == entry.rows.div_ceil(block_rows(width)));
            let texts = texts.ok_or_else(|| format!("its header has not all hashes of `{name}`"))?;
            let block = |text: &String| {
                let blake3 = blake3::Hash::from_hex(text).map_err(|error| error.to_string())?;
                Ok(Block { blake3, verified: AtomicBool::new(false) })
            };
            let blocks = texts.iter().map(block).collect::<std::result::Result<_, String>>()?;
            all.push(HeaderColumn { start, width, blocks });
        }
        Ok(Self { rows: entry.rows, columns: all })
    }

    fn column(&self, column: usize, rows: &Range<usize>) -> std::result::Result<&HeaderColumn, String> {
        let inside = rows.start <= rows.end && rows.end <= self.rows;
        self.columns.get(column).filter(|_| inside).ok_or_else(|| format!("there are no rows {rows:?}"))
    }

    /// What has to be read for these rows: whole blocks where some were not compared yet. The tokens are the last column.
    pub(crate) fn wanted(&self, column: usize, rows: Range<usize>) -> std::result::Result<Wanted, String> {
        let column = self.column(column, &rows)?;
        let each = block_rows(column.width);
        let blocks = rows.start / each..rows.end.div_ceil(each);
        let known = column.blocks.get(blocks.clone()).unwrap_or_default();
        let rows = match known.iter().all(|block| block.verified.load(Ordering::Relaxed)) {
            true => rows,
            false => blocks.start * each..(blocks.end * each).min(self.rows),
        };
        let place = |row: usize| column.start + (row * column.width) as u64;
        Ok(Wanted { bytes: place(rows.start)..place(rows.end), rows })
    }

    /// Compares what was read with the hashes.
    pub(crate) fn verify(
        &self,
        column: usize,
        rows: &Range<usize>,
        bytes: &[u8],
    ) -> std::result::Result<(), String> {
        let column = self.column(column, rows)?;
        let each = block_rows(column.width);
        // Part of a block is read only where all of it was compared before.
        let ends_block = rows.end.is_multiple_of(each) || rows.end == self.rows;
        if !rows.start.is_multiple_of(each) || !ends_block {
            return Ok(());
        }
        let blocks = column.blocks.get(rows.start / each..).unwrap_or_default();
        for (block, bytes) in blocks.iter().zip(bytes.chunks((each * column.width).max(1))) {
            if !block.verified.load(Ordering::Relaxed) {
                if blake3::hash(bytes) != block.blake3 {
                    return Err(format!("rows {rows:?} were changed: their hash is another"));
                }
                block.verified.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// How many bytes a row of a column has.
    pub(crate) fn width(&self, column: usize) -> usize {
        self.columns.get(column).map_or(0, |column| column.width)
    }
}
