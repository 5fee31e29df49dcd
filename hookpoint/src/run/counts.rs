//! How often points were reached, and the lists that runs of one plan hand on to one another.

use std::cell::RefCell;

use super::operand::Use;
use super::points::{Asked, Described};
use super::stack::{Announced, Frame};
use crate::point::PointKey;
use crate::tree::NodeId;

/// How often each point was reached, by its number, and each name that several points may have, by its counter.
#[derive(Default)]
pub(super) struct Counts {
    pub visits: RefCell<Vec<u32>>,
    pub named: RefCell<Vec<u32>>,
}

/// Lists that a run fills and empties: handed from one run of a plan to the next, so that a run need not
/// ask for memory.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(super) frames: Vec<Frame>,
    pub(super) announced: Vec<Announced>,
    pub(super) uses: Vec<Use>,
    pub(super) visits: Vec<u32>,
    pub(super) named: Vec<u32>,
}

impl Scratch {
    /// The same lists, empty.
    pub fn emptied(mut self, points: usize) -> Self {
        self.frames.clear();
        self.announced.clear();
        self.uses.clear();
        self.visits.clear();
        self.named.clear();
        self.visits.resize(points, 0);
        self
    }
}

impl Counts {
    /// Counts one more visit of the point with this number, and says which one it is.
    #[inline]
    pub fn visit(&self, number: u32) -> u32 {
        let mut visits = self.visits.borrow_mut();
        let at = number as usize;
        if at >= visits.len() {
            visits.resize(at + 1, 0);
        }
        let Some(visit) = visits.get_mut(at) else { return 0 };
        *visit += 1;
        *visit - 1
    }

    /// Counts the first tensor of an output at its module, too, where it was counted under its own name: which
    /// visit of the value it is.
    #[inline]
    pub fn visit_output(&self, key: PointKey, number: u32, visit: u32) -> u32 {
        match key.is_output() && number != key.node {
            true => self.visit(key.node),
            false => visit,
        }
    }

    /// Counts one more value for each of the names of a point.
    #[inline]
    pub fn names(&self, described: &Described) {
        let mut named = self.named.borrow_mut();
        for counter in &described.counters {
            let at = *counter as usize;
            if at >= named.len() {
                named.resize(at + 1, 0);
            }
            if let Some(count) = named.get_mut(at) {
                *count += 1;
            }
        }
    }

    /// Which of the values of its name the one is that was reached last. It is this visit of its point.
    #[inline]
    pub fn call_number(&self, asked: &Asked, visit: usize) -> usize {
        let counted = |counter: u32| self.named.borrow().get(counter as usize).map(|count| *count as usize);
        asked.counter.map_or(visit, |counter| counted(counter).unwrap_or(0).saturating_sub(1))
    }

    /// How often a module's output, or a parameter, was reached so far.
    #[inline]
    pub fn so_far(&self, node: NodeId) -> u32 {
        self.visits.borrow().get(node as usize).copied().unwrap_or(0)
    }
}
