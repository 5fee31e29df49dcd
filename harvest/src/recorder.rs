//! Running a plan over a corpus, and putting what it caches on the disk.

use std::path::Path;

use candle_core::DType;
use hookpoint::{Access, ActivationCache, AutoHook, Error, Lent, Plan, Result};

use super::durable::{self, Lock};
use super::error::HarvestError;
use super::manifest::{self, shard_file, Manifest, ModelInfo};
use super::opened::Store;
use super::prompt::{Chain, Prompt};
use super::rows::{check_dtype, Batch, Rows};
use super::shard::Filling;

/// Any error that converts: candle's, anyhow's, hookpoint's.
type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Writes activations to a [`Store`]. What it is begun with, it can go on with after it was killed: call it in the
/// same way again. The [module](super) has an example.
///
/// The model is known by the name that it is given here, and by what it makes of the first batch: a recorder that
/// goes on with a store computes that batch again, and compares.
pub struct Recorder<'a> {
    model: String,
    rows: Rows,
    dtype: Option<DType>,
    shard_bytes: usize,
    on_progress: Box<dyn FnMut(&Progress) + 'a>,
}

/// How far a [`Recorder`] is. Rows and bytes count those of shards that are not yet full, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Batches whose rows were recorded, also before this recorder went on with the store.
    pub batches: usize,
    /// Their rows.
    pub rows: usize,
    /// The bytes of these rows, in all points.
    pub bytes: u64,
    /// Files that are on the disk.
    pub shards: usize,
    /// Batches that were there already.
    pub resumed: usize,
}

impl<'a> Recorder<'a> {
    /// Records a model of this name: one that tells you later which weights they were.
    pub fn new(model: impl Into<String>) -> Self {
        let on_progress = Box::new(|_: &Progress| ());
        Self { model: model.into(), rows: Rows::default(), dtype: None, shard_bytes: 64 << 20, on_progress }
    }

    /// What a row is; [`Rows::Vectors`] unless this is called.
    pub fn rows(mut self, rows: Rows) -> Self {
        self.rows = rows;
        self
    }

    /// The type of the numbers in the store; that of the model unless this is called. A value that is too large for
    /// F16 is an error.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// How large a file may be; 64 MiB unless this is called. What does not fit begins the next one. A single batch that
    /// is larger has a file of its own.
    pub fn shard_bytes(mut self, bytes: usize) -> Self {
        self.shard_bytes = bytes;
        self
    }

    /// Is called before the first batch and after each, to show how far it is.
    pub fn on_progress(mut self, f: impl FnMut(&Progress) + 'a) -> Self {
        self.on_progress = Box::new(f);
        self
    }

    /// Runs the plan on every batch, until the last of its points, and writes what it caches to the folder. `f` gives
    /// a batch to the model.
    ///
    /// Where the folder has some of it already, goes on behind that. An error then is: other points, another name
    /// of the model, another dtype, other rows, batches that are not those which were recorded, or a model that makes
    /// something else of the first of them.
    pub fn record<M, H, B, T, E>(
        &mut self,
        folder: impl AsRef<Path>,
        plan: &Plan<'_, M, H>,
        batches: impl IntoIterator<Item = B>,
        mut f: impl for<'m> FnMut(Lent<'m, M, H>, &B) -> Result<T, E>,
    ) -> Result<Store>
    where
        M: AutoHook,
        H: Access<M>,
        B: Prompt,
        E: Into<BoxedError>,
    {
        self.record_caches(folder, batches, |batch| plan.collect(|m| f(m, batch)))
    }

    /// As [`record`](Self::record), with runs of your own: `run` gives the cache of one batch, with the same points
    /// each time.
    pub fn record_caches<B: Prompt>(
        &mut self,
        folder: impl AsRef<Path>,
        batches: impl IntoIterator<Item = B>,
        mut run: impl FnMut(&B) -> Result<ActivationCache>,
    ) -> Result<Store> {
        let folder = folder.as_ref();
        self.dtype.map_or(Ok(()), check_dtype)?;
        std::fs::create_dir_all(folder).map_err(|source| durable::io(folder, source))?;
        let _lock = Lock::of(folder)?;
        let mut batches = batches.into_iter();
        let mut state = match folder.join(manifest::FILE).exists() {
            true => self.resume(folder, &mut batches, &mut run)?,
            false => State::default(),
        };
        clean(folder, state.progress.shards)?;
        (self.on_progress)(&state.progress);
        for prompt in batches {
            let batch = Batch::of(&run(&prompt)?, self.rows, self.dtype)?;
            let manifest = match &mut state.manifest {
                None => state.manifest.insert(self.manifest(&batch)),
                Some(manifest) => {
                    manifest.check_continued_by(&self.manifest(&batch))?;
                    manifest
                }
            };
            if state.filling.bytes() > 0 && state.filling.bytes() + batch.bytes() > self.shard_bytes {
                commit(folder, manifest, &mut state.filling, state.prompts)?;
                state.progress.shards += 1;
            }
            state.prompts = state.prompts.followed_by(&prompt)?;
            state.progress.batches += 1;
            state.progress.rows += batch.rows;
            state.progress.bytes += batch.bytes() as u64;
            state.filling.add(batch);
            (self.on_progress)(&state.progress);
        }
        let Some(mut manifest) = state.manifest else {
            return Err(Error::msg("the corpus is empty\n  give at least one batch"));
        };
        let was_complete = manifest.complete;
        manifest.complete = true;
        if state.filling.batches > 0 {
            commit(folder, &mut manifest, &mut state.filling, state.prompts)?;
            state.progress.shards += 1;
            (self.on_progress)(&state.progress);
        } else if !was_complete {
            manifest.save(folder)?;
        }
        Store::open(folder)
    }

    /// What a store says that begins with this batch.
    fn manifest(&self, first: &Batch) -> Manifest {
        let model = ModelInfo { name: self.model.clone(), values: first.hash() };
        Manifest::new(model, self.rows, first.dtype, first.points.clone())
    }

    /// Makes sure that the store is one that this recorder can go on with, and takes what it has from the corpus.
    fn resume<B: Prompt>(
        &self,
        folder: &Path,
        batches: &mut impl Iterator<Item = B>,
        run: &mut impl FnMut(&B) -> Result<ActivationCache>,
    ) -> Result<State> {
        let store = Store::open(folder)?;
        if store.is_sealed() {
            return Err(HarvestError::SealedStore { root: folder.display().to_string() }.into());
        }
        let mut manifest = store.manifest().clone();
        let mut prompts = Chain::default();
        let (mut first, mut taken) = (None, 0usize);
        for shard in &manifest.shards {
            let begin = taken;
            for _ in 0..shard.batches {
                let batch = batches.next().ok_or_else(|| {
                    Error::msg(format!(
                        "{}: {} batches were recorded, and the corpus has only {taken}\n  continue with the corpus that \
                         it was begun with, or record into another folder",
                        folder.display(),
                        manifest.batches
                    ))
                })?;
                prompts = prompts.followed_by(&batch)?;
                taken += 1;
                first.get_or_insert(batch);
            }
            if prompts.text() != shard.prompts {
                return Err(Error::msg(format!(
                    "{}: batches {begin} to {} of the corpus are not those that were recorded\n  continue with the corpus \
                     that it was begun with, or record into another folder",
                    folder.display(),
                    taken.saturating_sub(1)
                )));
            }
        }
        if let Some(first) = &first {
            let again = Batch::of(&run(first)?, self.rows, self.dtype)?;
            manifest.check_continued_by(&self.manifest(&again))?;
            if again.hash() != manifest.model.values {
                store.check_begins_with(&again)?;
            }
        }
        manifest.complete = manifest.complete && manifest.batches > 0;
        let row: usize = manifest.points.iter().filter_map(|point| point.numbers()).sum();
        let progress = Progress {
            batches: taken,
            rows: manifest.rows,
            bytes: (manifest.rows * row * manifest.dtype()?.size_in_bytes()) as u64,
            shards: manifest.shards.len(),
            resumed: taken,
        };
        Ok(State { manifest: Some(manifest), filling: Filling::default(), prompts, progress })
    }
}

/// Where a recorder is.
#[derive(Default)]
struct State {
    /// None before the first batch.
    manifest: Option<Manifest>,
    filling: Filling,
    /// The hash of the batches so far.
    prompts: Chain,
    progress: Progress,
}

/// First the shard, and then the manifest that makes it count.
fn commit(folder: &Path, manifest: &mut Manifest, filling: &mut Filling, prompts: Chain) -> Result<()> {
    let file = shard_file(manifest.shards.len());
    let shard = std::mem::take(filling).write(folder, manifest, file, prompts.text())?;
    manifest.add(shard);
    manifest.save(folder)
}

/// Takes away what a recorder left that was killed: files that were not finished, and a shard that the manifest does
/// not name. Anything else that has no place in a store is an error.
fn clean(folder: &Path, shards: usize) -> Result<()> {
    let known = |name: &str| {
        let number = name.strip_prefix("shard-").and_then(|rest| rest.strip_suffix(".safetensors"));
        let number: Option<usize> = number.and_then(|number| number.parse().ok());
        match number.filter(|number| shard_file(*number) == name) {
            Some(number) => (true, number >= shards),
            None => (name == manifest::FILE || name == durable::LOCK, false),
        }
    };
    for entry in std::fs::read_dir(folder).map_err(|source| durable::io(folder, source))? {
        let path = entry.map_err(|source| durable::io(folder, source))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (is_ours, is_left) =
            match name.strip_suffix(durable::UNFINISHED).and_then(|name| name.strip_suffix('.')) {
                Some(finished) => (known(finished).0, true),
                None => known(name),
            };
        if !is_ours && shards == 0 {
            return Err(Error::msg(format!(
                "{}: the folder holds other files, such as `{name}`\n  record into a new folder",
                folder.display()
            )));
        }
        if is_ours && is_left {
            std::fs::remove_file(&path).map_err(|source| durable::io(&path, source))?;
        }
    }
    Ok(())
}
