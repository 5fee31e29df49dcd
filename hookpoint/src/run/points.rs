//! The points that the runs of a plan have met, by number.
//!
//! The output of a module, and the results of operations with a parameter, have the number of their
//! node; every other point gets the next one when it is first met. So a run counts visits in a list, and
//! what it keeps is three words: under which name, of which call, which tensor.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::Tensor;

use super::audience::Masks;
use super::member::MemberNames;
use crate::lookup::FastMap;
use crate::point::PointKey;
use crate::tree::{Kind, NodeId, Tree};
use crate::value::AnyValue;

/// What is known of a point whenever it is reached: found out once for all runs of a plan.
pub(crate) struct Described {
    pub node: NodeId,
    /// What the value is called; nothing, where it cannot be asked for.
    pub value: Cow<'static, str>,
    pub type_name: &'static str,
    pub asked: Vec<Asked>,
    /// How many of these change the value: hooks and patches, which come first.
    pub changes: usize,
    /// Which listeners want to hear of it.
    pub heard: Masks,
    /// The counters of the names by which it is asked for, each once.
    pub counters: Vec<u32>,
    /// Are all requests to keep the value as it is?
    pub keeps: bool,
}

/// A request for a point, which it calls by one of its names: `:in` rather than `:x` where it says so.
pub(crate) struct Asked {
    pub request: u32,
    pub name: Arc<str>,
    /// Under which label a cache keeps it.
    pub label: u32,
    /// What counts its calls: several points may have one name, as bindings of two `forward*` methods may.
    /// None where the point alone has it, as an output.
    pub counter: Option<u32>,
    pub kind: Kind,
}

/// A name under which values are kept.
#[derive(Clone)]
pub(crate) struct Label {
    pub name: Arc<str>,
    /// Was one call asked for, as in `path#0`?
    pub by_call: bool,
}

/// Names by number: first those of the nodes, then all others.
#[derive(Clone, Default)]
pub(crate) struct Labels {
    nodes: Arc<[Arc<str>]>,
    others: Arc<Vec<Label>>,
}

impl Labels {
    pub fn get(&self, label: u32) -> Option<(&Arc<str>, bool)> {
        let label = label as usize;
        match self.nodes.get(label) {
            Some(name) => Some((name, false)),
            None => self.others.get(label - self.nodes.len()).map(|label| (&label.name, label.by_call)),
        }
    }
}

/// A tensor that a cache wants.
#[derive(Clone)]
pub(crate) struct Capture {
    pub label: u32,
    pub call: u32,
    pub tensor: Tensor,
}

/// A value of another type that a cache wants.
#[derive(Clone)]
pub(crate) struct CaptureAny {
    pub label: u32,
    pub call: u32,
    pub value: AnyValue,
    /// How many tensors were kept before it.
    pub after: usize,
}

/// A tensor with the name of its point, and which call of it that was.
pub(crate) struct NamedCall {
    pub name: Arc<str>,
    pub call: usize,
    /// Was this very call asked for, as in `path#0`?
    pub by_call: bool,
    pub tensor: Tensor,
}

/// Everything that a run has kept, in order.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    pub labels: Labels,
    pub tensors: Captures,
    pub others: Vec<CaptureAny>,
}

/// A list in pieces of just under a kilobyte. Asking for more than that at once makes the system's
/// allocator tidy up first, which in the middle of a run costs more than all the rest of keeping values.
#[derive(Clone, Default)]
pub(crate) struct Captures {
    full: Vec<Vec<Capture>>,
    last: Vec<Capture>,
}

impl Captures {
    const PIECE: usize = 60;

    #[inline]
    pub fn push(&mut self, capture: Capture) {
        if self.last.len() == self.last.capacity() {
            self.next_piece();
        }
        self.last.push(capture);
    }

    #[cold]
    fn next_piece(&mut self) {
        let full = std::mem::replace(&mut self.last, Vec::with_capacity(Self::PIECE));
        if !full.is_empty() {
            self.full.push(full);
        }
    }

    pub fn len(&self) -> usize {
        self.full.iter().map(Vec::len).sum::<usize>() + self.last.len()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Capture> {
        self.full.iter().flatten().chain(&self.last)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Capture> {
        self.full.iter_mut().flatten().chain(&mut self.last)
    }
}

/// What the runs of a plan know of its points.
pub(crate) struct Points {
    by_key: FastMap<PointKey, u32>,
    described: Vec<Option<Arc<Described>>>,
    nodes: usize,
    labels: Labels,
    by_label: FastMap<(Arc<str>, bool), u32>,
    /// Counters by name; a value as a whole is counted apart from the tensors in it.
    by_name: FastMap<(Arc<str>, bool), u32>,
    pub(super) members: MemberNames,
}

impl Points {
    pub fn new(tree: &Tree) -> Self {
        let labels = Labels { nodes: tree.names().clone(), others: Arc::default() };
        let nodes = tree.nodes.len();
        let (by_key, by_label, by_name) = (FastMap::default(), FastMap::default(), FastMap::default());
        let members = MemberNames::default();
        Self { by_key, described: vec![None; nodes], nodes, labels, by_label, by_name, members }
    }

    /// The number of a point.
    pub fn number(&mut self, key: PointKey) -> u32 {
        if key.is_node() {
            return key.node;
        }
        let next = self.described.len() as u32;
        let number = *self.by_key.entry(key).or_insert(next);
        if number == next {
            self.described.push(None);
        }
        number
    }

    /// A point whose value is kept, and of which nothing else is asked, with its number.
    pub fn keeps(&self, key: PointKey) -> Option<(u32, &Described)> {
        let number = if key.is_node() { key.node } else { *self.by_key.get(&key)? };
        self.described(number).filter(|described| described.keeps).map(|described| (number, &**described))
    }

    pub fn described(&self, number: u32) -> Option<&Arc<Described>> {
        self.described.get(number as usize)?.as_ref()
    }

    pub fn describe(&mut self, number: u32, described: Described) -> Arc<Described> {
        let described = Arc::new(described);
        if let Some(slot) = self.described.get_mut(number as usize) {
            *slot = Some(described.clone());
        }
        described
    }

    /// How many points there are so far.
    pub fn len(&self) -> usize {
        self.described.len()
    }

    /// The label for a name; that of a node's own output is the node's number.
    pub fn label(&mut self, node: NodeId, name: &Arc<str>, by_call: bool) -> u32 {
        let own = self.labels.nodes.get(node as usize);
        if !by_call && own.is_some_and(|own| own == name) {
            return node;
        }
        let next = (self.nodes + self.labels.others.len()) as u32;
        let label = *self.by_label.entry((name.clone(), by_call)).or_insert(next);
        if label == next {
            Arc::make_mut(&mut self.labels.others).push(Label { name: name.clone(), by_call });
        }
        label
    }

    /// What counts the calls of all points of this name.
    pub fn counter(&mut self, name: &Arc<str>, whole: bool) -> u32 {
        let next = self.by_name.len() as u32;
        *self.by_name.entry((name.clone(), whole)).or_insert(next)
    }

    pub fn labels(&self) -> Labels {
        self.labels.clone()
    }
}
