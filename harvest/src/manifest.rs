//! What is in a store, as `manifest.json` says it.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use candle_core::DType;
use hookpoint::{Error, Result};
use serde::{Deserialize, Serialize};

use super::durable::{create_with, io};
use super::prompt::Chain;
use super::rows::{check_dtype, Rows};

pub(super) const FILE: &str = "manifest.json";
pub(super) const FORMAT: &str = "hookpoint activation store";
const VERSION: u32 = 1;
/// A shard is spoken of in about 400 bytes.
const LONGEST: u64 = 1 << 28;

/// What a store says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    format: String,
    pub(super) version: u32,
    /// What has computed the rows.
    pub model: ModelInfo,
    /// What a row is.
    pub rows_are: Rows,
    /// The type of the numbers: `f32`, `f16`, `bf16` or `f64`.
    pub dtype: String,
    /// The points, in the order in which the model completes them.
    pub points: Vec<PointInfo>,
    /// How many rows there are of each point.
    pub rows: usize,
    /// From how many batches of the corpus they are; in a sealed harvest, from how many sequences.
    pub batches: usize,
    /// The hash of those batches.
    pub prompts: String,
    /// Was the corpus recorded to its end?
    pub complete: bool,
    /// The files. None are named here in a sealed harvest, which has them in pages that are read when they are needed.
    pub shards: Vec<ShardInfo>,
}

/// The model of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// As the [`Recorder`](super::Recorder) was told.
    pub name: String,
    /// The hash of what it made of the first batch.
    pub values: String,
}

/// A point of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PointInfo {
    /// Its name, with the index where a part of it was recorded.
    pub name: String,
    /// Of a row.
    pub shape: Vec<usize>,
}

/// A file of a store: a safetensors file with one tensor for each point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShardInfo {
    /// Its name in the folder.
    pub file: String,
    /// How many rows it has of each point.
    pub rows: usize,
    /// From how many batches they are.
    pub batches: usize,
    /// How long the file is.
    pub bytes: u64,
    /// The hash of the file, as `b3sum` prints it.
    pub blake3: String,
    /// The hash of all batches up to the end of this shard.
    pub prompts: String,
}

/// The name of the shard with this number.
pub(super) fn shard_file(number: usize) -> String {
    format!("shard-{number:06}.safetensors")
}

impl PointInfo {
    /// How many numbers a row has; none if they cannot be counted.
    pub(super) fn numbers(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim)).filter(|count| *count > 0)
    }
}

impl Manifest {
    pub(super) fn new(model: ModelInfo, rows_are: Rows, dtype: DType, points: Vec<PointInfo>) -> Self {
        Self {
            format: FORMAT.to_string(),
            version: VERSION,
            model,
            rows_are,
            dtype: dtype.as_str().to_string(),
            points,
            rows: 0,
            batches: 0,
            prompts: Chain::default().text(),
            complete: false,
            shards: Vec::new(),
        }
    }

    /// The type of the numbers.
    pub fn dtype(&self) -> Result<DType> {
        let dtype = self.dtype.parse::<DType>().ok().filter(|dtype| check_dtype(*dtype).is_ok());
        dtype.ok_or_else(|| Error::msg(format!("a store cannot hold numbers of type `{}`", self.dtype)))
    }

    pub(super) fn add(&mut self, shard: ShardInfo) {
        self.rows += shard.rows;
        self.batches += shard.batches;
        self.prompts.clone_from(&shard.prompts);
        self.shards.push(shard);
    }

    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(Error::other)?;
        create_with(&folder.join(FILE), &text)
    }

    /// The version that a manifest claims, if there is one.
    pub(super) fn version_in(folder: &Path) -> Option<u64> {
        #[derive(Deserialize)]
        struct Head {
            version: u64,
        }
        let mut text = Vec::new();
        File::open(folder.join(FILE)).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
        serde_json::from_slice::<Head>(&text).ok().map(|head| head.version)
    }

    pub(super) fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let opened = File::open(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::msg(format!(
                "{}: this is no activation store, there is no {FILE}\n  a `Recorder` makes one; one that was ended \
                 before its first shard was full leaves none",
                folder.display()
            )),
            _ => io(&path, source),
        })?;
        let broken = |what: String| {
            Error::msg(format!(
                "{}: {what}\n  the store is damaged; record it again in another folder",
                path.display()
            ))
        };
        let mut text = Vec::new();
        opened.take(LONGEST + 1).read_to_end(&mut text).map_err(|source| io(&path, source))?;
        if text.len() as u64 > LONGEST {
            return Err(broken(format!("it is longer than {LONGEST} bytes")));
        }
        let manifest: Self = serde_json::from_slice(&text)
            .map_err(|error| broken(format!("this is not the manifest of a store: {error}")))?;
        manifest.check().map_err(|error| broken(error.to_string()))?;
        Ok(manifest)
    }

    /// Whether it agrees with itself. What it says about files is compared with them when they are opened.
    fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::msg(what));
        if self.format != FORMAT || self.version != VERSION {
            return wrong(format!("it is of the format `{}`, version {}", self.format, self.version));
        }
        self.dtype()?;
        if self.points.is_empty() {
            return wrong("it names no points".to_string());
        }
        let mut names = HashSet::new();
        for point in &self.points {
            if !names.insert(&point.name) {
                return wrong(format!("it names the point `{}` twice", point.name));
            }
            // So that no size that is computed later overflows.
            let bytes = point.numbers().and_then(|count| count.checked_mul(8)?.checked_mul(self.rows.max(1)));
            if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
                return wrong(format!(
                    "it says that `{}` has {} rows of shape {:?}",
                    point.name, self.rows, point.shape
                ));
            }
        }
        for (number, shard) in self.shards.iter().enumerate() {
            if shard.file != shard_file(number) {
                return wrong(format!("shard {number} has the name `{}`", shard.file));
            }
        }
        let sum = |of: fn(&ShardInfo) -> usize| {
            self.shards.iter().try_fold(0usize, |sum, shard| sum.checked_add(of(shard)))
        };
        if sum(|shard| shard.rows) != Some(self.rows) || sum(|shard| shard.batches) != Some(self.batches) {
            return wrong("rows and batches of the shards do not add up to those of the store".to_string());
        }
        let last = self.shards.last().map(|shard| &shard.prompts);
        if last.is_some_and(|last| *last != self.prompts) || Chain::of_text(&self.prompts).is_none() {
            return wrong(format!("`{}` is not the hash of its prompts", self.prompts));
        }
        Ok(())
    }

    /// An error if a recorder with other settings wants to go on with this store.
    pub(super) fn check_continued_by(&self, other: &Self) -> Result<()> {
        let differ = |what: &str, here: &dyn std::fmt::Debug, there: &dyn std::fmt::Debug| {
            Err(Error::msg(format!(
                "the store was begun with {what} {here:?}, and is to be continued with {there:?}\n  continue it as it \
                 was begun, or record into another folder"
            )))
        };
        let names = |manifest: &Self| -> Vec<String> {
            manifest.points.iter().map(|point| format!("{} {:?}", point.name, point.shape)).collect()
        };
        if self.model.name != other.model.name {
            return differ("the model", &self.model.name, &other.model.name);
        }
        if self.points != other.points {
            return differ("the points", &names(self), &names(other));
        }
        if self.dtype != other.dtype {
            return differ("the dtype", &self.dtype, &other.dtype);
        }
        if self.rows_are != other.rows_are {
            return differ("rows that are", &self.rows_are, &other.rows_are);
        }
        Ok(())
    }
}
