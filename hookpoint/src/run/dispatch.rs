//! The requests of a plan, sorted by where they matter, so that a point that nobody asked for costs
//! one look at a table.

use super::request::{Action, Request};
use crate::error::Result;
use crate::pattern::Pattern;
use crate::select::no_match;
use crate::tree::{Kind, MethodInfo, Node, NodeId, Tree};

/// For every node, what is wanted there.
pub(crate) struct Dispatch {
    nodes: Vec<Wants>,
    /// Are there requests for parameters at all?
    pub parameters: bool,
    /// How many points the caches want, for a run that ends with the last of them.
    pub wanted: usize,
}

#[derive(Default)]
pub(crate) struct Wants {
    pub output: bool,
    pub inputs: bool,
    pub values: bool,
    /// Whole-output patches only, and nothing wanted inside: the module need not run.
    pub may_skip: bool,
    /// The requests that select this node, in the order in which they act.
    pub requests: Vec<u32>,
}

static NOTHING: Wants =
    Wants { output: false, inputs: false, values: false, may_skip: false, requests: Vec::new() };

/// What a pattern may mean at one node.
#[derive(Default)]
struct Meaning {
    output: bool,
    inputs: bool,
    values: usize,
}

impl Meaning {
    fn of(pattern: &Pattern, tree: &Tree, node: &Node) -> Self {
        let first = |prefix: &str, value: &str| {
            value.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let written = pattern.value();
        let means =
            |prefix: &str| pattern.matches_value(prefix) || written.is_some_and(|value| first(prefix, value));
        let output = means("out");
        if node.kind == Kind::Parameter {
            return Self { output: pattern.matches_value("out"), ..Self::default() };
        }
        let inputs = means("in");
        let named = |method: &&'static MethodInfo| {
            let names = method.args.iter().chain(method.values).filter(|name| !name.is_empty());
            let values = names.filter(|name| pattern.matches_value(&method.value_name(name))).count();
            let result = pattern.matches_value(method.name);
            let of_method = written.is_some_and(|value| {
                let rest = value.strip_prefix(method.name).and_then(|rest| rest.strip_prefix('.'));
                rest.is_some_and(|rest| first("in", rest) || first("out", rest))
            });
            values + usize::from(result) + usize::from(of_method)
        };
        let values = if written.is_some() { tree.methods(node).iter().map(named).sum() } else { 0 };
        Self { output, inputs, values }
    }

    fn anything(&self) -> bool {
        self.output || self.inputs || self.values > 0
    }
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
        let mut nodes: Vec<Wants> = tree.nodes.iter().map(|_| Wants::default()).collect();
        let mut order: Vec<u32> = (0..requests.len() as u32).collect();
        order.sort_by_key(|id| requests.get(*id as usize).map(|request| request.action.rank()));
        let mut wanted = 0;
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
                wants.inputs |= meaning.inputs || meaning.values > 0;
                wants.values |= meaning.values > 0;
                wants.requests.push(id);
                parameters |= node.kind == Kind::Parameter;
                if let Action::Cache(_) = request.action {
                    let literal = usize::from(meaning.output || meaning.inputs);
                    wanted += meaning.values.max(literal);
                }
                let whole_output = request.pattern.value().is_none();
                let harmless = whole_output && !matches!(request.action, Action::Hook(_));
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
            let may = blocked.get(id) == Some(&false) && !wanted_inside;
            if let Some(wants) = nodes.get_mut(id) {
                wants.may_skip = may;
            }
        }
        Self { nodes, parameters, wanted }
    }

    pub fn at(&self, node: NodeId) -> &Wants {
        self.nodes.get(node as usize).unwrap_or(&NOTHING)
    }
}
