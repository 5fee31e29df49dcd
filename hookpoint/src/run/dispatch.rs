//! The requests of a plan, sorted by where they matter, so that a point that nobody asked for costs
//! one look at a table.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use super::counts::Scratch;
use super::listeners::Interests;
use super::points::{Described, Labels, Points};
use super::request::{Action, Request};
use super::until::{Expects, Goal, Goals};
use crate::error::Result;
use crate::pattern::Pattern;
use crate::select::no_match;
use crate::tree::{Kind, Node, NodeId, Tree};

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
    /// Is the output all that is wanted, and called by no other name?
    pub only_output: bool,
    /// What is to be done before the module is called.
    pub before_call: BeforeCall,
    /// The one request, where it is to keep the output as it is: what most requests are.
    pub keeps: Option<u32>,
    /// Does a hook want to see all values of a call at once?
    pub together: bool,
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
    only_output: true,
    before_call: BeforeCall::Decide,
    keeps: None,
    together: false,
    heard: false,
    may_skip: false,
    patches_any: false,
    requests: Vec::new(),
};

/// What a pattern may mean at one node.
#[derive(Default)]
struct Meaning {
    is_parameter: bool,
    /// May it stand for more than its own text?
    is_glob: bool,
    output: bool,
    inputs: bool,
    /// Arguments of `forward`, by name.
    arguments: usize,
    /// Values inside `forward`.
    values: usize,
    /// Other methods, and what is inside them.
    methods: usize,
}

impl Meaning {
    fn of(pattern: &Pattern, tree: &Tree, node: &Node) -> Self {
        if node.kind == Kind::Parameter {
            let output = pattern.matches_value("out");
            return Self { is_parameter: true, output, ..Self::default() };
        }
        let written = pattern.value();
        let means = |value: &str| pattern.matches_value(value) || written.is_some_and(|w| is_part(value, w));
        let mut meaning = Self {
            is_glob: written.is_some_and(|value| value.contains(['*', '{'])),
            output: means("out"),
            inputs: means("in"),
            ..Self::default()
        };
        let Some(written) = written else { return meaning };
        let mut results: Vec<&str> = Vec::new();
        for method in tree.methods(node) {
            let count = |names: &[&str]| {
                let named = names.iter().filter(|name| !name.is_empty());
                let names = named.map(|name| method.value_name(name));
                names.filter(|name| pattern.matches_value(name) || is_part(name, written)).count()
            };
            let (arguments, values) = (count(method.args), count(method.values));
            if pattern.matches_value(method.name) && !results.contains(&method.name) {
                results.push(method.name);
            }
            let rest = written.strip_prefix(method.name).and_then(|rest| rest.strip_prefix('.'));
            // A result with several tensors: the second is `encode.1`; `logits` in it is `encode.out.logits`.
            let is_number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
            let is_result = |rest: &str| is_part("out", rest) || is_number(rest);
            let results = usize::from(rest.is_some_and(is_result));
            if method.is_forward() {
                meaning.arguments += arguments;
                meaning.values += values + results;
            } else {
                let inputs = usize::from(rest.is_some_and(|rest| is_part("in", rest)));
                meaning.methods += arguments + values + inputs + results;
            }
        }
        let is_forward = |name: &&&str| name.starts_with("forward");
        let forward = results.iter().filter(is_forward).count();
        meaning.values += forward;
        meaning.methods += results.len() - forward;
        meaning
    }

    fn inside(&self) -> usize {
        self.arguments + self.values + self.methods
    }

    /// When a cache with this meaning has everything it wants.
    fn expects(&self) -> Expects {
        let only_inputs = !self.output && self.values == 0 && self.methods == 0;
        match self.is_glob {
            _ if self.is_parameter => Expects::Points(1),
            _ if only_inputs => Expects::Inputs,
            true if self.methods > 0 => Expects::Everything,
            true => Expects::Call,
            false => Expects::Points(self.inside().max(1)),
        }
    }

    fn anything(&self) -> bool {
        self.output || self.inputs || self.inside() > 0
    }
}

/// Is this the value `of`, or a part of it: `out`, or `out.1`?
pub(super) fn is_part(of: &str, value: &str) -> bool {
    value.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The nodes that a pattern selects, or an error that names the nearest points.
pub(crate) fn select(tree: &Tree, pattern: &Pattern) -> Result<Vec<NodeId>> {
    let ids = 0..tree.nodes.len() as NodeId;
    let selected: Vec<NodeId> = ids
        .filter(|id| {
            let node = tree.node(*id);
            pattern.matches_path(tree.segments(*id))
                && node.is_some_and(|node| Meaning::of(pattern, tree, node).anything())
        })
        .collect();
    if !selected.is_empty() {
        return Ok(selected);
    }
    Err(no_match(&pattern.without_index().to_string(), candidates(tree, pattern)))
}

/// Names that the user may have meant: those of all nodes, and for a pattern with a value those of
/// the values of nodes that its path selects, or of all where it selects none.
fn candidates(tree: &Tree, pattern: &Pattern) -> Vec<String> {
    let mut names: Vec<String> = tree.names().iter().map(|name| name.to_string()).collect();
    if pattern.value().is_none() {
        return names;
    }
    let on_path = |id: &NodeId| pattern.matches_path(tree.segments(*id));
    let any_on_path = (0..tree.nodes.len() as NodeId).any(|id| on_path(&id));
    let mut valued = Vec::new();
    for id in (0..tree.nodes.len() as NodeId).filter(|id| !any_on_path || on_path(id)) {
        let Some(node) = tree.node(id) else { continue };
        for method in tree.methods(node) {
            for value in method.args.iter().chain(method.values).filter(|value| !value.is_empty()) {
                valued.push(format!("{}:{}", tree.name(id), method.value_name(value)));
            }
        }
    }
    names.append(&mut valued);
    names
}

impl Dispatch {
    pub fn new(tree: &Tree, requests: &[Request<'_>]) -> Self {
        let nothing_else = || Wants { only_output: true, ..Wants::default() };
        let mut nodes: Vec<Wants> = tree.nodes.iter().map(|_| nothing_else()).collect();
        let mut order: Vec<u32> = (0..requests.len() as u32).collect();
        order.sort_by_key(|id| requests.get(*id as usize).map(|request| request.action.rank()));
        let mut goals = Vec::new();
        let mut parameters = false;
        // A module may be skipped when every request at it is a whole patch or a cache of the output.
        let mut blocked: Vec<bool> = tree.nodes.iter().map(|_| false).collect();
        let mut patched: Vec<bool> = tree.nodes.iter().map(|_| false).collect();
        for id in order {
            let Some(request) = requests.get(id as usize) else { continue };
            for at in &request.nodes {
                let (Some(node), Some(wants)) = (tree.node(*at), nodes.get_mut(*at as usize)) else {
                    continue;
                };
                let meaning = Meaning::of(&request.pattern, tree, node);
                wants.output |= meaning.output;
                let whole_call = matches!(request.action, Action::HookBackward(_));
                wants.inputs |= meaning.inputs || meaning.inside() > 0 || whole_call;
                wants.values |= meaning.inside() > 0;
                wants.requests.push(id);
                wants.patches_any |= matches!(request.action, Action::PatchAny(_));
                parameters |= node.kind == Kind::Parameter;
                if let Action::Cache(_) = request.action {
                    goals.push((*at, Goal::new(id, meaning.expects())));
                }
                let whole_output = request.pattern.value().is_none();
                wants.only_output &= whole_output;
                if let Action::Call(..) = request.action {
                    wants.together = true;
                    wants.inputs = true;
                }
                let replaces_only =
                    !matches!(request.action, Action::Hook(_) | Action::Call(..) | Action::PatchAny(_));
                let harmless = whole_output && !whole_call && replaces_only;
                if let Some(blocked) = blocked.get_mut(*at as usize) {
                    *blocked |= !harmless;
                }
                let whole_patch = whole_output && request.pattern.index().is_none();
                if let (Action::Patch(_), true, Some(patched)) =
                    (&request.action, whole_patch, patched.get_mut(*at as usize))
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
            if let ([id], true) = (wants.requests.as_slice(), wants.only_output) {
                wants.keeps = requests.get(*id as usize).filter(|request| request.keeps_all()).map(|_| *id);
            }
            wants.before_call = match node.kind {
                Kind::Module if wants.together => BeforeCall::Decide,
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
    pub fn teaches(&self) -> bool {
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
