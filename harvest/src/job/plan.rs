//! Making a plan: the model is loaded once for the names and shapes of the points, the corpus is cut into units.

use candle_core::{DType, Device, Tensor};
use hookpoint::Result;
use hookpoint_models::init::Init;
use hookpoint_models::language::Tokenizer;

use super::{identity, Corpus, Documents, FileHash, Job, FORMAT, TOKENS, VERSION};
use crate::corpus::{cut, documents, find, Document, Packer};
use crate::error::HarvestError;
use crate::order::shuffle;
use crate::rows::{Batch, Rows};
use crate::storage::Storage;
use crate::worker::{Load, Subject};

/// Of text, about; of token ids that are written as numbers it is a little more.
const BYTES_A_TOKEN: u64 = 4;
/// What the probe has, at most.
const PROBE_TOKENS: usize = 64;
/// Tokens that separate documents, by the names that tokenizers know them by.
const SEPARATORS: [&str; 6] =
    ["<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<s>", "</s>", "[SEP]"];

/// What to harvest. The command `plan` has the same settings.
#[derive(Clone, Debug)]
pub struct Planner {
    model: String,
    tokenizer: Option<String>,
    corpus: Vec<String>,
    documents: Documents,
    points: Vec<String>,
    context: usize,
    batch: usize,
    dtype: DType,
    separator: Option<String>,
    unit_tokens: u64,
    shard_bytes: usize,
    seed: Option<u64>,
    tokens: Option<u64>,
}

/// What a plan comes to. All of it is estimated from how long the files are.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// How many units.
    pub units: usize,
    /// How many tokens, about.
    pub tokens: f64,
    /// How many bytes are stored, about.
    pub bytes: f64,
    /// How many objects: shards, receipts, and a few more.
    pub objects: f64,
    /// What a month of storing it costs at 0.023 $ for 10^9 bytes.
    pub dollars_a_month: f64,
    /// What computing it once costs on GPUs that do 4·10^14 operations a second for 2.50 $ an hour; nothing where the size of
    /// the model is not known.
    pub dollars_to_compute: Option<f64>,
}

impl Planner {
    /// The activations of these points of a model, over a corpus: paths, URLs, or patterns of these with `*`.
    pub fn new<P: Into<String>, C: Into<String>>(
        model: impl Into<String>,
        points: impl IntoIterator<Item = P>,
        corpus: impl IntoIterator<Item = C>,
    ) -> Self {
        Self {
            model: model.into(),
            tokenizer: None,
            corpus: corpus.into_iter().map(Into::into).collect(),
            documents: Documents::JsonText("text".to_string()),
            points: points.into_iter().map(Into::into).collect(),
            context: 1024,
            batch: 8,
            dtype: DType::F32,
            separator: None,
            unit_tokens: 1 << 18,
            shard_bytes: 512 << 20,
            seed: None,
            tokens: None,
        }
    }

    /// Where the tokenizer is; that of the model unless this is called.
    pub fn tokenizer(mut self, path: impl Into<String>) -> Self {
        self.tokenizer = Some(path.into());
        self
    }

    /// How documents stand in the files; JSON lines with a field `text` unless this is called.
    pub fn documents(mut self, documents: Documents) -> Self {
        self.documents = documents;
        self
    }

    /// How many tokens a sequence has; 1024 unless this is called.
    pub fn context(mut self, tokens: usize) -> Self {
        self.context = tokens;
        self
    }

    /// How many sequences are run at once; 8 unless this is called. It is part of the plan, because another batch may give
    /// other bits.
    pub fn batch(mut self, sequences: usize) -> Self {
        self.batch = sequences;
        self
    }

    /// The type of the numbers, which the model computes in and which are stored; F32 unless this is called.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// The token before every document: its name or its number, or `none`. Unless this is called, the first of those that
    /// tokenizers commonly have, and none for a corpus of token ids.
    pub fn separator(mut self, token: impl Into<String>) -> Self {
        self.separator = Some(token.into());
        self
    }

    /// How many tokens a unit has, about; 2^18 unless this is called.
    pub fn unit_tokens(mut self, tokens: u64) -> Self {
        self.unit_tokens = tokens;
        self
    }

    /// How large a shard may be; 512 MiB unless this is called.
    pub fn shard_bytes(mut self, bytes: usize) -> Self {
        self.shard_bytes = bytes;
        self
    }

    /// Puts the units into a random order, so that the first of them are a fair sample.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Plans no more units than are needed for so many tokens, about.
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Makes the plan, and puts it under the root as `job.json`. The storage is tried first: it has to be able to create
    /// an object only if it is not there.
    pub fn plan(&self, storage: &Storage, load: &Load<'_>) -> Result<(Job, Estimate)> {
        let cannot = |what: &str, remedy: &str| {
            let (what, remedy) = (what.to_string(), remedy.to_string());
            hookpoint::Error::from(HarvestError::CannotPlan { what, remedy })
        };
        if self.context == 0 || self.batch == 0 || self.unit_tokens == 0 {
            return Err(cannot("context, batch and unit have to be at least 1", "give larger numbers"));
        }
        crate::rows::check_dtype(self.dtype)?;
        storage.check_create_only()?;
        let tokenizer = self.tokenizer_file(&cannot)?;
        let mut job = Job {
            format: FORMAT.to_string(),
            version: VERSION,
            program: identity::program(),
            model: self.model(),
            files: identity::files(&self.model)?,
            tokenizer,
            points: Vec::new(),
            dtype: self.dtype.as_str().to_string(),
            context: self.context,
            batch: self.batch,
            separator: None,
            shard_bytes: self.shard_bytes,
            corpus: Corpus { documents: self.documents.clone(), files: Vec::new() },
            probe: Vec::new(),
            units: Vec::new(),
        };
        for corpus in &self.corpus {
            job.corpus.files.extend(find(corpus)?);
        }
        let tokenizer = job.load_tokenizer()?;
        job.separator = self.separator_id(tokenizer.as_ref(), &cannot)?;
        self.cut(&mut job)?;
        job.probe = probe(&job, tokenizer.as_ref()).map_err(|why| match why {
            Some(error) => cannot(&format!("no unit can be read: {error}"), "mend the corpus"),
            None => {
                cannot("no unit has enough tokens for one sequence", "use a smaller context, or more text")
            }
        })?;
        let device = hookpoint::device_from_env()?;
        let subject = load(&job, &device)?;
        self.resolve(&mut job, &*subject, &device)?;
        job.save(storage)?;
        let estimate = self.estimate(&job)?;
        Ok((job, estimate))
    }

    /// By its whole path if it is one, since workers may be started elsewhere.
    fn model(&self) -> String {
        std::fs::canonicalize(&self.model).map_or(self.model.clone(), |path| path.display().to_string())
    }

    fn tokenizer_file(&self, cannot: &impl Fn(&str, &str) -> hookpoint::Error) -> Result<Option<FileHash>> {
        if matches!(self.documents, Documents::JsonTokens(_)) && self.tokenizer.is_none() {
            return Ok(None);
        }
        let path = match &self.tokenizer {
            Some(path) => Some(path.clone()),
            None => identity::tokenizer_of(&self.model()),
        };
        let path = path.ok_or_else(|| {
            cannot(
                "the corpus is text, and the model has no tokenizer",
                "give a tokenizer.json with `--tokenizer`",
            )
        })?;
        identity::tokenizer(&path).map(Some)
    }

    fn separator_id(
        &self,
        tokenizer: Option<&Tokenizer>,
        cannot: &impl Fn(&str, &str) -> hookpoint::Error,
    ) -> Result<Option<u32>> {
        let Some(wanted) = &self.separator else {
            let known = tokenizer.filter(|_| !matches!(self.documents, Documents::JsonTokens(_)));
            return Ok(known.and_then(|known| SEPARATORS.iter().find_map(|name| known.id(name))));
        };
        if wanted == "none" {
            return Ok(None);
        }
        let id = wanted.parse().ok().or_else(|| tokenizer?.id(wanted));
        let unknown =
            || cannot(&format!("the tokenizer has no token `{wanted}`"), "give its number, or `none`");
        id.map(Some).ok_or_else(unknown)
    }

    /// The units of all files, as many as are wanted.
    fn cut(&self, job: &mut Job) -> Result<()> {
        let unit_bytes = self.unit_tokens.saturating_mul(BYTES_A_TOKEN);
        let mut units = Vec::new();
        for (number, file) in job.corpus.files.iter().enumerate() {
            units.extend(cut(number, file, &self.documents, unit_bytes)?);
        }
        if let Some(seed) = self.seed {
            shuffle(&mut units, &mut Init::new(seed));
        }
        if let Some(most) = self.tokens.map(|tokens| tokens.saturating_mul(BYTES_A_TOKEN)) {
            let mut bytes = 0;
            units.retain(|unit| {
                let wanted = bytes < most;
                bytes += unit.end - unit.start;
                wanted
            });
        }
        job.units = units;
        Ok(())
    }

    /// Asks the model which points the patterns select, and what a row of each looks like.
    fn resolve(&self, job: &mut Job, subject: &dyn Subject, device: &Device) -> Result<()> {
        let ids = Tensor::from_slice(&job.probe, (1, job.probe.len()), device)?;
        let mut ids = Some(ids);
        let mut points = None;
        let patterns: Vec<&str> = self.points.iter().map(String::as_str).collect();
        subject.each(&patterns, &mut || Ok(ids.take()), &mut |_, cache| {
            let batch = Batch::of(&cache, Rows::Positions, Some(self.dtype))?;
            if batch.rows != job.probe.len() {
                let (rows, tokens) = (batch.rows, job.probe.len());
                return Err(HarvestError::CannotPlan {
                    what: format!("the points give {rows} rows for {tokens} tokens"),
                    remedy: "choose points of shape [batch, pos, ..]".to_string(),
                }
                .into());
            }
            points = Some(batch.points);
            Ok(())
        })?;
        job.points = points.unwrap_or_default();
        if job.points.iter().any(|point| point.name == TOKENS) {
            return Err(HarvestError::CannotPlan {
                what: format!("a point has the name `{TOKENS}`, which the tokens have in a shard"),
                remedy: "record it with a `Recorder`".to_string(),
            }
            .into());
        }
        Ok(())
    }

    fn estimate(&self, job: &Job) -> Result<Estimate> {
        let text: u64 = job.units.iter().map(|unit| unit.end - unit.start).sum();
        let tokens = text as f64 / BYTES_A_TOKEN as f64;
        let bytes = tokens * job.row_bytes()? as f64;
        let shards = (bytes / self.shard_bytes.max(1) as f64).max(job.units.len() as f64).ceil();
        // A weight takes part in two operations a token.
        let weights = weight_bytes(&self.model) as f64 / 2.;
        let seconds = 2. * weights * tokens / 4e14;
        Ok(Estimate {
            units: job.units.len(),
            tokens,
            bytes,
            objects: shards + job.units.len() as f64 + 3.,
            dollars_a_month: bytes / 1e9 * 0.023,
            dollars_to_compute: (weights > 0.).then_some(seconds / 3600. * 2.5),
        })
    }
}

/// How long the weights are, if they are files.
fn weight_bytes(model: &str) -> u64 {
    let path = std::path::Path::new(model);
    let length = |path: &std::path::Path| path.metadata().map_or(0, |about| about.len());
    if path.is_file() {
        return length(path);
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
        .map(|path| length(&path))
        .sum()
}

/// The begin of the first sequence of the corpus. Where there is none, the first error, if there was one.
fn probe(job: &Job, tokenizer: Option<&Tokenizer>) -> Result<Vec<u32>, Option<hookpoint::Error>> {
    let mut first = None;
    for number in 0..job.units.len() {
        match probe_of(job, number, tokenizer) {
            Ok(Some(probe)) => return Ok(probe),
            Ok(None) => {}
            // That of one unit is noticed by the worker that computes it.
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first)
}

fn probe_of(job: &Job, number: usize, tokenizer: Option<&Tokenizer>) -> Result<Option<Vec<u32>>> {
    let mut packer = Packer::new(job.context, job.separator);
    for document in documents(job, number)? {
        packer.add(&tokens_of(&document, tokenizer)?);
        if let Some(mut sequence) = packer.take(1) {
            sequence.truncate(PROBE_TOKENS);
            return Ok(Some(sequence));
        }
    }
    Ok(None)
}

/// The tokens of a document.
pub(crate) fn tokens_of(document: &Document, tokenizer: Option<&Tokenizer>) -> Result<Vec<u32>> {
    match (document, tokenizer) {
        (Document::Tokens(tokens), _) => Ok(tokens.clone()),
        (Document::Text(text), Some(tokenizer)) => tokenizer.encode_document(text),
        (Document::Text(_), None) => Err(HarvestError::CannotPlan {
            what: "the corpus is text, and there is no tokenizer".to_string(),
            remedy: "give a tokenizer.json with `--tokenizer`".to_string(),
        }
        .into()),
    }
}
