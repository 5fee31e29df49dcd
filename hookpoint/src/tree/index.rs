//! The index that a walk leaves behind: which module lives where, and under which path.
//!
//! A module is identified by its address and its type, like Python's `id(module)`. The type is
//! needed because a struct and its first field share an address. A module that is reached by
//! several paths (an `Arc`) has one address and several nodes; the caller decides which one is meant.

mod build;
mod same;

use std::any::TypeId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use candle_core::{Storage, TensorId};

use super::dict::Kind;
use super::registry::{self, MethodInfo, TypeInfo};
use super::visit::Step;
use crate::erased::{Erased, Receiver};
use crate::lookup::{number, FastMap, FastSet, Sieve, Table};
use crate::pattern::point_name;

use build::Walk;
pub(crate) use build::Weight;

/// A position in [`Tree::nodes`]. Nodes stand in preorder, so what is inside one follows it.
pub(crate) type NodeId = u32;

/// A module or a parameter.
pub(crate) struct Node {
    pub kind: Kind,
    pub type_name: &'static str,
    pub type_id: TypeId,
    pub parent: Option<NodeId>,
    /// The first node that is not inside this one.
    pub end: NodeId,
    /// Which module this is, parameters not counted: they come and go with a model's state.
    pub number: u32,
    /// How wide the output of a well-known layer is.
    pub width: Option<usize>,
    /// May its state change while it is only borrowed?
    pub has_state: bool,
    /// Is it a layer whose code is not known: neither annotated nor candle's?
    pub is_foreign: bool,
    /// Is it a layer that computes something else in training: draws lots, keeps statistics?
    pub minds_training: bool,
    own: Own,
}

/// What only the tree itself knows of a node.
struct Own {
    /// Has it an address of its own? Values of size zero have none.
    has_place: bool,
    /// Has the type an annotated `forward*`? Found out when first asked.
    has_forward: OnceLock<bool>,
    /// What its type is defined as, where that is generic.
    definition: Option<&'static TypeInfo>,
    /// Where this node's own steps, those below its parent, stand in [`Tree::steps`].
    steps: (u32, u32),
}

/// Everything that was found in one walk.
#[derive(Default)]
pub(crate) struct Tree {
    pub nodes: Vec<Node>,
    steps: Vec<Step>,
    modules: u32,
    lookup: Lookup,
    memory: Memory,
    texts: Texts,
    /// Modules whose gradients were compared with finite differences.
    compared: Mutex<Vec<NodeId>>,
    walk: Walk,
}

/// What lives where.
#[derive(Default)]
struct Lookup {
    places: Table<(usize, TypeId), Places>,
    receivers: FastMap<TypeId, Receiver>,
    parameters: Table<TensorId, Places>,
    /// The number of the parameter that was made last, which tells most other tensors from parameters.
    last_parameter: u64,
}

/// The memory of the model's tensors, and who writes to it.
#[derive(Default)]
struct Memory {
    /// The buffers that the model owns, and may write to.
    buffers: FastSet<usize>,
    /// Tells most other buffers from those.
    buffer_sieve: Sieve,
    writes: OnceLock<bool>,
    strangers: OnceLock<bool>,
    /// Has code written into a tensor that no description of the model's methods tells of?
    wrote: AtomicBool,
}

/// Paths and names, made when first asked for.
#[derive(Default)]
struct Texts {
    segments: OnceLock<Vec<Arc<[String]>>>,
    names: OnceLock<Arc<[Arc<str>]>>,
}

/// Nearly every place belongs to one node.
#[derive(PartialEq)]
enum Places {
    None,
    One(NodeId),
    Many(Vec<NodeId>),
}

impl Places {
    fn push(&mut self, id: NodeId) {
        match self {
            Places::None => *self = Places::One(id),
            Places::One(first) => *self = Places::Many(vec![*first, id]),
            Places::Many(all) => all.push(id),
        }
    }

    fn as_slice(&self) -> &[NodeId] {
        match self {
            Places::None => &[],
            Places::One(id) => std::slice::from_ref(id),
            Places::Many(all) => all,
        }
    }
}

impl Tree {
    /// Is there state in a module, or in anything inside it, that may change while it is only borrowed?
    pub fn holds_state(&self, id: NodeId) -> bool {
        let end = self.node(id).map_or(0, |node| node.end as usize);
        self.nodes.get(id as usize..end).unwrap_or_default().iter().any(|node| node.has_state)
    }

    /// Is there a layer inside a module that does something else in training?
    pub fn minds_training(&self, id: NodeId) -> bool {
        let end = self.node(id).map_or(0, |node| node.end as usize);
        self.nodes.get(id as usize + 1..end).unwrap_or_default().iter().any(|node| node.minds_training)
    }

    /// Does annotated code of the model write into tensors in place, for all that is known? Then nothing that comes
    /// from it, and nothing that is given to it, may share memory with what others hold.
    pub fn writes_in_place(&self) -> bool {
        self.memory.wrote.load(Ordering::Relaxed)
            || *self.memory.writes.get_or_init(|| {
                let mut types: FastSet<TypeId> = FastSet::default();
                let mut modules = self.nodes.iter().filter(|node| node.kind == Kind::Module);
                modules.any(|node| {
                    types.insert(node.type_id)
                        && self.methods(node).iter().copied().any(registry::writes_in_place)
                })
            })
    }

    /// Does the model call code that is neither annotated nor candle's, for all that is known?
    pub fn calls_strangers(&self) -> bool {
        *self.memory.strangers.get_or_init(|| {
            let mut types: FastSet<TypeId> = FastSet::default();
            self.nodes.iter().any(|node| match node.kind {
                Kind::Leaf => node.is_foreign,
                Kind::Module => {
                    types.insert(node.type_id)
                        && self.methods(node).iter().copied().any(registry::calls_strangers)
                }
                _ => false,
            })
        })
    }

    pub fn modules(&self) -> u32 {
        self.modules
    }

    /// Notes that the model writes into tensors, although no description tells of it.
    pub fn note_write(&self) {
        self.memory.wrote.store(true, Ordering::Relaxed);
    }

    /// Modules and parameters that have several paths, as what several `Arc`s point to.
    pub fn shared(&self) -> Vec<Vec<NodeId>> {
        let has_place = |id: &NodeId| self.node(*id).is_some_and(|node| node.own.has_place);
        let places = self.lookup.places.values().chain(self.lookup.parameters.values());
        let placed = places.map(|places| places.as_slice().iter().copied().filter(has_place).collect());
        placed.filter(|same: &Vec<NodeId>| same.len() > 1).collect()
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id as usize)
    }

    /// The module with this number.
    pub fn node_of_module(&self, number: u32) -> Option<NodeId> {
        let is_it = |node: &Node| node.kind != Kind::Parameter && node.number == number;
        self.nodes.iter().position(is_it).map(|id| id as NodeId)
    }

    fn own_steps(&self, node: &Node) -> &[Step] {
        self.steps.get(node.own.steps.0 as usize..node.own.steps.1 as usize).unwrap_or_default()
    }

    /// The steps from the root to a node, as text; made for all nodes when first needed.
    pub fn segments(&self, id: NodeId) -> &[String] {
        self.all_segments().get(id as usize).map_or(&[], |segments| segments)
    }

    /// The same, to be kept.
    pub fn shared_segments(&self, id: NodeId) -> Arc<[String]> {
        self.all_segments().get(id as usize).cloned().unwrap_or_default()
    }

    fn all_segments(&self) -> &[Arc<[String]>] {
        self.texts.segments.get_or_init(|| {
            let mut all: Vec<Arc<[String]>> = Vec::with_capacity(self.nodes.len());
            let mut segments = Vec::new();
            for node in &self.nodes {
                let above = node.parent.and_then(|parent| all.get(parent as usize));
                segments.extend(above.into_iter().flat_map(|above| above.iter().cloned()));
                segments.extend(self.own_steps(node).iter().map(|step| step.text().into_owned()));
                all.push(segments.drain(..).collect());
            }
            all
        })
    }

    /// The names of all nodes, in order; made when first needed.
    pub fn names(&self) -> &Arc<[Arc<str>]> {
        self.texts.names.get_or_init(|| {
            (0..self.nodes.len() as NodeId).map(|id| point_name(self.segments(id), "out").into()).collect()
        })
    }

    /// The name of a node: its path.
    pub fn name(&self, id: NodeId) -> Arc<str> {
        self.names().get(id as usize).cloned().unwrap_or_default()
    }

    /// The module of this address and type, as seen from within `caller`. `hint` is the field's
    /// name where the call says it; it tells apart modules of size zero, which share an address.
    pub fn module_at(
        &self,
        address: usize,
        type_id: TypeId,
        caller: impl FnOnce() -> Option<NodeId>,
        hint: &str,
    ) -> Option<NodeId> {
        match self.lookup.places.get((address, type_id))? {
            Places::One(only) => Some(*only),
            several => self.choose(several.as_slice(), caller(), hint),
        }
    }

    /// The same, where there is only one.
    #[inline]
    pub fn only_module_at(&self, address: usize, type_id: TypeId) -> Option<NodeId> {
        match self.lookup.places.get((address, type_id))? {
            Places::One(only) => Some(*only),
            _ => None,
        }
    }

    /// The same for the module behind a receiver that is a reference to it, with its place.
    #[inline]
    pub fn only_module_behind(&self, receiver: Erased<'_>) -> Option<(NodeId, usize, TypeId)> {
        let entry = self.lookup.receivers.get(&receiver.type_id()).filter(|entry| !entry.boxed)?;
        let (address, type_id) = entry.place_of(receiver);
        Some((self.only_module_at(address, type_id)?, address, type_id))
    }

    /// Is there a module of this type at this address that is called as a whole, and has a size?
    pub fn has_leaf_at(&self, address: usize, type_id: TypeId) -> bool {
        let at = self.lookup.places.get((address, type_id)).map_or(&[][..], Places::as_slice);
        let is_leaf = |node: &Node| node.kind == Kind::Leaf && node.own.has_place && node.type_id == type_id;
        at.iter().filter_map(|id| self.node(*id)).any(is_leaf)
    }

    /// Is this the node of a module with this address and type?
    pub fn is_at(&self, id: NodeId, address: usize, type_id: TypeId) -> bool {
        self.lookup.places.get((address, type_id)).is_some_and(|places| places.as_slice().contains(&id))
    }

    /// The module behind a receiver expression, with how to call it.
    pub fn module_behind(
        &self,
        receiver: Erased<'_>,
        caller: impl Fn() -> Option<NodeId>,
        hint: &str,
    ) -> Option<(NodeId, &Receiver)> {
        let entry = self.lookup.receivers.get(&receiver.type_id())?;
        let module = entry.module(receiver)?;
        if !entry.boxed {
            return Some((self.module_at(module.address(), module.type_id(), caller, hint)?, entry));
        }
        // A box is a place of its own, which tells apart what it shares with others.
        for place in [Some(receiver), entry.holder(receiver)].into_iter().flatten() {
            if let Some(id) = self.module_at(place.address(), place.type_id(), &caller, hint) {
                return Some((id, entry));
            }
        }
        Some((self.module_at(module.address(), module.type_id(), &caller, hint)?, entry))
    }

    /// Is this an option of a module that is empty?
    pub fn is_nobody(&self, receiver: Erased<'_>) -> bool {
        self.lookup.receivers.get(&receiver.type_id()).is_some_and(|entry| entry.module(receiver).is_none())
    }

    /// The parameter that this tensor is.
    pub fn parameter_of(
        &self,
        tensor: TensorId,
        caller: impl FnOnce() -> Option<NodeId>,
        hint: &str,
    ) -> Option<NodeId> {
        if !self.may_be_parameter(tensor) {
            return None;
        }
        match self.lookup.parameters.get(tensor)? {
            Places::One(only) => Some(*only),
            several => self.choose(several.as_slice(), caller(), hint),
        }
    }

    pub fn is_parameter(&self, tensor: TensorId) -> bool {
        self.may_be_parameter(tensor) && self.lookup.parameters.get(tensor).is_some()
    }

    /// Of nearly all other tensors it says no.
    #[inline]
    pub fn may_be_parameter(&self, tensor: TensorId) -> bool {
        number(tensor) <= self.lookup.last_parameter
    }

    /// Does the model own this buffer, and so may write to it later?
    pub fn owns_buffer(&self, storage: &Storage) -> bool {
        let buffer = std::ptr::from_ref(storage) as usize;
        self.memory.buffer_sieve.may_hold(&buffer) && self.memory.buffers.contains(&buffer)
    }

    pub fn has_parameters(&self) -> bool {
        !self.lookup.parameters.is_empty()
    }

    /// Of several nodes with one identity, the nearest to the caller; of those, the one that the
    /// call names.
    fn choose(&self, candidates: &[NodeId], caller: Option<NodeId>, hint: &str) -> Option<NodeId> {
        let mut around = caller;
        loop {
            let inside = |id: &&NodeId| match around.and_then(|a| Some((a, self.node(a)?))) {
                Some((a, node)) => a <= **id && **id < node.end,
                None => true,
            };
            let mut near = candidates.iter().filter(inside);
            if let Some(first) = near.clone().next() {
                let named = near.find(|id| self.node(**id).is_some_and(|node| self.is_named(node, hint)));
                return Some(*named.unwrap_or(first));
            }
            around = around.and_then(|a| self.node(a)?.parent);
        }
    }

    fn is_named(&self, node: &Node, hint: &str) -> bool {
        !hint.is_empty() && self.own_steps(node).first().is_some_and(|step| step.text() == hint)
    }

    /// The instrumented methods of a node's type.
    pub fn methods(&self, node: &Node) -> &'static [&'static MethodInfo] {
        registry::methods_of(node.type_id, node.type_name, node.own.definition)
    }

    /// Has the type of this node an annotated `forward*`?
    pub fn has_forward(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| {
            *node.own.has_forward.get_or_init(|| self.methods(node).iter().any(|method| method.is_forward()))
        })
    }
}
