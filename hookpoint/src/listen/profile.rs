//! Where the time of a run goes, per module and per operation.

mod table;
mod trace;

use std::time::{Duration, Instant};

use candle_core::Tensor;

use super::{Answer, Call, End, Interest, Listener, Operation, Point};
use crate::error::Result;
use crate::memory::{self, bytes_of};
use crate::tree::Kind;
use trace::Span;

/// Measures where the time of runs goes: per module, and per operation in annotated code.
///
/// Times are those of the clock. An entry's own time is what is left of its time without the calls and operations inside
/// it, so the own times of all entries add up to the time of the runs. On a GPU, where work goes on after a call has
/// returned, the listener waits for the device at the beginning and end of every call.
///
/// It prints as a tree, in which entries of one parent stand in the order of their own time;
/// [`trace`](Self::trace) gives a file for `ui.perfetto.dev` or `chrome://tracing`. Memory is
/// counted where the program has a [`memory::CountingAllocator`].
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::listen::Profile;
///
/// let mut profile = Profile::new();
/// model.plan().listen(&mut profile)?.run(|m| m.forward(&x))?;
/// let up = profile.entries().find(|entry| entry.name() == "up").unwrap();
/// assert_eq!((up.calls(), up.output_bytes()), (1, 8));
/// let sum: std::time::Duration = profile.entries().map(|entry| entry.own()).sum();
/// assert_eq!(sum, profile.total());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Profile {
    entries: Vec<Entry>,
    open: Vec<Open>,
    spans: Vec<Span>,
    /// When the first run began.
    origin: Option<Instant>,
    runs: usize,
}

/// A module, an operation, or the run itself, below one parent.
#[derive(Clone, Debug)]
pub struct Entry {
    parent: Option<usize>,
    name: String,
    what: What,
    calls: usize,
    own: Duration,
    whole: Duration,
    bytes: usize,
    grown: Option<i64>,
}

/// What an [`Entry`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The closures of the runs. Its own time is that of code outside of all modules.
    Run,
    /// A module, or another annotated method.
    Module,
    /// An operation in the code of the module above it.
    Operation,
}

impl Entry {
    /// The path of a module; the name of an operation and its line, as in `matmul:41`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is of.
    pub fn what(&self) -> What {
        self.what
    }

    /// How often it was called or done.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Its time without that of calls and operations inside it.
    pub fn own(&self) -> Duration {
        self.own
    }

    /// All of its time.
    pub fn whole(&self) -> Duration {
        self.whole
    }

    /// The bytes of the tensors that it gave, all calls together; of several tensors the first counts.
    pub fn output_bytes(&self) -> usize {
        self.bytes
    }

    /// By how many bytes the memory in use had grown when it was over, all calls together. None without a
    /// [`memory::CountingAllocator`].
    pub fn grown(&self) -> Option<i64> {
        self.grown
    }
}

/// A call that is not over.
#[derive(Clone, Debug)]
struct Open {
    entry: usize,
    started: Instant,
    in_use: Option<usize>,
    /// What happened inside it, and when that began; the last of it may turn out to be inside an operation.
    inside: Vec<(Instant, Duration)>,
}

impl Profile {
    /// Nothing measured yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the closures of all runs took.
    pub fn total(&self) -> Duration {
        self.entries.iter().filter(|entry| entry.what == What::Run).map(|entry| entry.whole).sum()
    }

    /// How many runs were measured.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// All entries, that with the largest own time first. A module that is called from several places has an entry in
    /// each.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let mut all: Vec<&Entry> = self.entries.iter().collect();
        all.sort_by_key(|entry| std::cmp::Reverse(entry.own));
        all.into_iter()
    }

    /// Forgets what was measured.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn entry(&mut self, parent: Option<usize>, name: &str, what: What) -> usize {
        let is_it = |entry: &Entry| entry.parent == parent && entry.what == what && entry.name == name;
        if let Some(found) = self.entries.iter().position(is_it) {
            return found;
        }
        let (calls, own, whole, bytes, grown) = (0, Duration::ZERO, Duration::ZERO, 0, None);
        let name = name.to_string();
        self.entries.push(Entry { parent, name, what, calls, own, whole, bytes, grown });
        self.entries.len() - 1
    }

    fn open(&mut self, name: &str, what: What) {
        let parent = self.open.last().map(|open| open.entry);
        let entry = self.entry(parent, name, what);
        let (in_use, inside) = (memory::in_use(), Vec::new());
        self.open.push(Open { entry, started: Instant::now(), in_use, inside });
    }

    fn close(&mut self, output: usize) {
        let now = Instant::now();
        let Some(Open { entry, started, in_use, inside }) = self.open.pop() else { return };
        let whole = now - started;
        let nested: Duration = inside.iter().map(|(_, took)| *took).sum();
        let own = whole.saturating_sub(nested);
        if let Some(entry) = self.entries.get_mut(entry) {
            entry.calls += 1;
            entry.own += own;
            entry.whole += whole;
            entry.bytes += output;
            if let (Some(before), Some(after)) = (in_use, memory::in_use()) {
                *entry.grown.get_or_insert(0) += after as i64 - before as i64;
            }
        }
        if let Some(around) = self.open.last_mut() {
            around.inside.push((started, whole));
        }
        self.note_span(entry, started, whole);
    }
}

/// Waits until a device is done with what it was given.
fn wait_for(tensors: &[Tensor]) -> Result<()> {
    if let Some(tensor) = tensors.iter().find(|tensor| !tensor.device().is_cpu()) {
        tensor.device().synchronize()?;
    }
    Ok(())
}

impl Listener for Profile {
    fn interest(&self, point: &Point<'_>) -> Interest {
        match point.is_output() && point.kind() != Kind::Parameter {
            true => Interest::CALLS | Interest::OPERATIONS,
            false => Interest::NOTHING,
        }
    }

    fn begin(&mut self) -> Result<()> {
        self.open.clear();
        self.runs += 1;
        self.origin.get_or_insert_with(Instant::now);
        self.open("", What::Run);
        Ok(())
    }

    fn enter(&mut self, call: &Call<'_>) -> Result<Answer> {
        wait_for(call.inputs())?;
        self.open(call.name(), What::Module);
        Ok(Answer::Go)
    }

    fn leave(&mut self, _: &Call<'_>, result: Option<&Tensor>) {
        // Only a device that is broken fails here, and the run finds that out.
        let _ = wait_for(result.map(std::slice::from_ref).unwrap_or_default());
        self.close(result.map_or(0, bytes_of));
    }

    fn operation(&mut self, operation: &Operation<'_>, result: &Tensor) -> Result<Option<Tensor>> {
        wait_for(std::slice::from_ref(result))?;
        let last = self.open.last().and_then(|around| around.inside.last());
        // The call of a layer, which has an entry of its own: it began before the operation, and went on in it.
        if last.is_some_and(|(began, took)| *began < operation.started && *began + *took > operation.started)
        {
            return Ok(None);
        }
        let parent = self.open.last().map(|open| open.entry);
        let name = format!("{}:{}", operation.name(), operation.line());
        let entry = self.entry(parent, &name, What::Operation);
        let started = operation.started;
        let (mut nested, whole) = (Duration::ZERO, operation.took());
        if let Some(around) = self.open.last_mut() {
            // Operands that were computed by calls have entries of their own.
            while let Some((_, took)) = around.inside.pop_if(|(began, _)| *began >= started) {
                nested += took;
            }
            around.inside.push((started, whole));
        }
        if let Some(entry) = self.entries.get_mut(entry) {
            entry.calls += 1;
            entry.own += whole.saturating_sub(nested);
            entry.whole += whole;
            entry.bytes += bytes_of(result);
        }
        self.note_span(entry, started, whole);
        Ok(None)
    }

    fn end(&mut self, _: &End<'_>) -> Result<()> {
        while !self.open.is_empty() {
            self.close(0);
        }
        Ok(())
    }
}
