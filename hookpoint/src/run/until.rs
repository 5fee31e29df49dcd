//! When a run that only collects may end: as soon as everything its caches want is there.
//!
//! A goal is one cache request at one node. How many points it has there is not always known before:
//! `:in*` takes as many inputs as there are. So a goal is reached when its points have fired, or when
//! nothing more can come of the call that they are part of.

use std::cell::RefCell;

use super::observe::{Follows, Observer, Over};
use crate::lookup::FastMap;
use crate::point::{Meaning, PointKey, Slot32};
use crate::tree::NodeId;

/// When a goal is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expects {
    /// When so many points have fired, or some have and their method is over.
    Points(usize),
    /// When the inputs are there, before the module does anything with them.
    Inputs,
    /// When a call of the module is over.
    Call,
    /// Nobody can say before the end of the run.
    Everything,
}

impl Expects {
    /// When a cache with this meaning has everything it wants.
    pub fn of(meaning: &Meaning) -> Self {
        let only_inputs = !meaning.output && meaning.values == 0 && meaning.methods == 0;
        match meaning.is_glob {
            _ if meaning.is_parameter => Expects::Points(1),
            _ if only_inputs => Expects::Inputs,
            true if meaning.methods > 0 => Expects::Everything,
            true => Expects::Call,
            false => Expects::Points(meaning.inside().max(1)),
        }
    }
}

/// One cache request at one node.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    request: u32,
    expects: Expects,
    /// The points that have fired.
    fired: Vec<(usize, Slot32)>,
}

impl Goal {
    pub fn new(request: u32, expects: Expects) -> Self {
        Self { request, expects, fired: Vec::new() }
    }

    fn has_all_points(&self) -> bool {
        matches!(self.expects, Expects::Points(all) if self.fired.len() >= all)
    }
}

/// The goals that are not reached yet.
pub(crate) type Goals = FastMap<NodeId, Vec<Goal>>;

/// Ends the run when everything is there.
pub(super) struct Until {
    goals: RefCell<Goals>,
}

impl Until {
    pub fn new(goals: Goals) -> Self {
        Self { goals: goals.into() }
    }

    /// Takes out the goals that are reached, and says whether this was the last of them.
    fn reach(&self, node: NodeId, is_reached: impl Fn(&Goal) -> bool) -> bool {
        let mut goals = self.goals.borrow_mut();
        let Some(at_node) = goals.get_mut(&node) else { return false };
        at_node.retain(|goal| !is_reached(goal));
        if at_node.is_empty() {
            goals.remove(&node);
        }
        goals.is_empty()
    }
}

impl Observer for Until {
    fn follows(&self) -> Follows {
        Follows { results: true, ..Follows::default() }
    }

    fn taken(&self, request: u32, key: PointKey) {
        let mut goals = self.goals.borrow_mut();
        for goal in goals.get_mut(&key.node).into_iter().flatten().filter(|goal| goal.request == request) {
            if !goal.fired.contains(&(key.method, key.slot)) {
                goal.fired.push((key.method, key.slot));
            }
        }
    }

    fn over(&self, node: NodeId, what: Over) -> bool {
        self.reach(node, |goal| match what {
            Over::Values => goal.has_all_points(),
            Over::Inputs => goal.expects == Expects::Inputs && !goal.fired.is_empty(),
            Over::Method { method, is_call } => {
                let over = match goal.expects {
                    Expects::Points(_) => goal.fired.iter().all(|(of, _)| *of == method),
                    Expects::Inputs | Expects::Call => is_call,
                    Expects::Everything => false,
                };
                over && !goal.fired.is_empty()
            }
        })
    }
}
