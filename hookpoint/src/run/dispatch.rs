//! The requests of a plan, sorted by where they matter, so that a point that nobody asked for costs
//! one look at a table.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use super::audience::Interests;
use super::counts::Scratch;
use super::points::{Described, Labels, Points};
use super::request::{Action, Request};
use super::until::{Expects, Goal, Goals};
use crate::tree::{Kind, NodeId, Tree};

/// For every node, what is wanted there.
pub(crate) struct Dispatch {
    nodes: Vec<Wants>,
    /// Are there requests for parameters at all?
    pub parameters: bool,
    /// What the caches want: for a run that ends with the last of it.
    goals: Vec<(NodeId, Goal)>,
    /// Are there modules that need not run?
    pub skips: bool,
    /// What listeners want to hear.
    pub interests: Interests,
    /// Does one want to hear of operations?
    pub hears_operations: bool,
    /// The points that runs have met so far.
    pub points: RefCell<Points>,
    /// Has a run noted what modules give for which inputs?
    taught: Cell<bool>,
    scratch: Cell<Option<Scratch>>,
    /// The requests as the user wrote them, made when first asked for.
    texts: OnceCell<Arc<[String]>>,
}

#[derive(Default)]
pub(crate) struct Wants {
    pub output: bool,
    pub inputs: bool,
    pub values: bool,
    /// What is to be done before the module is called.
    pub before_call: BeforeCall,
    /// The one request, where it is to keep the output as it is: what most requests are.
    pub keeps: Option<u32>,
    /// Does a hook want to see all values of a call at once?
    pub call_hooks: bool,
    /// Is a listener interested in it, or in anything inside it?
    pub heard: bool,
    /// Whole-output patches only, and nothing wanted inside: the module need not run.
    pub may_skip: bool,
    /// Are there values of other types than tensors to be replaced?
    pub patches_any: bool,
    /// The requests that select this node, in the order in which they act.
    pub requests: Vec<u32>,
}

/// What there is to do before a module is called, in a run that goes to its end and notes nothing else.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum BeforeCall {
    /// Nothing, and nothing after the call.
    #[default]
    Nothing,
    /// Nothing: the output is kept, that is all.
    Keep,
    /// The module is of an annotated type: its method is told which one it is.
    Announce,
    /// That has to be found out.
    Decide,
}

static NOTHING: Wants = Wants {
    output: false,
    inputs: false,
    values: false,
    before_call: BeforeCall::Decide,
    keeps: None,
    call_hooks: false,
    heard: false,
    may_skip: false,
    patches_any: false,
    requests: Vec::new(),
};

impl Dispatch {
    pub fn new(tree: &Tree, requests: &[Request<'_>]) -> Self {
        let mut nodes: Vec<Wants> = tree.nodes.iter().map(|_| Wants::default()).collect();
        let mut order: Vec<u32> = (0..requests.len() as u32).collect();
        order.sort_by_key(|id| requests.get(*id as usize).map(|request| request.action.rank()));
        let mut goals = Vec::new();
        let mut parameters = false;
        // A module may be skipped when every request at it is a whole patch or a cache of the output.
        let mut blocked: Vec<bool> = tree.nodes.iter().map(|_| false).collect();
        let mut patched: Vec<bool> = tree.nodes.iter().map(|_| false).collect();
        for id in order {
            let Some(request) = requests.get(id as usize) else { continue };
            for (at, meaning) in request.nodes.each() {
                let (Some(node), Some(wants)) = (tree.node(at), nodes.get_mut(at as usize)) else {
                    continue;
                };
                wants.output |= meaning.output;
                let whole_call = matches!(request.action, Action::HookBackward(_));
                wants.inputs |= meaning.inputs || meaning.inside() > 0 || whole_call;
                wants.values |= meaning.inside() > 0;
                wants.requests.push(id);
                wants.patches_any |= matches!(request.action, Action::PatchAny(_));
                parameters |= node.kind == Kind::Parameter;
                if let Action::Cache(_) = request.action {
                    goals.push((at, Goal::new(id, Expects::of(&meaning))));
                }
                let whole_output = request.pattern.value().is_none();
                if let Action::Call(..) = request.action {
                    wants.call_hooks = true;
                    wants.inputs = true;
                }
                let replaces_only =
                    !matches!(request.action, Action::Hook(_) | Action::Call(..) | Action::PatchAny(_));
                let harmless = whole_output && !whole_call && replaces_only;
                if let Some(blocked) = blocked.get_mut(at as usize) {
                    *blocked |= !harmless;
                }
                let whole_patch = whole_output && request.pattern.index().is_none();
                if let (Action::Patch(_), true, Some(patched)) =
                    (&request.action, whole_patch, patched.get_mut(at as usize))
                {
                    *patched = true;
                }
            }
        }
        for id in (0..tree.nodes.len()).filter(|id| patched.get(*id) == Some(&true)) {
            let end = tree.nodes.get(id).map_or(id, |node| node.end as usize);
            let inside = nodes.get(id + 1..end).unwrap_or_default();
            let wanted_inside = inside.iter().any(|wants| !wants.requests.is_empty());
            let free = !tree.holds_state(id as NodeId) && !tree.minds_training(id as NodeId);
            let may = blocked.get(id) == Some(&false) && !wanted_inside && free;
            if let Some(wants) = nodes.get_mut(id) {
                wants.may_skip = may;
            }
        }
        let skips = nodes.iter().any(|wants| wants.may_skip);
        let keeps = requests.iter().any(|request| matches!(request.action, Action::Cache(_)));
        for (wants, node) in nodes.iter_mut().zip(&tree.nodes) {
            if let [id] = wants.requests.as_slice() {
                let keeps = |request: &&Request<'_>| request.keeps_all() && request.pattern.value().is_none();
                wants.keeps = requests.get(*id as usize).filter(keeps).map(|_| *id);
            }
            wants.before_call = match node.kind {
                Kind::Module if wants.call_hooks => BeforeCall::Decide,
                Kind::Module => BeforeCall::Announce,
                // What it does in training is an effect, which says whether modules around it may be skipped.
                _ if skips && node.minds_training => BeforeCall::Decide,
                // Nobody knows whether it writes to what it gives.
                _ if keeps && node.is_foreign => BeforeCall::Decide,
                _ if wants.requests.is_empty() => BeforeCall::Nothing,
                _ if wants.keeps.is_some() => BeforeCall::Keep,
                _ => BeforeCall::Decide,
            };
        }
        let points = RefCell::new(Points::new(tree));
        let (taught, scratch) = (Cell::new(false), Cell::new(None));
        let (interests, hears_operations) = (Interests::default(), false);
        let texts = OnceCell::new();
        Self { nodes, parameters, goals, skips, interests, hears_operations, points, taught, scratch, texts }
    }

    /// Has the points shown that listeners are interested in.
    pub fn hearing(mut self, interests: Interests, tree: &Tree) -> Self {
        if interests.is_empty() {
            return self;
        }
        for (id, (wants, node)) in (0..).zip(self.nodes.iter_mut().zip(&tree.nodes)) {
            let interested = interests.at(id);
            if !interested.any() {
                continue;
            }
            let shown = interested.output.shown();
            wants.output |= shown;
            wants.inputs |= interested.inside || interested.output.calls != 0;
            wants.values |= interested.inside;
            wants.heard = true;
            if shown {
                wants.keeps = None;
                self.parameters |= node.kind == Kind::Parameter;
            }
            self.hears_operations |= interested.output.operations != 0;
            if wants.before_call != BeforeCall::Announce {
                wants.before_call = BeforeCall::Decide;
            }
        }
        // What happens inside a module that does not run would not be heard.
        for id in 0..self.nodes.len() {
            let end = tree.nodes.get(id).map_or(id, |node| node.end as usize);
            let heard =
                self.nodes.get(id + 1..end).is_some_and(|inside| inside.iter().any(|wants| wants.heard));
            if let Some(wants) = self.nodes.get_mut(id).filter(|_| heard) {
                wants.may_skip = false;
            }
        }
        self.skips = self.nodes.iter().any(|wants| wants.may_skip);
        self.interests = interests;
        self
    }

    /// Should the next run note what modules give? Every run would say the same, mostly.
    pub fn is_curious(&self) -> bool {
        !self.taught.get()
    }

    pub fn has_taught(&self) {
        self.taught.set(true);
    }

    /// Lists of an earlier run, if no other run has them.
    pub fn take_scratch(&self) -> Scratch {
        self.scratch.take().unwrap_or_default()
    }

    pub fn give_scratch(&self, scratch: Scratch) {
        self.scratch.set(Some(scratch));
    }

    pub fn texts(&self, requests: &[Request<'_>]) -> Arc<[String]> {
        self.texts.get_or_init(|| requests.iter().map(Request::describe).collect()).clone()
    }

    pub fn labels(&self) -> Labels {
        self.points.borrow().labels()
    }

    pub fn described(&self, number: u32) -> Option<Arc<Described>> {
        self.points.borrow().described(number).cloned()
    }

    /// What is to be reached by a run that ends with the last of it.
    pub fn goals(&self) -> Goals {
        let mut goals = Goals::default();
        for (node, goal) in &self.goals {
            goals.entry(*node).or_default().push(goal.clone());
        }
        goals
    }

    /// How many points runs have met so far.
    pub fn known_points(&self) -> usize {
        self.points.borrow().len()
    }

    pub fn at(&self, node: NodeId) -> &Wants {
        self.nodes.get(node as usize).unwrap_or(&NOTHING)
    }
}
