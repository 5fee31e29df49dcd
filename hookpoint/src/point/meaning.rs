//! What a pattern means: which nodes it selects, and which of their values it may stand for.

use std::ops::Deref;

use crate::error::Result;
use crate::pattern::Pattern;
use crate::select::no_match;
use crate::tree::{Kind, Node, NodeId, Tree};

/// What a pattern may mean at one node.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Meaning {
    pub is_parameter: bool,
    /// May it stand for more than its own text?
    pub is_glob: bool,
    pub output: bool,
    pub inputs: bool,
    /// Arguments of `forward`, by name.
    pub arguments: usize,
    /// Values inside `forward`.
    pub values: usize,
    /// Other methods, and what is inside them.
    pub methods: usize,
}

impl Meaning {
    pub fn of(pattern: &Pattern, tree: &Tree, node: &Node) -> Self {
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

    pub fn inside(&self) -> usize {
        self.arguments + self.values + self.methods
    }

    fn anything(&self) -> bool {
        self.output || self.inputs || self.inside() > 0
    }
}

/// Is this the value `of`, or a part of it: `out`, or `out.1`?
pub(crate) fn is_part(of: &str, value: &str) -> bool {
    value.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The nodes that a pattern selects, in order, and what it may mean at each: found out once, by whoever asks for it.
#[derive(Clone)]
pub(crate) struct Selection {
    nodes: Vec<NodeId>,
    meanings: Vec<Meaning>,
}

impl Deref for Selection {
    type Target = [NodeId];

    fn deref(&self) -> &[NodeId] {
        &self.nodes
    }
}

impl Selection {
    /// What a pattern selects, or an error that names the nearest points.
    pub fn of(tree: &Tree, pattern: &Pattern) -> Result<Self> {
        let ids = 0..tree.nodes.len() as NodeId;
        let all = ids.filter(|id| pattern.matches_path(tree.segments(*id)));
        let all = all.filter_map(|id| Some((id, Meaning::of(pattern, tree, tree.node(id)?))));
        let (nodes, meanings): (Vec<_>, Vec<_>) = all.filter(|(_, meaning)| meaning.anything()).unzip();
        match nodes.is_empty() {
            false => Ok(Self { nodes, meanings }),
            true => Err(no_match(&pattern.without_index().to_string(), candidates(tree, pattern))),
        }
    }

    /// This one node, which the pattern is known to select.
    pub fn at(tree: &Tree, pattern: &Pattern, node: NodeId) -> Self {
        let meaning = tree.node(node).map(|node| Meaning::of(pattern, tree, node)).unwrap_or_default();
        Self { nodes: vec![node], meanings: vec![meaning] }
    }

    /// Those of the nodes for which this holds.
    pub fn only(&self, holds: impl Fn(NodeId) -> bool) -> Self {
        let (nodes, meanings) = self.each().filter(|(node, _)| holds(*node)).unzip();
        Self { nodes, meanings }
    }

    pub fn each(&self) -> impl Iterator<Item = (NodeId, Meaning)> + '_ {
        self.nodes.iter().copied().zip(self.meanings.iter().copied())
    }
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
