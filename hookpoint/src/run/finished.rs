//! What is left of a run when it is over: what it kept, and what it reached.

use std::rc::Rc;

use super::counts::Scratch;
use super::gradient::Gradient;
use super::points::{Asked, Kept};
use super::record::Log;
use super::scan::Scan;
use super::{Dispatch, Request};
use crate::pattern::Pattern;
use crate::tree::{NodeId, Tree};

/// What is left of a run.
pub(crate) struct Finished {
    pub kept: Kept,
    pub fired: Vec<usize>,
    /// What a scan has seen.
    pub scan: Option<Rc<Scan>>,
    /// The modules that were not run because they were patched as a whole.
    pub skipped: Vec<NodeId>,
    pub scratch: Scratch,
    /// What a backward pass needs, where there is to be one.
    pub gradient: Option<Gradient>,
    /// The calls, where they were to be noted.
    pub log: Option<Log>,
    /// The modules that were not run because it was known what they give.
    pub replayed: Vec<NodeId>,
}

/// Which requests have met a point at which nodes, one bit for each of both.
pub(crate) struct Met {
    nodes: usize,
    bits: Vec<u64>,
}

impl Met {
    fn place(&self, request: u32, node: NodeId) -> (usize, u64) {
        let bit = request as usize * self.nodes + node as usize;
        (bit / 64, 1 << (bit % 64))
    }

    fn note(&mut self, request: u32, node: NodeId) {
        let (word, bit) = self.place(request, node);
        if let Some(word) = self.bits.get_mut(word) {
            *word |= bit;
        }
    }

    pub fn has(&self, request: u32, node: NodeId) -> bool {
        let (word, bit) = self.place(request, node);
        self.bits.get(word).is_some_and(|word| word & bit != 0)
    }
}

impl Finished {
    /// How often the output of a module, or a parameter, was reached.
    pub fn visits(&self, node: NodeId) -> usize {
        self.scratch.visits.get(node as usize).copied().unwrap_or(0) as usize
    }

    /// Which requests have met a point at which nodes: by the name that they call it by, often enough for the call
    /// that they name.
    pub fn met(&self, dispatch: &Dispatch, requests: &[Request<'_>], tree: &Tree) -> Met {
        let nodes = tree.nodes.len();
        let mut met = Met { nodes, bits: vec![0; (nodes * requests.len()).div_ceil(64)] };
        self.each_met(dispatch, requests, &mut |id, node, _| met.note(id, node));
        met
    }

    /// The points that one request has met: by node, and the name of the value.
    pub fn met_as(
        &self,
        dispatch: &Dispatch,
        requests: &[Request<'_>],
        request: u32,
        tree: &Tree,
    ) -> Vec<(NodeId, String)> {
        let mut met = Vec::new();
        self.each_met(dispatch, requests, &mut |id, node, name| {
            if id == request {
                let is_output = name.is_none_or(|name| *name == *tree.name(node));
                let value = name.filter(|_| !is_output).and_then(|name| name.parse::<Pattern>().ok());
                let value = value.as_ref().and_then(Pattern::value).unwrap_or("out").to_string();
                met.push((node, value));
            }
        });
        met
    }

    fn each_met(
        &self,
        dispatch: &Dispatch,
        requests: &[Request<'_>],
        f: &mut dyn FnMut(u32, NodeId, Option<&str>),
    ) {
        let is_met = |id: u32, visits: u32| {
            let call = requests.get(id as usize).and_then(|request| request.pattern.call());
            visits as usize > call.unwrap_or(0)
        };
        let count = |list: &[u32], at: u32| list.get(at as usize).copied().unwrap_or(0);
        // Several points may have one name, by which their calls are counted.
        let calls = |asked: &Asked, node: NodeId| match asked.counter {
            Some(counter) => count(&self.scratch.named, counter),
            None => count(&self.scratch.visits, node),
        };
        for (number, visits) in self.scratch.visits.iter().enumerate().filter(|(_, visits)| **visits > 0) {
            match dispatch.described(number as u32) {
                Some(described) => {
                    let node = described.node;
                    for asked in
                        described.asked.iter().filter(|asked| is_met(asked.request, calls(asked, node)))
                    {
                        f(asked.request, node, Some(&asked.name));
                    }
                }
                // Counted at a point that has the name of the tensor, too.
                None if dispatch.at(number as NodeId).keeps.is_none() => {}
                // Kept as it is, and never described.
                None => {
                    let node = number as NodeId;
                    for id in dispatch.at(node).requests.iter().filter(|id| is_met(**id, *visits)) {
                        f(*id, node, None);
                    }
                }
            }
        }
    }

    /// The points that were reached, by node and name, and how often.
    pub fn reached(&self, dispatch: &Dispatch) -> Vec<(NodeId, String, usize)> {
        let visited = self.scratch.visits.iter().enumerate().filter(|(_, visits)| **visits > 0);
        let named = visited.map(|(number, visits)| {
            let (node, value) = match dispatch.described(number as u32) {
                Some(described) => (described.node, described.value.to_string()),
                None => (number as NodeId, "out".to_string()),
            };
            (node, value, *visits as usize)
        });
        named.collect()
    }
}
