//! What a run notes of the calls that it makes, and calls that it need not make because an earlier run has.
//!
//! A run with a [`Log`] notes which modules are called, in which order, and what they give; a scan notes
//! besides when every point is reached. A run with a [`Schedule`] answers the calls that stand in it with
//! what was noted. Which calls those are, a recording works out.
//!
//! A call is known by the number of its module and by how many calls of that module came before. Only
//! calls count that could be answered: of `forward*` methods of annotated types, and of foreign modules
//! with one tensor.

mod log;
mod replay;
mod schedule;

use std::cell::RefCell;
use std::rc::Rc;

use candle_core::Tensor;

use super::fire::Replace;
use super::observe::{Arrival, Follows, Observer, Over};
use super::RunState;
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::point::PointKey;
use crate::tree::NodeId;

pub(crate) use log::{Keeps, Log, LoggedCall, LoggedPoint};
pub(crate) use replay::Replaying;
pub use schedule::Rows;
pub(crate) use schedule::{Calls, RecordedCall, Schedule};

/// What a run does about calls.
#[derive(Default)]
pub(crate) enum Tape<'p> {
    #[default]
    Off,
    Noting(Rc<Noting>),
    Replaying(Rc<Replaying<'p>>),
}

impl<'p> Tape<'p> {
    /// Takes note of all calls.
    pub fn noting(keeps: Keeps) -> Self {
        Tape::Noting(Rc::new(Noting(Log::new(keeps).into())))
    }

    pub(super) fn observer(&self) -> Option<Rc<dyn Observer + 'p>> {
        match self {
            Tape::Off => None,
            Tape::Noting(noting) => Some(noting.clone()),
            Tape::Replaying(replaying) => Some(replaying.clone()),
        }
    }

    /// The calls that were noted, and the modules that were answered.
    pub fn finish(self) -> (Option<Log>, Vec<NodeId>) {
        match self {
            Tape::Off => (None, Vec::new()),
            Tape::Noting(noting) => (Some(noting.0.take()), Vec::new()),
            Tape::Replaying(replaying) => (None, replaying.replayed.take()),
        }
    }
}

/// A run that notes its calls.
pub(crate) struct Noting(RefCell<Log>);

impl Observer for Noting {
    fn follows(&self) -> Follows {
        Follows { calls: true, ..Follows::default() }
    }

    fn entered(&self, run: &RunState<'_>, depth: usize, call: Option<NodeId>) {
        if let Some(node) = call {
            self.0.borrow_mut().begin(run.module_number(node), depth);
        }
    }

    fn compares(&self, _: usize) -> bool {
        self.0.borrow().compares()
    }

    fn argument(&self, depth: usize, note: &dyn Fn(&mut Fingerprint)) {
        let log = &mut *self.0.borrow_mut();
        let open = log.open.last().filter(|(open, _)| log.compares() && *open == depth);
        if let Some(call) = open.and_then(|(_, call)| log.calls.get_mut(*call)) {
            note(&mut call.inputs);
        }
    }

    fn leaf(
        &self,
        run: &RunState<'_>,
        node: NodeId,
        inputs: &dyn Fn() -> Fingerprint,
    ) -> Result<Option<Tensor>> {
        let log = &mut *self.0.borrow_mut();
        log.begin(run.module_number(node), run.stack.depth());
        let compares = log.compares();
        if let Some(call) = log.calls.last_mut().filter(|_| compares) {
            call.inputs = inputs();
        }
        Ok(None)
    }

    fn gave(&self, run: &RunState<'_>, depth: usize, node: NodeId, value: Option<&Tensor>) {
        // What cannot be copied is not kept, and the call is made again.
        let value = value.and_then(|value| run.photograph(value).ok());
        self.0.borrow_mut().end(depth, run.module_number(node), value.as_ref());
    }

    fn left(&self, depth: usize) {
        self.0.borrow_mut().close(depth);
    }

    fn effect(&self) {
        self.0.borrow_mut().effect();
    }

    fn reached(&self, arrival: &Arrival<'_>) {
        self.0.borrow_mut().point(arrival.key, arrival.names, arrival.value.dims().to_vec());
    }
}

impl RunState<'_> {
    pub(super) fn module_number(&self, node: NodeId) -> u32 {
        self.tree.node(node).map_or(u32::MAX, |node| node.number)
    }

    /// Shows the result of a call that was not made, to those who want it.
    pub(super) fn show_replayed(&self, node: NodeId, value: Tensor) -> Result<Tensor> {
        let names = || vec!["out".to_string()];
        let value = self.lent(value)?;
        let shown = self.fire(PointKey::output(node), &names, &value, Replace::Yes);
        if let Err(error) = &shown {
            self.fail(error.clone());
        }
        self.over(node, Over::Values);
        self.over(node, Over::Method { method: 0, is_call: true });
        match self.ended() {
            Some(error) => Err(error),
            None => Ok(shown?.unwrap_or(value)),
        }
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
    if crate::erased::active() {
        note_effect();
    }
}

#[cold]
#[inline(never)]
fn note_effect() {
    crate::run::current(|state| state.effect());
}
