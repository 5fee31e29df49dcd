//! The plan of a harvest, as `job.json` has it: what is computed, from what, in which pieces. Everything that decides
//! about a bit of the result is part of it, and nothing of a worker is.

mod identity;
mod plan;
mod probe;

use std::collections::HashSet;

use bytes::Bytes;
use candle_core::DType;
use hookpoint::{Error, Result};
use hookpoint_models::gpt2::Gpt2;
use hookpoint_models::language::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::error::HarvestError;
use crate::manifest::PointInfo;
use crate::rows::check_dtype;
use crate::storage::Storage;

pub use identity::FileHash;
pub(crate) use plan::tokens_of;
pub use plan::{Estimate, Planner};
pub(crate) use probe::Probe;

pub(crate) const FILE: &str = "job.json";
/// The model that is part of the program, instead of a path.
pub(crate) const EMBEDDED: &str = "embedded";
/// What the tokens are called in a shard, beside the points.
pub(crate) const TOKENS: &str = "tokens";
const FORMAT: &str = "hookpoint harvest";
const VERSION: u32 = 1;
/// A unit is spoken of in about 110 bytes.
const LONGEST: u64 = 1 << 30;
const REMEDY: &str = "plan again into a new root";

/// The plan of a harvest. [`Planner`] makes one, and every worker reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Job {
    format: String,
    version: u32,
    /// The version of this crate that made the plan. Others may cut or compute in another way.
    pub program: String,
    /// The model, as it was given: a path, or a name that the program knows.
    pub model: String,
    /// The files of the model, if it is a path.
    pub files: Vec<FileHash>,
    /// Where the tokenizer is, if the corpus is text.
    pub tokenizer: Option<FileHash>,
    /// The points, in the order in which the model completes them, and the shape of a row of each.
    pub points: Vec<PointInfo>,
    /// The type of the numbers, which the model computes in as well.
    pub dtype: String,
    /// How many tokens a sequence has.
    pub context: usize,
    /// How many sequences are run at once. Another number may give other bits.
    pub batch: usize,
    /// The token before every document.
    pub separator: Option<u32>,
    /// How large a shard may be.
    pub shard_bytes: usize,
    /// The corpus.
    pub corpus: Corpus,
    /// What every worker runs the model on first.
    pub probe: Vec<u32>,
    /// The pieces in which all of it is computed, by number.
    pub units: Vec<Unit>,
}

/// The documents of a harvest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Corpus {
    /// How documents stand in the files.
    pub documents: Documents,
    /// The files: paths, or URLs of object stores.
    pub files: Vec<CorpusFile>,
}

/// How documents stand in files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Documents {
    /// Plain text, with an empty line between two documents.
    Text,
    /// A JSON object a line, with a text in the field of this name.
    JsonText(String),
    /// A JSON object a line, with a list of token ids in the field of this name.
    JsonTokens(String),
}

/// A file of a corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CorpusFile {
    /// A path, or a URL.
    pub path: String,
    /// How long it is.
    pub bytes: u64,
}

/// A run of whole documents: what a worker computes and commits at once. No unit needs another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(usize, u64, u64, String)", into = "(usize, u64, u64, String)")]
#[non_exhaustive]
pub struct Unit {
    /// The number of its file in the corpus.
    pub file: usize,
    /// Its first byte there.
    pub start: u64,
    /// The first byte behind it.
    pub end: u64,
    /// The hash of its bytes.
    pub blake3: String,
}

impl From<(usize, u64, u64, String)> for Unit {
    fn from((file, start, end, blake3): (usize, u64, u64, String)) -> Self {
        Self { file, start, end, blake3 }
    }
}

impl From<Unit> for (usize, u64, u64, String) {
    fn from(unit: Unit) -> Self {
        (unit.file, unit.start, unit.end, unit.blake3)
    }
}

impl Job {
    /// The plan that is under this root.
    pub fn load(storage: &Storage) -> Result<Self> {
        let none = || HarvestError::NoJob { root: storage.name().to_string() };
        let text = storage.get(FILE, LONGEST)?.ok_or_else(none)?;
        let damaged = |what: String| storage.damaged(FILE, what, REMEDY);
        let job: Self = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        job.check().map_err(damaged)?;
        Ok(job)
    }

    /// Puts the plan under a root, where there must be no other. The same plan once more is fine.
    pub(crate) fn save(&self, storage: &Storage) -> Result<()> {
        let text = self.text()?;
        match storage.create_or_get(FILE, &text, LONGEST)? == text {
            true => Ok(()),
            false => Err(HarvestError::JobExists { root: storage.name().to_string() }.into()),
        }
    }

    fn text(&self) -> Result<Bytes> {
        Ok(serde_json::to_vec_pretty(self).map_err(Error::other)?.into())
    }

    /// The hash of the whole plan.
    pub fn id(&self) -> Result<String> {
        Ok(blake3::hash(&self.text()?).to_hex().to_string())
    }

    /// Where the model is, or its name: what a program of your own loads its model from.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The type of the numbers that are stored, and that the model should compute in.
    pub fn dtype(&self) -> Result<DType> {
        let dtype = self.dtype.parse::<DType>().ok().filter(|dtype| check_dtype(*dtype).is_ok());
        dtype.ok_or_else(|| {
            let what = format!("the dtype `{}` cannot be stored", self.dtype);
            HarvestError::CannotPlan { what, remedy: "use f32, f16, bf16 or f64".to_string() }.into()
        })
    }

    /// A unit by its number.
    pub fn unit(&self, number: usize) -> Result<&Unit> {
        let none = || HarvestError::NoUnit { unit: number, units: self.units.len() };
        Ok(self.units.get(number).ok_or_else(none)?)
    }

    /// The names of the points.
    pub fn point_names(&self) -> Vec<&str> {
        self.points.iter().map(|point| point.name.as_str()).collect()
    }

    /// How many bytes a row has, in all points, with its token.
    pub(crate) fn row_bytes(&self) -> Result<usize> {
        let size = self.dtype()?.size_in_bytes();
        let numbers = |point: &PointInfo| point.numbers().unwrap_or(0).saturating_mul(size);
        Ok(self.points.iter().map(numbers).fold(4, usize::saturating_add))
    }

    /// The tokenizer, if the corpus is text.
    pub(crate) fn load_tokenizer(&self) -> Result<Option<Tokenizer>> {
        self.tokenizer.as_ref().map(|file| tokenizer(&file.path)).transpose()
    }

    /// Whether it agrees with itself.
    fn check(&self) -> std::result::Result<(), String> {
        if self.format != FORMAT || self.version != VERSION {
            return Err(format!("it is of the format `{}`, version {}", self.format, self.version));
        }
        self.dtype().map_err(|error| error.to_string())?;
        if self.points.is_empty() {
            return Err("it names no points".to_string());
        }
        let mut names = HashSet::from([TOKENS]);
        for point in &self.points {
            if !names.insert(&point.name) {
                return Err(format!("it names the point `{}` twice", point.name));
            }
            if point.numbers().is_none_or(|numbers| numbers > 1 << 32) {
                return Err(format!("it says that a row of `{}` has shape {:?}", point.name, point.shape));
            }
        }
        let sizes = [("context", self.context), ("batch", self.batch), ("shard_bytes", self.shard_bytes)];
        if let Some((name, size)) = sizes.iter().find(|(_, size)| !(1..=1 << 40).contains(size)) {
            return Err(format!("it says that {name} is {size}"));
        }
        for (number, unit) in self.units.iter().enumerate() {
            let file =
                self.corpus.files.get(unit.file).ok_or_else(|| format!("unit {number} is of no file"))?;
            if unit.start > unit.end
                || unit.end > file.bytes
                || unit.end - unit.start > crate::corpus::LONGEST_UNIT
            {
                return Err(format!(
                    "unit {number} has bytes {} to {} of {}",
                    unit.start, unit.end, file.bytes
                ));
            }
        }
        Ok(())
    }
}

/// The tokenizer of a path.
fn tokenizer(path: &str) -> Result<Tokenizer> {
    match path {
        EMBEDDED => Ok(Gpt2::embedded(&candle_core::Device::Cpu)?.tokenizer()?.clone()),
        path if path.ends_with(".gguf") => Tokenizer::from_gguf(path),
        path => Tokenizer::from_file(path),
    }
}
