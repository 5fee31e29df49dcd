//! What a model did for one input, so that later runs with the same input need not do it again.
//!
//! A recording knows in which order modules were called and points were reached, and what the modules
//! gave. A plan that replays it is told by that order how far its run will be the same: up to the first
//! point that it may change. Every call that is over by then, and inside which nothing is wanted, is
//! answered with what it gave before. Calls that are not answered are made, whatever they are: so code
//! between modules, and modules with side effects, always run.

mod schedule;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use candle_core::Tensor;

use crate::error::{ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::lookup::{FastMap, FastSet};
use crate::pattern::{point_name, Pattern};
pub use crate::run::Rows;
use crate::run::{Calls, Log, LoggedCall, LoggedPoint, RecordedCall};
use crate::tree::{Tree, Weight};

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
    /// Which model it is of, and in which state.
    version: u64,
    calls: Arc<Calls>,
    points: Vec<LoggedPoint>,
    /// What the modules that can be answered compute with.
    weights: Vec<(String, Fingerprint)>,
    /// Variables that they compute with and do not show.
    variables: Vec<(Tensor, Fingerprint)>,
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
    pub(crate) fn new(tree: Arc<Tree>, version: u64, times: Log, values: Log) -> Self {
        let counts = |log: &Log| {
            let mut counts: FastMap<u32, u32> = FastMap::default();
            log.calls.iter().for_each(|call| *counts.entry(call.module).or_insert(0) += 1);
            counts
        };
        let (timed, kept) = (counts(&times), counts(&values));
        let changing = changing(&times, &values);
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
            let inside_and_itself = at..call.calls_until_end.max(at + 1);
            let is_free = !call.effects && changing.range(inside_and_itself).next().is_none();
            let value = call.value.clone().filter(|_| is_free && call.end.is_some() && time.is_some());
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
        let calls = Arc::new(Calls::new(calls));
        let (points, weights, variables) = (times.points, Vec::new(), Vec::new());
        let inner = Arc::new(Inner { tree, version, calls, points, weights, variables });
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
            .list
            .iter()
            .filter(|call| call.value.is_some())
            .filter_map(|call| inner.tree.node_of_module(call.module))
            .map(|node| inner.tree.name(node))
            .collect();
        for weight in weights.into_iter().filter(|weight| is_inside(&weight.name, &modules)) {
            inner.weights.push((weight.name, of_weight(&weight.tensor)?));
        }
        let (mut met, mut variables) = (FastSet::default(), Vec::new());
        for value in inner.calls.list.iter().rev().filter_map(|call| call.value.as_ref()) {
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
    pub(crate) fn check_weights(&self, version: u64, weights: impl FnOnce() -> Vec<Weight>) -> Result<()> {
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
        // What else has changed is not seen.
        if version != self.inner.version {
            return stale(
                "it is of another `Hooked`, or the model was borrowed mutably since then".to_string(),
            );
        }
        Ok(())
    }

    /// Looks at what became of the values in a run with so many copies of the input.
    pub(crate) fn compare_rows(&self, repeated: &Log, copies: usize) {
        let dims: FastMap<(u32, u32), &Vec<usize>> =
            repeated.calls.iter().map(|call| ((call.module, call.visit), &call.dims)).collect();
        let rows = self.inner.calls.list.iter().map(|call| {
            let Some(value) = &call.value else { return Rows::Unknown };
            let (one, all) = (value.dims(), dims.get(&(call.module, call.visit)));
            match all {
                Some(all) if *all == one => Rows::Same,
                Some(all) if is_repeated(one, all, copies) => Rows::Batch,
                _ => Rows::Other,
            }
        });
        self.inner.calls.repeats().rows = rows.collect();
    }

    /// The calls of modules that can be answered, in the order in which they began.
    pub fn calls(&self) -> impl Iterator<Item = Replayable<'_>> {
        let rows = self.inner.calls.repeats().rows.clone();
        self.inner.calls.list.iter().enumerate().filter_map(move |(at, call)| {
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
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kept = self.inner.calls.list.iter().filter(|call| call.value.is_some()).count();
        f.debug_struct("Recording").field("calls", &self.inner.calls.list.len()).field("kept", &kept).finish()
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

/// The calls that gave something else in one of the runs although they were given the same in both, by their number in
/// the second: they depend on something that is not seen.
fn changing(times: &Log, values: &Log) -> BTreeSet<usize> {
    let first: FastMap<(u32, u32), &LoggedCall> =
        times.calls.iter().map(|call| ((call.module, call.visit), call)).collect();
    let changes = |call: &LoggedCall| {
        let before = first.get(&(call.module, call.visit));
        let is_noted = |before: &&&LoggedCall| before.output != Fingerprint::default();
        before
            .filter(is_noted)
            .is_some_and(|before| before.inputs == call.inputs && before.output != call.output)
    };
    values.calls.iter().enumerate().filter(|(_, call)| changes(call)).map(|(at, _)| at).collect()
}

fn is_repeated(one: &[usize], all: &[usize], copies: usize) -> bool {
    match (one, all) {
        ([first, rest @ ..], [rows, others @ ..]) => rest == others && *rows == copies * first,
        _ => false,
    }
}
