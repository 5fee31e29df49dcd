//! A run that answers calls with what an earlier run has noted of them.

use std::cell::RefCell;

use candle_core::Tensor;

use super::Schedule;
use crate::error::{ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::lookup::FastMap;
use crate::run::observe::{Follows, Observer};
use crate::run::RunState;
use crate::tree::NodeId;

/// A run that answers calls with what is noted.
pub(crate) struct Replaying<'p> {
    schedule: &'p Schedule,
    counts: RefCell<FastMap<u32, u32>>,
    /// Methods that were entered, by their number of frames, what they are answered with, and what they are called
    /// with.
    entered: RefCell<Vec<(usize, usize, Fingerprint)>>,
    pub replayed: RefCell<Vec<NodeId>>,
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

    /// A call is answered only where it is made with what was recorded.
    fn check_inputs(
        &self,
        run: &RunState<'_>,
        answer: usize,
        node: NodeId,
        inputs: impl FnOnce() -> Fingerprint,
    ) -> Result<()> {
        if !self.schedule.compares || self.schedule.inputs(answer) == Some(inputs()) {
            return Ok(());
        }
        let what = format!("`{}` is called with something else", run.tree.name(node));
        Err(ErrorKind::StaleRecording { what }.into())
    }
}

impl Observer for Replaying<'_> {
    fn follows(&self) -> Follows {
        Follows { calls: true, ..Follows::default() }
    }

    fn entered(&self, run: &RunState<'_>, depth: usize, call: Option<NodeId>) {
        if let Some(answer) = call.and_then(|node| self.begin(run.module_number(node))) {
            self.entered.borrow_mut().push((depth, answer, Fingerprint::default()));
        }
    }

    fn compares(&self, depth: usize) -> bool {
        let entered = self.entered.borrow();
        self.schedule.compares && entered.last().is_some_and(|(entered, ..)| *entered == depth)
    }

    fn argument(&self, depth: usize, note: &dyn Fn(&mut Fingerprint)) {
        let mut entered = self.entered.borrow_mut();
        let last = entered.last_mut().filter(|(entered, ..)| *entered == depth);
        if let Some((.., inputs)) = last.filter(|_| self.schedule.compares) {
            note(inputs);
        }
    }

    fn answer(&self, run: &RunState<'_>, depth: usize) -> Result<Option<Tensor>> {
        let last = self.entered.borrow_mut().pop_if(|(entered, ..)| *entered == depth);
        let node = run.stack.frames.borrow().get(depth - 1).and_then(|frame| frame.node);
        let (Some((_, answer, inputs)), Some(node)) = (last, node) else { return Ok(None) };
        self.check_inputs(run, answer, node, || inputs)?;
        self.replayed.borrow_mut().push(node);
        Ok(self.schedule.value(answer))
    }

    fn leaf(
        &self,
        run: &RunState<'_>,
        node: NodeId,
        inputs: &dyn Fn() -> Fingerprint,
    ) -> Result<Option<Tensor>> {
        let Some(answer) = self.begin(run.module_number(node)) else { return Ok(None) };
        self.check_inputs(run, answer, node, inputs)?;
        let value = self.schedule.value(answer);
        self.replayed.borrow_mut().extend(value.as_ref().map(|_| node));
        Ok(value)
    }

    fn left(&self, depth: usize) {
        self.entered.borrow_mut().retain(|(entered, ..)| *entered < depth);
    }
}
