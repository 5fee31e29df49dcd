//! What a run notes of the calls that it makes, and calls that it need not make because an earlier run has.
//!
//! A run with a [`Log`] notes which modules are called, in which order, and what they give; a scan notes
//! besides when every point is reached. A run with a [`Schedule`] answers the calls that stand in it with
//! what was noted. Which calls those are is worked out in [`crate::recording`].
//!
//! A call is known by the number of its module and by how many calls of that module came before. Only
//! calls count that could be answered: of `forward*` methods of annotated types, and of foreign modules
//! with one tensor.

use std::cell::RefCell;

use candle_core::Tensor;

use super::call_hooks::look;
use super::fire::Replace;
use super::{PointKey, RunState};
use crate::error::{ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::lookup::FastMap;
use crate::raw::Erased;
use crate::recording::Schedule;
use crate::tree::NodeId;
use crate::value::ValueOps;

/// What a run does about calls.
#[derive(Default)]
pub(crate) enum Tape<'p> {
    #[default]
    Off,
    Noting(RefCell<Log>),
    Replaying(Replaying<'p>),
}

/// The calls of a run, and when its points were reached.
#[derive(Default)]
pub(crate) struct Log {
    /// Counts everything that is noted.
    clock: u32,
    /// In the order in which they began; what is called inside a call follows it.
    pub calls: Vec<LoggedCall>,
    /// Calls that have not returned, each with the number of frames around and including it.
    open: Vec<(usize, usize)>,
    counts: FastMap<u32, u32>,
    pub points: Vec<LoggedPoint>,
    by_key: FastMap<PointKey, usize>,
    /// Are results kept, or only what they look like?
    keeps: bool,
}

/// A call of a module.
pub(crate) struct LoggedCall {
    /// The number of the module.
    pub module: u32,
    /// How many calls of it came before.
    pub visit: u32,
    pub begin: u32,
    /// When it returned; none where it failed, or returned something other than one tensor.
    pub end: Option<u32>,
    /// How many calls were made up to its end: those inside it, and all before.
    pub calls_until_end: usize,
    pub value: Option<Tensor>,
    pub dims: Vec<usize>,
    /// May it have changed something besides its result?
    pub effects: bool,
    /// What it was called with.
    pub inputs: Fingerprint,
}

/// A point that was reached.
pub(crate) struct LoggedPoint {
    pub key: PointKey,
    pub names: Vec<String>,
    /// When, and with what shape.
    pub visits: Vec<(u32, Vec<usize>)>,
}

/// A run that answers calls with what is noted.
pub(crate) struct Replaying<'p> {
    schedule: &'p Schedule,
    counts: RefCell<FastMap<u32, u32>>,
    /// Methods that were entered, by their number of frames, what they are answered with, and what they are called
    /// with.
    entered: RefCell<Vec<(usize, usize, Fingerprint)>>,
    pub replayed: RefCell<Vec<NodeId>>,
}

/// Is what calls give kept, or only what it looks like?
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Keeps {
    Values,
    Shapes,
}

impl Log {
    pub fn new(keeps: Keeps) -> Self {
        Self { keeps: keeps == Keeps::Values, ..Self::default() }
    }

    fn tick(&mut self) -> u32 {
        self.clock += 1;
        self.clock
    }

    fn begin(&mut self, module: u32, depth: usize) {
        let count = self.counts.entry(module).or_insert(0);
        let visit = *count;
        *count += 1;
        let begin = self.tick();
        self.open.push((depth, self.calls.len()));
        let (end, value, dims) = (None, None, Vec::new());
        self.calls.push(LoggedCall {
            module,
            visit,
            begin,
            end,
            calls_until_end: 0,
            value,
            dims,
            effects: false,
            inputs: Fingerprint::default(),
        });
    }

    /// Notes what the call that was begun with this many frames has given.
    fn end(&mut self, depth: usize, module: u32, value: Option<&Tensor>) {
        let Some(at) = self.open.iter().rposition(|(open, call)| {
            *open == depth && self.calls.get(*call).is_some_and(|call| call.module == module)
        }) else {
            return;
        };
        let (time, all) = (self.tick(), self.calls.len());
        // What was opened later and is still open did not return.
        let ended = self.open.drain(at..).next().map(|(_, call)| call);
        let Some(call) = ended.and_then(|call| self.calls.get_mut(call)) else { return };
        let Some(value) = value else { return };
        call.end = Some(time);
        call.calls_until_end = all;
        call.dims = value.dims().to_vec();
        call.value = Some(value).filter(|_| self.keeps).cloned();
    }

    /// Forgets calls that are not over although the method around them is.
    fn close(&mut self, depth: usize) {
        self.open.retain(|(open, _)| *open < depth);
    }

    /// Something may be changed now that no result tells of.
    fn effect(&mut self) {
        for (_, call) in &self.open {
            if let Some(call) = self.calls.get_mut(*call) {
                call.effects = true;
            }
        }
    }

    fn point(&mut self, key: PointKey, names: &dyn Fn() -> Vec<String>, dims: Vec<usize>) {
        let (time, next) = (self.tick(), self.points.len());
        let at = *self.by_key.entry(key).or_insert(next);
        if at == next {
            self.points.push(LoggedPoint { key, names: names(), visits: Vec::new() });
        }
        if let Some(point) = self.points.get_mut(at) {
            point.visits.push((time, dims));
        }
    }
}

impl<'p> Replaying<'p> {
    pub fn new(schedule: &'p Schedule) -> Self {
        let (counts, entered, replayed) = Default::default();
        Self { schedule, counts, entered, replayed }
    }

    /// Counts one more call of a module; gives the noted call that answers it, if one does.
    fn begin(&self, module: u32) -> Option<usize> {
        let mut counts = self.counts.borrow_mut();
        let count = counts.entry(module).or_insert(0);
        let answer = self.schedule.answer(module, *count);
        *count += 1;
        // What it would have called is not called, and yet counts.
        for (inner, many) in answer.map_or(&[][..], |call| self.schedule.inside(call)) {
            *counts.entry(*inner).or_insert(0) += many;
        }
        answer
    }
}

impl RunState<'_> {
    fn module_number(&self, node: NodeId) -> u32 {
        self.tree.node(node).map_or(u32::MAX, |node| node.number)
    }

    /// A method with so many frames, itself included, is entered.
    #[cold]
    #[inline(never)]
    pub(super) fn tape_enter(&self, node: Option<NodeId>, is_call: bool, depth: usize) {
        let call = node.filter(|_| is_call).map(|node| self.module_number(node));
        match &self.listeners.tape {
            Tape::Off => {}
            Tape::Noting(log) => {
                if let Some(module) = call {
                    log.borrow_mut().begin(module, depth);
                }
            }
            Tape::Replaying(replaying) => {
                if let Some(answer) = call.and_then(|module| replaying.begin(module)) {
                    replaying.entered.borrow_mut().push((depth, answer, Fingerprint::default()));
                }
            }
        }
    }

    /// What the method that was just entered gives, where that is known.
    #[cold]
    #[inline(never)]
    pub(super) fn tape_answer(&self, depth: usize) -> Result<Option<(NodeId, Tensor)>> {
        let Tape::Replaying(replaying) = &self.listeners.tape else { return Ok(None) };
        let last = replaying.entered.borrow_mut().pop_if(|(entered, ..)| *entered == depth);
        let node = self.stack.frames.borrow().get(depth - 1).and_then(|frame| frame.node);
        let (Some((_, answer, inputs)), Some(node)) = (last, node) else { return Ok(None) };
        self.check_inputs(replaying, answer, node, inputs)?;
        replaying.replayed.borrow_mut().push(node);
        Ok(replaying.schedule.value(answer).map(|value| (node, value)))
    }

    /// A call is answered only where it is made with what was recorded.
    fn check_inputs(
        &self,
        replaying: &Replaying<'_>,
        answer: usize,
        node: NodeId,
        inputs: Fingerprint,
    ) -> Result<()> {
        if !replaying.schedule.compares() || replaying.schedule.inputs(answer) == Some(inputs) {
            return Ok(());
        }
        let what = format!("`{}` is called with something else", self.tree.name(node));
        Err(ErrorKind::StaleRecording { what }.into())
    }

    /// Does it matter what the method with so many frames is called with?
    pub(super) fn tape_compares(&self, depth: usize) -> bool {
        match &self.listeners.tape {
            Tape::Off => false,
            Tape::Noting(log) => log.borrow().keeps,
            Tape::Replaying(replaying) => {
                let entered = replaying.entered.borrow();
                replaying.schedule.compares() && entered.last().is_some_and(|(entered, ..)| *entered == depth)
            }
        }
    }

    /// Notes an argument of the method with so many frames.
    fn note_input(&self, depth: usize, note: impl FnOnce(&mut Fingerprint)) {
        match &self.listeners.tape {
            Tape::Off => {}
            Tape::Noting(log) => {
                let log = &mut *log.borrow_mut();
                let open = log.open.last().filter(|(open, _)| log.keeps && *open == depth);
                if let Some(call) = open.and_then(|(_, call)| log.calls.get_mut(*call)) {
                    note(&mut call.inputs);
                }
            }
            Tape::Replaying(replaying) => {
                let mut entered = replaying.entered.borrow_mut();
                let last = entered.last_mut().filter(|(entered, ..)| *entered == depth);
                if let Some((.., inputs)) = last.filter(|_| replaying.schedule.compares()) {
                    note(inputs);
                }
            }
        }
    }

    pub(super) fn tape_scalar(&self, depth: usize, number: u32, text: &str) {
        self.note_input(depth, |inputs| {
            inputs.word(u64::from(number));
            inputs.text(text);
        });
    }

    #[cold]
    #[inline(never)]
    pub(super) fn tape_input(&self, depth: usize, number: u32, value: Erased<'_>) {
        self.note_input(depth, |inputs| {
            inputs.word(u64::from(number));
            note_tensors(value, inputs);
        });
    }

    /// A method has this result.
    #[cold]
    #[inline(never)]
    pub(super) fn tape_result<R>(&self, depth: usize, ops: &ValueOps<R>, result: &mut R) {
        let Tape::Noting(log) = &self.listeners.tape else { return };
        let call = match self.stack.frames.borrow().get(depth - 1) {
            Some(frame) if frame.is_call && frame.method.is_forward() => frame.node,
            _ => None,
        };
        let Some(module) = call.map(|node| self.module_number(node)) else { return };
        let mut value = None;
        if let (Some(each_tensor), Some(_)) = (ops.each_tensor, ops.from_tensor) {
            let seen = each_tensor(result, &mut |_, tensor| {
                value = Some(self.photograph(tensor)?);
                Ok(())
            });
            value = value.filter(|_| seen.is_ok());
        }
        log.borrow_mut().end(depth, module, value.as_ref());
    }

    #[cold]
    #[inline(never)]
    pub(super) fn tape_leave(&self, depth: usize) {
        match &self.listeners.tape {
            Tape::Off => {}
            Tape::Noting(log) => log.borrow_mut().close(depth),
            Tape::Replaying(replaying) => {
                replaying.entered.borrow_mut().retain(|(entered, ..)| *entered < depth);
            }
        }
    }

    /// A foreign module is about to be called with one tensor: what it gives, where that is known.
    pub(super) fn tape_leaf(&self, node: NodeId, given: &[Erased<'_>]) -> Result<Option<Tensor>> {
        let module = self.module_number(node);
        let inputs = || {
            let mut inputs = Fingerprint::default();
            given.iter().for_each(|value| note_tensors(*value, &mut inputs));
            inputs
        };
        match &self.listeners.tape {
            Tape::Off => Ok(None),
            Tape::Noting(log) => {
                let depth = self.stack.depth();
                let log = &mut *log.borrow_mut();
                log.begin(module, depth);
                if let Some(call) = log.calls.last_mut().filter(|_| log.keeps) {
                    call.inputs = inputs();
                }
                Ok(None)
            }
            Tape::Replaying(replaying) => {
                let Some(answer) = replaying.begin(module) else { return Ok(None) };
                if replaying.schedule.compares() {
                    self.check_inputs(replaying, answer, node, inputs())?;
                }
                let value = replaying.schedule.value(answer);
                replaying.replayed.borrow_mut().extend(value.as_ref().map(|_| node));
                Ok(value)
            }
        }
    }

    /// What it gave.
    #[cold]
    #[inline(never)]
    pub(super) fn tape_leaf_result(&self, node: NodeId, value: Option<&Tensor>) {
        let Tape::Noting(log) = &self.listeners.tape else { return };
        let depth = self.stack.depth();
        // What cannot be copied is not kept, and the call is made again.
        let value = value.and_then(|value| self.photograph(value).ok());
        log.borrow_mut().end(depth, self.module_number(node), value.as_ref());
    }

    /// Shows the result of a call that was not made, to those who want it.
    pub(super) fn show_replayed(&self, node: NodeId, value: Tensor) -> Result<Tensor> {
        let names = || vec!["out".to_string()];
        let value = self.lent(value)?;
        let shown = self.fire(PointKey::output(node), &names, &value, Replace::Yes);
        if let Err(error) = &shown {
            self.fail(error.clone());
        }
        self.settle(node);
        self.method_is_over(node, 0, true);
        match self.ended() {
            Some(error) => Err(error),
            None => Ok(shown?.unwrap_or(value)),
        }
    }

    /// A point is reached, in a scan.
    pub(super) fn tape_point(&self, key: PointKey, names: &dyn Fn() -> Vec<String>, dims: &[usize]) {
        if let Tape::Noting(log) = &self.listeners.tape {
            log.borrow_mut().point(key, names, dims.to_vec());
        }
    }

    pub(super) fn tape_effect(&self) {
        if let Tape::Noting(log) = &self.listeners.tape {
            log.borrow_mut().effect();
        }
    }
}

/// The numbers in a value, whatever its type is.
fn note_tensors(value: Erased<'_>, inputs: &mut Fingerprint) {
    // What cannot be read is not compared; a call with a value that nobody can look into is not answered.
    let _ = look(&value, &mut |part, label, tensor| {
        inputs.word(u64::from(part));
        inputs.text(label);
        let _ = inputs.tensor(tensor);
    });
    if let Some(flag) = value.get::<bool>() {
        inputs.word(u64::from(*flag));
    }
}

/// Says that forward code changes something now that its result does not tell of: a cache of keys and
/// values, a counter, a random generator. Calls of modules in which this happens are never
/// [replayed](crate::Plan::replay).
///
/// Methods that take `&mut self` or another `&mut`, and types that hold a cell or a lock, are taken to do
/// such things without saying so, unless they are declared `#[hook(pure)]`. So this is for two cases: state
/// that cannot be seen from there, and a method that is declared pure but is so only at times. It costs one
/// load and one branch where nobody listens.
///
/// ```
/// use candle_core::{Device, Result, Tensor};
/// use candle_nn::{Linear, Module};
/// use hookpoint::prelude::*;
/// use std::cell::RefCell;
///
/// thread_local!(static SEEN: RefCell<usize> = RefCell::default());
///
/// #[derive(AutoHook)]
/// struct Layer { linear: Linear }
///
/// #[auto_hook]
/// impl Layer {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         SEEN.with_borrow_mut(|seen| *seen += 1);
///         hookpoint::side_effect();
///         self.linear.forward(x)
///     }
/// }
///
/// let layer = Layer { linear: Linear::new(Tensor::new(&[[1f32, 2.]], &Device::Cpu)?, None) };
/// let model = Hooked::new(layer);
/// let x = Tensor::new(&[[3f32, 4.]], &Device::Cpu)?;
/// let (output, recording) = model.record(|m| m.forward(&x))?;
/// let run = model.plan().replay(&recording)?.run(|m| m.forward(&x))?;
/// assert_eq!(run.output.to_vec2::<f32>()?, output.to_vec2::<f32>()?);
/// // The layer has run again; what is inside it has not.
/// assert_eq!(run.replayed().collect::<Vec<_>>(), ["linear"]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[inline(always)]
pub fn side_effect() {
    if crate::raw::active() {
        note_effect();
    }
}

#[cold]
#[inline(never)]
fn note_effect() {
    crate::run::current(|state| state.effect());
}

impl Tape<'_> {
    /// Takes note of all calls.
    pub fn noting(keeps: Keeps) -> Self {
        Tape::Noting(Log::new(keeps).into())
    }

    /// Does it note calls, or answer them?
    #[inline]
    pub fn is_on(&self) -> bool {
        !matches!(self, Tape::Off)
    }

    /// The calls that were noted, and the modules that were answered.
    pub fn finish(self) -> (Option<Log>, Vec<NodeId>) {
        match self {
            Tape::Off => (None, Vec::new()),
            Tape::Noting(noted) => (Some(noted.into_inner()), Vec::new()),
            Tape::Replaying(replaying) => (None, replaying.replayed.into_inner()),
        }
    }
}
