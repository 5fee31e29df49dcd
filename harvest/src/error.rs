//! What can go wrong with a harvest, as kinds with fields.

use hookpoint::{Error, ErrorKind};

/// Why a harvest cannot go on. It travels as a [`hookpoint::Error`]; [`HarvestError::of`] takes it out again.
///
/// ```
/// use hookpoint_harvest::{HarvestError, Job, Storage};
///
/// let folder = tempfile::tempdir().unwrap();
/// let storage = Storage::open(&folder.path().display().to_string())?;
/// let error = Job::load(&storage).err().unwrap();
/// assert!(matches!(HarvestError::of(&error), Some(HarvestError::NoJob { .. })));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarvestError {
    /// A root or a corpus is given in a way that this program cannot open.
    #[error("{root}: {reason}")]
    NoStorage {
        /// What was given.
        root: String,
        /// Why it cannot be used, and what to do.
        reason: String,
    },
    /// The storage lets a second writer replace what a first one has created.
    #[error("{root}: a file that was created once could be {how}, so two workers could both commit a unit\n  choose storage with create-only writes: a disk with hard links, or an object store that honours `If-None-Match`")]
    NotCreateOnly {
        /// The root.
        root: String,
        /// What the second attempt did.
        how: String,
    },
    /// A request to the storage failed, also after it was repeated.
    #[error("{root}: cannot {operation} `{key}`: {source}")]
    Storage {
        /// The root.
        root: String,
        /// What was to be done.
        operation: &'static str,
        /// The object.
        key: String,
        /// What the storage said.
        source: object_store::Error,
    },
    /// There is no plan.
    #[error("{root}: there is no job.json\n  make one with `plan`")]
    NoJob {
        /// The root.
        root: String,
    },
    /// There is another plan already.
    #[error("{root}: there is another job.json already\n  plan into a new root")]
    JobExists {
        /// The root.
        root: String,
    },
    /// An object is not what the program wrote.
    #[error("{root}: `{key}` is damaged: {what}\n  {remedy}")]
    Damaged {
        /// The root.
        root: String,
        /// The object.
        key: String,
        /// What is wrong with it.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A worker has something else than the plan was made for.
    #[error("{what} is not what the plan was made with: {found} instead of {planned}\n  give this worker the same {what}, or plan again into a new root")]
    Mismatch {
        /// What differs.
        what: String,
        /// What the plan says.
        planned: String,
        /// What was found.
        found: String,
    },
    /// The model makes something else of the probe than the first worker did.
    #[error("the model computes something else than that of the first worker: `{point}` is off by {off:.3e}, and its largest value is {largest:.3e}\n  give this worker the same weights and the same program")]
    Probe {
        /// The point.
        point: String,
        /// The largest difference.
        off: f64,
        /// The largest value of the first worker.
        largest: f64,
    },
    /// A plan cannot be made of these settings.
    #[error("cannot plan: {what}\n  {remedy}")]
    CannotPlan {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A document cannot be read.
    #[error("{file}, {place}: {what}")]
    Document {
        /// The file of the corpus.
        file: String,
        /// Where in the file.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// A unit does not exist.
    #[error("there is no unit {unit}: the plan has {units}, counted from 0")]
    NoUnit {
        /// The number asked for.
        unit: usize,
        /// How many there are.
        units: usize,
    },
    /// Units are named in a way that cannot be read.
    #[error("`{text}` does not name units\n  write numbers and ranges, as in `0-9,12`")]
    UnitNames {
        /// The text.
        text: String,
    },
    /// The model did not give what the plan says of its points.
    #[error(
        "the model gives {found}, and the plan says {planned}\n  plan again with this model into a new root"
    )]
    Points {
        /// What the plan says.
        planned: String,
        /// What was found.
        found: String,
    },
    /// Not all units are committed.
    #[error("{root}: {missing} of {units} units are missing, {failed} of them failed{}\n  run them, or seal what is there with `--allow-missing`", first_of(first))]
    Incomplete {
        /// The root.
        root: String,
        /// How many are missing.
        missing: usize,
        /// How many there are.
        units: usize,
        /// How many of the missing ones have failed.
        failed: usize,
        /// The first of them, with its error where one is known.
        first: Vec<String>,
    },
    /// Something needs a sealed store.
    #[error("{root}: the store is not sealed\n  run `seal` first")]
    NotSealed {
        /// The root.
        root: String,
    },
    /// Rows are asked for that are not there.
    #[error("{root}: there are no rows {start}..{end}: it has {rows}")]
    NoRows {
        /// The root.
        root: String,
        /// The first row.
        start: usize,
        /// The first row behind them.
        end: usize,
        /// How many there are.
        rows: usize,
    },
    /// A store has no tokens.
    #[error("{root}: a store of format 1 keeps no tokens\n  record the corpus with `plan` and `run`")]
    NoTokens {
        /// The root.
        root: String,
    },
    /// A recorder cannot go on with a harvest.
    #[error(
        "{root}: this is a sealed harvest, which a `Recorder` cannot continue\n  record into another folder"
    )]
    SealedStore {
        /// The root.
        root: String,
    },
    /// A reading asks for a part of a store that there cannot be.
    #[error("there is no part {part} of {parts}\n  parts are counted from 0, and a store needs as many chunks as parts")]
    NoPart {
        /// Which part.
        part: usize,
        /// Of how many.
        parts: usize,
    },
    /// An engine could not be used.
    #[error("{program} failed: {what}")]
    Engine {
        /// The program that was started.
        program: String,
        /// What it said.
        what: String,
    },
}

fn first_of(first: &[String]) -> String {
    first.iter().map(|line| format!("\n  {line}")).collect()
}

impl HarvestError {
    /// Takes it out of the error that carries it.
    pub fn of(error: &Error) -> Option<&Self> {
        match error.kind() {
            ErrorKind::Model(source) => source.downcast_ref(),
            _ => None,
        }
    }

    /// Does it concern every unit, so that a worker should not try another one?
    pub(crate) fn stops_all(&self) -> bool {
        matches!(
            self,
            Self::Mismatch { .. }
                | Self::Probe { .. }
                | Self::Points { .. }
                | Self::NoJob { .. }
                | Self::NoUnit { .. }
        ) || matches!(self, Self::Damaged { key, .. } if key == crate::job::FILE)
    }
}

impl From<HarvestError> for Error {
    fn from(error: HarvestError) -> Self {
        Self::other(error)
    }
}
