//! Those who follow a run as a whole, whatever its plan asks for at the points: a scan, or what ends a run that only
//! collects. Sites tell all of them the same things and do not know who they are.
//!
//! They are told more than a [`Listener`](crate::Listener) is: call sites of modules that are no points, points by their
//! numbers, and when nothing more can come of a call. A new one is a file that implements [`Observer`] and a line in
//! [`Listeners::new`](super::listening::Listeners::new).

use candle_core::Tensor;

use super::call::CallSite;
use super::call_hooks::look;
use super::RunState;
use crate::erased::Erased;
use crate::error::{ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::point::PointKey;
use crate::tree::NodeId;
use crate::value::ValueOps;

/// What an observer has to be told of.
#[derive(Clone, Copy, Default)]
pub(super) struct Follows {
    /// Every point, and not only those that somebody asked for; and so every call, operation and value.
    pub points: bool,
    /// That a call is over, whatever it gave.
    pub results: bool,
    /// Every call that could be answered: what it is made with and what it gives, and what else is changed.
    pub calls: bool,
}

impl Follows {
    pub fn nothing(self) -> bool {
        !self.points && !self.results
    }
}

/// A value that has reached its point.
pub(super) struct Arrival<'a> {
    pub key: PointKey,
    /// The number of the point, and how many values have reached it before.
    pub number: u32,
    pub visit: usize,
    /// All its names.
    pub names: &'a dyn Fn() -> Vec<String>,
    pub value: &'a Tensor,
}

/// What is over at a node.
#[derive(Clone, Copy)]
pub(super) enum Over {
    /// Values that are looked at together, such as the parts of one result.
    Values,
    /// The inputs of a call: none comes after.
    Inputs,
    /// A method, which gave something; or with `is_call` a call of the module as such.
    Method { method: usize, is_call: bool },
}

/// Follows a run.
pub(super) trait Observer {
    /// What it has to be told of, asked as the run begins.
    fn follows(&self) -> Follows;

    /// A module is called here. `is_point` says whether it is one of the model's.
    fn called(&self, site: &'static CallSite, is_point: bool) {
        let _ = (site, is_point);
    }

    /// A value has reached its point.
    fn reached(&self, arrival: &Arrival<'_>) {
        let _ = arrival;
    }

    /// A cache has taken a value.
    fn taken(&self, request: u32, key: PointKey) {
        let _ = (request, key);
    }

    /// An annotated method is entered, after which there are so many frames. `call` is the module, where it is a call of the
    /// module by a `forward*`.
    fn entered(&self, run: &RunState<'_>, depth: usize, call: Option<NodeId>) {
        let _ = (run, depth, call);
    }

    /// Does it matter what the method with so many frames is called with, numbers included?
    fn compares(&self, depth: usize) -> bool {
        let _ = depth;
        false
    }

    /// An argument of that method, to be taken note of.
    fn argument(&self, depth: usize, note: &dyn Fn(&mut Fingerprint)) {
        let _ = (depth, note);
    }

    /// What the method that was just entered gives, where it need not run.
    fn answer(&self, run: &RunState<'_>, depth: usize) -> Result<Option<Tensor>> {
        let _ = (run, depth);
        Ok(None)
    }

    /// As `entered`, `argument` and `answer` of a foreign module, which is about to be called with one tensor.
    fn leaf(
        &self,
        run: &RunState<'_>,
        node: NodeId,
        inputs: &dyn Fn() -> Fingerprint,
    ) -> Result<Option<Tensor>> {
        let _ = (run, node, inputs);
        Ok(None)
    }

    /// A call of a module gives this: one tensor, or something else.
    fn gave(&self, run: &RunState<'_>, depth: usize, node: NodeId, value: Option<&Tensor>) {
        let _ = (run, depth, node, value);
    }

    /// The method with so many frames is left.
    fn left(&self, depth: usize) {
        let _ = depth;
    }

    /// Something may be changed now that no result tells of.
    fn effect(&self) {}

    /// Something is over. May the run end here?
    fn over(&self, node: NodeId, what: Over) -> bool {
        let _ = (node, what);
        false
    }
}

impl RunState<'_> {
    /// Tells everybody who follows the run.
    #[inline]
    pub(super) fn observed(&self, tell: impl Fn(&dyn Observer)) {
        for observer in &self.listeners.observers {
            tell(&**observer);
        }
    }

    /// The same, those who follow calls.
    #[inline]
    pub(super) fn calls_observed(&self, tell: impl Fn(&dyn Observer)) {
        if self.listeners.follows.calls {
            self.observed(tell);
        }
    }

    /// Does it matter to somebody what the method with so many frames is called with?
    pub(super) fn compares(&self, depth: usize) -> bool {
        self.listeners.observers.iter().any(|observer| observer.compares(depth))
    }

    /// A number, a flag or the like that the method with so many frames is called with.
    pub(super) fn scalar_observed(&self, depth: usize, number: u32, text: &str) {
        let note = |inputs: &mut Fingerprint| {
            inputs.word(u64::from(number));
            inputs.text(text);
        };
        self.observed(|observer| observer.argument(depth, &note));
    }

    /// Any other argument.
    #[cold]
    #[inline(never)]
    pub(super) fn argument_observed(&self, depth: usize, number: u32, value: Erased<'_>) {
        let note = |inputs: &mut Fingerprint| {
            inputs.word(u64::from(number));
            note_tensors(value, inputs);
        };
        self.observed(|observer| observer.argument(depth, &note));
    }

    /// What the method that was just entered gives, where somebody knows.
    #[cold]
    pub(super) fn observers_answer(&self, depth: usize) -> Result<Option<Tensor>> {
        for observer in &self.listeners.observers {
            if let Some(answer) = observer.answer(self, depth)? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// The same of a foreign module that is about to be called with one tensor.
    pub(super) fn observers_answer_leaf(&self, node: NodeId, given: &[Erased<'_>]) -> Result<Option<Tensor>> {
        let inputs = || {
            let mut inputs = Fingerprint::default();
            given.iter().for_each(|value| note_tensors(*value, &mut inputs));
            inputs
        };
        let mut answer = None;
        for observer in &self.listeners.observers {
            answer = answer.or(observer.leaf(self, node, &inputs)?);
        }
        Ok(answer)
    }

    /// A method has this result.
    #[cold]
    #[inline(never)]
    pub(super) fn result_observed<R>(&self, depth: usize, ops: &ValueOps<R>, result: &mut R) {
        let call = match self.stack.frames.borrow().get(depth - 1) {
            Some(frame) if frame.is_call && frame.method.is_forward() => frame.node,
            _ => None,
        };
        let Some(node) = call else { return };
        let mut value = None;
        if let (Some(each_tensor), Some(_)) = (ops.each_tensor, ops.from_tensor) {
            let seen = each_tensor(result, &mut |_, tensor| {
                value = Some(tensor.clone());
                Ok(())
            });
            value = value.filter(|_| seen.is_ok());
        }
        self.observed(|observer| observer.gave(self, depth, node, value.as_ref()));
    }

    /// Something is over, after which the run may end.
    #[inline]
    pub(super) fn over(&self, node: NodeId, what: Over) {
        if self.listeners.follows.results {
            self.tell_over(node, what);
        }
    }

    #[cold]
    fn tell_over(&self, node: NodeId, what: Over) {
        let mut ends = false;
        for observer in &self.listeners.observers {
            ends |= observer.over(node, what);
        }
        if ends {
            self.fail(ErrorKind::Stopped.into());
        }
    }

    /// The method with so many frames has been shown its last argument.
    pub(super) fn arguments_shown(&self, depth: usize) {
        if !self.listeners.follows.results {
            return;
        }
        let frames = self.stack.frames.borrow();
        let node = frames.get(depth - 1).filter(|frame| frame.is_call).and_then(|frame| frame.node);
        drop(frames);
        if let Some(node) = node {
            self.over(node, Over::Inputs);
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
        // Another layout of the same numbers is computed with in another order, and may be looked at.
        if !tensor.is_contiguous() {
            tensor.stride().iter().for_each(|stride| inputs.word(*stride as u64));
        }
    });
    if let Some(flag) = value.get::<bool>() {
        inputs.word(u64::from(*flag));
    }
}
