//! Those who follow a run as a whole, whatever its plan asks for at the points: a scan, or what ends a run that only
//! collects. Sites tell all of them the same things and do not know who they are.
//!
//! They are told more than a [`Listener`](crate::Listener) is: call sites of modules that are no points, points by their
//! numbers, and when nothing more can come of a call. A new one is a file that implements [`Observer`] and a line in
//! [`Listeners::new`](super::listening::Listeners::new).

use candle_core::Tensor;

use super::call::CallSite;
use super::RunState;
use crate::error::ErrorKind;
use crate::point::PointKey;
use crate::tree::NodeId;

/// What an observer has to be told of.
#[derive(Clone, Copy, Default)]
pub(super) struct Follows {
    /// Every point, and not only those that somebody asked for; and so every call, operation and value.
    pub points: bool,
    /// That a call is over, whatever it gave.
    pub results: bool,
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

    /// A value has reached the point with this number, which so many did before.
    fn reached(&self, number: u32, visit: usize, value: &Tensor) {
        let _ = (number, visit, value);
    }

    /// A cache has taken a value.
    fn taken(&self, request: u32, key: PointKey) {
        let _ = (request, key);
    }

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
