//! What a model did for one input, so that later runs with the same input need not do it again.
//!
//! A recording knows in which order modules were called and points were reached, and what the modules
//! gave. A plan that replays it is told by that order how far its run will be the same: up to the first
//! point that it may change. Every call that is over by then, and inside which nothing is wanted, is
//! answered with what it gave before. Calls that are not answered are made, whatever they are: so code
//! between modules, and modules with side effects, always run.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::Tensor;

use crate::error::{Error, ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::lookup::{FastMap, FastSet};
use crate::pattern::{point_name, Pattern};
use crate::run::{Action, Log, LoggedCall, LoggedPoint, Request};
use crate::tree::{Kind, NodeId, Tree, Weight};

/// What a model did for one input: made by [`Hooked::record`](crate::Hooked::record), used by
/// [`Plan::replay`](crate::Plan::replay).
///
/// It holds the outputs of the model's modules, which it shares with nobody's memory but their own: a clone
/// costs nothing. It also knows in which order everything happened: [`reached`](Self::reached) has the points,
/// [`calls`](Self::calls) the modules.
///
/// # More rows
///
/// Changes that are to be compared can share a run: their inputs are laid side by side in the first dimension, the
/// batch. [`repeated`](Self::repeated) is the recording for such a run.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let (_, recording) = model.record(|m| m.forward(&x))?;
/// let twice = Tensor::cat(&[&x, &x], 0)?;
/// // Which values have the rows of the input?
/// model.plan().note_rows(&recording, 2)?.run(|m| m.forward(&twice))?;
///
/// let plan = model.plan().hook(":hidden[1]", |_, row| Ok(Some((row * 5.)?)))?;
/// let run = plan.replay(&recording.repeated(2))?.run(|m| m.forward(&twice))?;
/// assert_eq!(run.output.to_vec2::<f32>()?, [[1., 0.], [5., 0.]]);
/// assert_eq!(run.replayed().collect::<Vec<_>>(), ["up"]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone)]
pub struct Recording {
    inner: Arc<Inner>,
    of: Of,
}

/// Of which runs is it?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Those with the input that was recorded: inputs and weights are compared.
    ItsInput,
    /// Those with its rows so many times. Nothing is compared.
    Rows(usize),
}

struct Inner {
    tree: Arc<Tree>,
    calls: Vec<RecordedCall>,
    points: Vec<LoggedPoint>,
    /// What the modules that can be answered compute with.
    weights: Vec<(String, Fingerprint)>,
    /// Variables that they compute with and do not show.
    variables: Vec<(Tensor, Fingerprint)>,
    rows: Mutex<Repeats>,
}

/// What is known of runs whose rows are repeated.
#[derive(Default)]
struct Repeats {
    /// By the number of the call.
    rows: Vec<Rows>,
    copies: usize,
    /// What calls gave, repeated as often as was last asked for.
    values: FastMap<usize, Tensor>,
}

struct RecordedCall {
    module: u32,
    visit: u32,
    /// When it began and ended, on the clock of the points.
    time: (u32, u32),
    /// May it be answered?
    value: Option<Tensor>,
    /// The modules that are called inside it, and how often.
    inside: Vec<(u32, u32)>,
    /// What it was called with.
    inputs: Fingerprint,
}

/// What becomes of a value when the rows of the input are repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rows {
    /// Nobody has looked: no run has [noted](crate::Plan::note_rows) it.
    Unknown,
    /// Its first dimension is the batch.
    Batch,
    /// It does not depend on the batch.
    Same,
    /// Something else: such calls are made.
    Other,
}

/// A point that was reached while a model was recorded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reached {
    /// Its name.
    pub name: String,
    /// The pattern that selects this point alone.
    pub pattern: Pattern,
    /// When, and with what shape, in order: one for each call.
    pub visits: Vec<Visit>,
}

/// One time that a point was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visit {
    /// When, on the clock of the recording, which counts everything that happened.
    pub time: u32,
    /// The shape of what was there.
    pub shape: Vec<usize>,
}

/// A call of a module, as it was recorded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replayable<'r> {
    /// The path of the module.
    pub name: Arc<str>,
    /// When the call began and ended, on the clock of the [visits](Visit).
    pub time: (u32, u32),
    /// What it gave.
    pub value: &'r Tensor,
    /// What becomes of the value when the rows of the input are repeated.
    pub rows: Rows,
}

impl Recording {
    /// From the logs of two runs with the same input: one that knows the order of everything, and one that
    /// nobody was watching, whose values are those of an ordinary run.
    pub(crate) fn new(tree: Arc<Tree>, times: Log, values: Log) -> Self {
        let counts = |log: &Log| {
            let mut counts: FastMap<u32, u32> = FastMap::default();
            log.calls.iter().for_each(|call| *counts.entry(call.module).or_insert(0) += 1);
            counts
        };
        let (timed, kept) = (counts(&times), counts(&values));
        let time: FastMap<(u32, u32), (u32, u32)> = times
            .calls
            .iter()
            .filter_map(|call| Some(((call.module, call.visit), (call.begin, call.end?))))
            .collect();
        let recorded = |(at, call): (usize, &LoggedCall)| {
            let inner = values.calls.get(at + 1..call.calls_until_end).unwrap_or_default();
            let mut inside: FastMap<u32, u32> = FastMap::default();
            inner.iter().for_each(|call| *inside.entry(call.module).or_insert(0) += 1);
            // Forward code may take another way while it is watched; then nobody knows which call is which.
            let alike = |module: &u32| timed.get(module) == kept.get(module);
            let same_way = alike(&call.module) && inside.keys().all(alike);
            let time = time.get(&(call.module, call.visit)).copied().filter(|_| same_way);
            let value = call.value.clone().filter(|_| !call.effects && call.end.is_some() && time.is_some());
            RecordedCall {
                module: call.module,
                visit: call.visit,
                time: time.unwrap_or_default(),
                value,
                inside: inside.into_iter().collect(),
                inputs: call.inputs,
            }
        };
        let calls = values.calls.iter().enumerate().map(recorded).collect();
        let (points, weights, variables, rows) = (times.points, Vec::new(), Vec::new(), Mutex::default());
        let inner = Arc::new(Inner { tree, calls, points, weights, variables, rows });
        Self { inner, of: Of::ItsInput }
    }

    /// The recording for runs whose input is the recorded one with all its rows so many times, one after the other.
    /// It answers the calls whose values have rows, or do not depend on them, as a plan that
    /// [notes rows](crate::Plan::note_rows) has found out; before that, and where there is more than one copy, none.
    ///
    /// Inputs and weights are not compared with the recorded ones, whatever the number of copies: they have to be
    /// right. What is learned of a recording is known to its clones and to those that are repeated, too.
    #[must_use]
    pub fn repeated(&self, copies: usize) -> Self {
        Self { inner: self.inner.clone(), of: Of::Rows(copies) }
    }

    fn copies(&self) -> usize {
        match self.of {
            Of::ItsInput => 1,
            Of::Rows(copies) => copies,
        }
    }

    /// Are inputs and weights compared with the recorded ones?
    pub(crate) fn compares(&self) -> bool {
        self.of == Of::ItsInput
    }

    /// Notes what the model computes with, so that it is seen when that has changed.
    pub(crate) fn note_weights(&mut self, weights: Vec<Weight>) -> Result<()> {
        let Some(inner) = Arc::get_mut(&mut self.inner) else { return Ok(()) };
        let modules: HashSet<Arc<str>> = inner
            .calls
            .iter()
            .filter(|call| call.value.is_some())
            .filter_map(|call| inner.tree.node_of_module(call.module))
            .map(|node| inner.tree.name(node))
            .collect();
        for weight in weights.into_iter().filter(|weight| is_inside(&weight.name, &modules)) {
            inner.weights.push((weight.name, of_weight(&weight.tensor)?));
        }
        let (mut met, mut variables) = (FastSet::default(), Vec::new());
        for value in inner.calls.iter().rev().filter_map(|call| call.value.as_ref()) {
            if !value.track_op() || met.contains(&value.id()) {
                continue;
            }
            for node in value.sorted_nodes() {
                if met.insert(node.id()) && node.is_variable() {
                    variables.push((node.clone(), of_weight(node)?));
                }
            }
        }
        inner.variables = variables;
        Ok(())
    }

    /// Does the model compute with what it had when it was recorded?
    pub(crate) fn check_weights(&self, weights: impl FnOnce() -> Vec<Weight>) -> Result<()> {
        let stale = |what: String| Err(ErrorKind::StaleRecording { what }.into());
        for (variable, before) in &self.inner.variables {
            if of_weight(variable)? != *before {
                return stale("a variable was set since then".to_string());
            }
        }
        let mut now: HashMap<String, Tensor> =
            weights().into_iter().map(|weight| (weight.name, weight.tensor)).collect();
        for (name, before) in &self.inner.weights {
            match now.remove(name) {
                Some(tensor) if of_weight(&tensor)? == *before => {}
                Some(_) => return stale(format!("`{name}` holds other numbers now")),
                None => return stale(format!("`{name}` is gone")),
            }
        }
        Ok(())
    }

    /// Looks at what became of the values in a run with so many copies of the input.
    pub(crate) fn compare_rows(&self, repeated: &Log, copies: usize) {
        let dims: FastMap<(u32, u32), &Vec<usize>> =
            repeated.calls.iter().map(|call| ((call.module, call.visit), &call.dims)).collect();
        let rows = self.inner.calls.iter().map(|call| {
            let Some(value) = &call.value else { return Rows::Unknown };
            let (one, all) = (value.dims(), dims.get(&(call.module, call.visit)));
            match all {
                Some(all) if *all == one => Rows::Same,
                Some(all) if is_repeated(one, all, copies) => Rows::Batch,
                _ => Rows::Other,
            }
        });
        self.inner.repeats().rows = rows.collect();
    }

    /// The calls of modules that can be answered, in the order in which they began.
    pub fn calls(&self) -> impl Iterator<Item = Replayable<'_>> {
        let rows = self.inner.repeats().rows.clone();
        self.inner.calls.iter().enumerate().filter_map(move |(at, call)| {
            let value = call.value.as_ref()?;
            let name = self.inner.tree.name(self.inner.tree.node_of_module(call.module)?);
            let rows = rows.get(at).copied().unwrap_or(Rows::Unknown);
            Some(Replayable { name, time: call.time, value, rows })
        })
    }

    /// The points that a pattern selects, in the order in which they were first reached.
    ///
    /// ```
    #[doc = include_str!("two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let (_, recording) = model.record(|m| m.forward(&x))?;
    /// let reached = recording.reached(&"*".parse()?)?;
    /// assert_eq!(reached.iter().map(|point| &*point.name).collect::<Vec<_>>(), ["up", "down"]);
    /// assert_eq!(reached[0].visits[0].shape, [1, 2]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn reached(&self, pattern: &Pattern) -> Result<Vec<Reached>> {
        let tree = &self.inner.tree;
        let on_path = |point: &&LoggedPoint| pattern.matches_path(tree.segments(point.key.node));
        let found = by_name(tree, self.inner.points.iter().filter(on_path), pattern).into_iter();
        let reached = |(name, visits): Named| {
            let visits = visits.into_iter().map(|(time, shape)| Visit { time, shape }).collect();
            Ok(Reached { pattern: name.parse()?, name, visits })
        };
        found.map(reached).collect()
    }

    /// When the last of everything happened.
    pub fn duration(&self) -> u32 {
        let points = self.inner.points.iter().flat_map(|point| &point.visits).map(|(time, _)| *time);
        points.max().unwrap_or(0)
    }

    /// Which calls need not be made by a run with these requests.
    pub(crate) fn schedule(
        &self,
        tree: &Arc<Tree>,
        requests: &[Request<'_>],
        heard: &dyn Fn(NodeId) -> bool,
    ) -> Result<Schedule> {
        let own = self.own_nodes(tree)?;
        let (mut wanted, mut change) = (Vec::new(), u32::MAX);
        for request in requests {
            if request.action.wants_gradient() {
                return Err(Error::msg(
                    "a run that is replayed has no gradients: what is not computed cannot be differentiated\n  \
                     leave out `.replay(..)`",
                ));
            }
            let looks = matches!(request.action, Action::Cache(_));
            let nodes: Vec<NodeId> =
                request.nodes.iter().filter_map(|node| own.get(*node as usize).copied().flatten()).collect();
            let mut times: Vec<u32> = Vec::new();
            let points = self.inner.points.iter().filter(|point| nodes.contains(&point.key.node));
            for (_, visits) in by_name(&self.inner.tree, points, &request.pattern) {
                let visits = visits.iter().map(|(time, _)| *time);
                wanted.extend(visits.clone());
                times.extend(visits.enumerate().filter_map(|(call, time)| {
                    request.pattern.call().is_none_or(|wanted| wanted == call).then_some(time)
                }));
            }
            if let Action::Call(..) = request.action {
                let is_module = |call: &&RecordedCall| {
                    let module = |node: &NodeId| self.inner.tree.node(*node).map(|node| node.number);
                    nodes.iter().filter_map(module).any(|module| module == call.module)
                };
                // Such a hook may see a call in which no tensor goes in.
                let inside = self.inner.calls.iter().filter(is_module).map(|call| call.time.0 + 1);
                wanted.extend(inside.clone());
                times.extend(inside);
            }
            if !looks {
                change = times.into_iter().fold(change, u32::min);
            }
        }
        // A listener may change what it hears.
        let listened: HashSet<NodeId> =
            (0..).zip(&own).filter(|(node, _)| heard(*node)).filter_map(|(_, own)| *own).collect();
        let module = |node: &NodeId| self.inner.tree.node(*node).map(|node| node.number);
        let modules: HashSet<u32> = listened.iter().filter_map(module).collect();
        let points = self.inner.points.iter().filter(|point| listened.contains(&point.key.node));
        let values = points.flat_map(|point| point.visits.iter().map(|(time, _)| *time));
        let calls = self.inner.calls.iter().filter(|call| modules.contains(&call.module));
        for time in values.chain(calls.map(|call| call.time.0 + 1)) {
            wanted.push(time);
            change = change.min(time);
        }
        wanted.sort_unstable();
        let is_undisturbed = |(begin, end): (u32, u32)| {
            let next = wanted.partition_point(|time| *time <= begin);
            end < change && wanted.get(next).is_none_or(|time| *time >= end)
        };
        let mut answers = FastMap::default();
        let (mut until, copies, repeats) = (0, self.copies(), self.inner.repeats());
        for (at, call) in self.inner.calls.iter().enumerate() {
            let fits = copies == 1 || matches!(repeats.rows.get(at), Some(Rows::Batch | Rows::Same));
            let can = call.value.is_some() && fits && call.time.0 > until;
            if can && is_undisturbed(call.time) {
                until = call.time.1;
                answers.insert((call.module, call.visit), at);
            }
        }
        Ok(Schedule { recording: self.clone(), answers })
    }

    /// For every node of `tree`, the one that it is here. The parameters of a model may come and go with
    /// its state.
    fn own_nodes(&self, tree: &Arc<Tree>) -> Result<Vec<Option<NodeId>>> {
        let own = &self.inner.tree;
        if Arc::ptr_eq(own, tree) {
            return Ok((0..tree.nodes.len() as NodeId).map(Some).collect());
        }
        own.same_modules(tree).map_err(|change| {
            Error::msg(format!(
                "the recording is of another model, or of this one before it was changed: {change}\n  \
                 record it again"
            ))
        })?;
        let mut by_name: HashMap<_, Vec<(Kind, NodeId)>> = HashMap::new();
        for (id, node) in own.nodes.iter().enumerate() {
            by_name.entry(own.name(id as NodeId)).or_default().push((node.kind, id as NodeId));
        }
        let is_own = |(id, kind): (usize, Kind)| {
            let named = by_name.get(&tree.name(id as NodeId))?;
            named.iter().find(|(other, _)| *other == kind).map(|(_, id)| *id)
        };
        Ok(tree.nodes.iter().map(|node| node.kind).enumerate().map(is_own).collect())
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kept = self.inner.calls.iter().filter(|call| call.value.is_some()).count();
        f.debug_struct("Recording").field("calls", &self.inner.calls.len()).field("kept", &kept).finish()
    }
}

impl Inner {
    fn repeats(&self) -> MutexGuard<'_, Repeats> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Is the weight of this name part of one of these modules?
fn is_inside(weight: &str, modules: &HashSet<Arc<str>>) -> bool {
    let ends = weight.match_indices(['.', ':']).map(|(at, _)| at).chain([0, weight.len()]);
    ends.into_iter().any(|end| weight.get(..end).is_some_and(|module| modules.contains(module)))
}

/// A variable may be set at any time and in any part; other tensors are written to by nobody that is not seen, so
/// that a sample will do.
fn of_weight(tensor: &Tensor) -> Result<Fingerprint> {
    let mut fingerprint = Fingerprint::default();
    match tensor.is_variable() {
        true => fingerprint.tensor(tensor)?,
        false => fingerprint.sample(tensor)?,
    }
    Ok(fingerprint)
}

/// A point by its name, and when it was reached, with what shape.
type Named = (String, Vec<(u32, Vec<usize>)>);

/// The points that a pattern selects, by name: bindings of two methods may have one, and are counted together. In the
/// order in which they were first reached.
fn by_name<'p>(tree: &Tree, points: impl Iterator<Item = &'p LoggedPoint>, pattern: &Pattern) -> Vec<Named> {
    let mut reached: Vec<Named> = Vec::new();
    let mut places: FastMap<String, usize> = FastMap::default();
    for point in points {
        let Some(value) = named_by(pattern, point) else { continue };
        let name = point_name(tree.segments(point.key.node), value);
        let at = *places.entry(name.clone()).or_insert(reached.len());
        match reached.get_mut(at) {
            Some((_, visits)) => visits.extend(point.visits.iter().cloned()),
            None => reached.push((name, point.visits.clone())),
        }
    }
    for (_, visits) in &mut reached {
        visits.sort_by_key(|(time, _)| *time);
    }
    reached.sort_by_key(|(_, visits)| visits.first().map(|(time, _)| *time));
    reached
}

/// By which of its names a pattern selects the value, if it does.
fn named_by<'p>(pattern: &Pattern, point: &'p LoggedPoint) -> Option<&'p str> {
    // A binding that is called `out` is not the output.
    let mut names = point.names.iter().filter(|name| *name != "out" || point.key.is_of_output());
    names.find(|name| pattern.matches_value(name)).map(String::as_str)
}

fn is_repeated(one: &[usize], all: &[usize], copies: usize) -> bool {
    match (one, all) {
        ([first, rest @ ..], [rows, others @ ..]) => rest == others && *rows == copies * first,
        _ => false,
    }
}

/// Which calls of a run are answered.
pub(crate) struct Schedule {
    recording: Recording,
    /// By module and number of the call: the number of the recorded one.
    answers: FastMap<(u32, u32), usize>,
}

impl Schedule {
    /// Are inputs compared with those that were recorded, before calls are answered?
    pub fn compares(&self) -> bool {
        self.recording.compares()
    }

    /// What a call was made with.
    pub fn inputs(&self, call: usize) -> Option<Fingerprint> {
        self.recording.inner.calls.get(call).map(|call| call.inputs)
    }

    pub fn answer(&self, module: u32, visit: u32) -> Option<usize> {
        self.answers.get(&(module, visit)).copied()
    }

    /// The modules that a call would have called, and how often.
    pub fn inside(&self, call: usize) -> &[(u32, u32)] {
        self.recording.inner.calls.get(call).map_or(&[], |call| &call.inside)
    }

    /// What a call gives, for as many copies of the input as there are.
    pub fn value(&self, at: usize) -> Option<Tensor> {
        let (inner, copies) = (&self.recording.inner, self.recording.copies());
        let value = inner.calls.get(at)?.value.as_ref()?;
        if copies == 1 {
            return Some(value.clone());
        }
        let mut repeats = inner.repeats();
        if repeats.rows.get(at) == Some(&Rows::Same) {
            return Some(value.clone());
        }
        if repeats.copies != copies {
            (repeats.copies, repeats.values) = (copies, FastMap::default());
        }
        if let Some(repeated) = repeats.values.get(&at) {
            return Some(repeated.clone());
        }
        let repeated = repeat_rows(value, copies).ok()?;
        repeats.values.insert(at, repeated.clone());
        Some(repeated)
    }
}

/// The rows of a tensor, all of them so many times.
fn repeat_rows(tensor: &Tensor, times: usize) -> candle_core::Result<Tensor> {
    match times {
        1 => Ok(tensor.clone()),
        _ => Tensor::cat(&vec![tensor.contiguous()?; times], 0),
    }
}
