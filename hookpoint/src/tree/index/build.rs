//! How a tree is made: what a [`Visitor`] announces, one thing after the other.

use std::any::TypeId;
use std::sync::OnceLock;

use candle_core::{Device, Tensor, TensorId};
use hookpoint_grad::layer::KnownLayer;

use super::{Node, NodeId, Own, Places, Tree};
use crate::erased::{receiver_itself, receivers, Caller, Erased};
use crate::fingerprint::Fingerprint;
use crate::lookup::{number, FastMap};
use crate::pattern::point_name;
use crate::tree::dict::Kind;
use crate::tree::layers;
use crate::tree::registry::{Effects, TypeInfo};
use crate::tree::visit::{AutoHook, Step, Visitor};

/// Where a walk is.
#[derive(Default)]
pub(super) struct Walk {
    /// What the model computes with, where the walk is to note that.
    weights: Option<Vec<Weight>>,
    path: Vec<Step>,
    open: Vec<(NodeId, usize)>,
    /// The module that takes no state from the field that is visited.
    pure: Option<NodeId>,
    boxes: Vec<(usize, TypeId)>,
}

/// A tensor that the model owns, or that a well-known layer of it does.
pub(crate) struct Weight {
    pub name: String,
    pub tensor: Tensor,
    /// Does it stand for a number or a text in a field, and is no tensor of the model?
    pub is_number: bool,
    /// Is it a tensor of the model itself, and not of a layer of candle's?
    pub is_own: bool,
}

/// What the tensors of a model hold at some time.
pub(crate) struct Buffers(FastMap<TensorId, Fingerprint>);

impl Buffers {
    /// Was one of them written to since? A tensor in the place of another one is seen otherwise.
    pub fn were_written(&self, now: &Self) -> bool {
        self.0.iter().any(|(tensor, before)| now.0.get(tensor).is_some_and(|now| now != before))
    }
}

impl Tree {
    /// Walks over `model`.
    pub fn of<M: AutoHook + ?Sized>(model: &M) -> Self {
        let mut tree = Tree::default();
        model.visit(&mut Visitor::new(&mut tree));
        tree
    }

    /// The tensors that a model computes with: its parameters, and those of the layers that show theirs.
    pub fn weights_of<M: AutoHook + ?Sized>(model: &M) -> Vec<Weight> {
        let mut tree =
            Tree { walk: Walk { weights: Some(Vec::new()), ..Walk::default() }, ..Tree::default() };
        model.visit(&mut Visitor::new(&mut tree));
        tree.walk.weights.unwrap_or_default()
    }

    /// What the tensors hold that the model itself owns, those of candle's layers not counted: nobody writes to them.
    pub fn buffers_of<M: AutoHook + ?Sized>(model: &M) -> Buffers {
        let own = Self::weights_of(model).into_iter().filter(|weight| weight.is_own);
        let print = |weight: Weight| {
            let mut print = Fingerprint::default();
            // What cannot be read is not compared.
            let _ = print.mostly(&weight.tensor);
            (weight.tensor.id(), print)
        };
        Buffers(own.map(print).collect())
    }

    fn note_weight(&mut self, inside: &str, tensor: &Tensor, is_number: bool) {
        let Some(weights) = &mut self.walk.weights else { return };
        let mut steps: Vec<String> = self.walk.path.iter().map(|step| step.text().into_owned()).collect();
        if !inside.is_empty() {
            steps.push(inside.to_string());
        }
        let is_own = !is_number && inside.is_empty();
        weights.push(Weight { name: point_name(&steps, "out"), tensor: tensor.clone(), is_number, is_own });
    }

    /// A number in a field of this name of the innermost module, or at the place that is visited, where the walk is to
    /// note what the model computes with.
    pub(in crate::tree) fn number(&mut self, name: &'static str, bits: impl FnOnce() -> Option<u64>) {
        if self.walk.weights.is_none() {
            return;
        }
        let number = bits().and_then(|bits| Tensor::new(bits as i64, &Device::Cpu).ok());
        if let Some(number) = number {
            self.note_weight(name, &number, true);
        }
    }

    pub(in crate::tree) fn push(&mut self, step: Step) {
        self.walk.boxes.clear();
        self.walk.path.push(step);
    }

    pub(in crate::tree) fn pop(&mut self) {
        self.walk.boxes.clear();
        self.walk.path.pop();
    }

    pub(in crate::tree) fn also_at<T>(&mut self, place: &T) {
        let place = Erased::of(place);
        self.walk.boxes.push((place.address(), place.type_id()));
    }

    pub(in crate::tree) fn enter<T: ?Sized, C: Caller<T>>(&mut self, module: &T, kind: Kind) -> NodeId {
        let place = Erased::of(module);
        let id = self.add(kind, std::any::type_name::<T>(), place.type_id());
        if let Some(node) = self.nodes.last_mut() {
            node.own.has_place = std::mem::size_of_val(module) > 0;
            node.minds_training = C::MINDS_TRAINING;
        }
        if let (Kind::Leaf, Some(node)) = (kind, self.nodes.last_mut()) {
            let layer = layers::known_layer(place);
            node.width = layer.and_then(KnownLayer::width);
            for (name, tensor) in layer.map(KnownLayer::weights).unwrap_or_default() {
                self.note_weight(name, tensor, false);
                self.owns(tensor);
            }
        }
        // Values of size zero have no address of their own; only their box tells them apart.
        self.place((place.address(), place.type_id()), id);
        for boxed in std::mem::take(&mut self.walk.boxes) {
            self.place(boxed, id);
        }
        if !self.lookup.receivers.contains_key(&place.type_id()) {
            self.lookup.receivers.extend(receivers::<T, C>());
        }
        self.walk.open.push((id, self.walk.path.len()));
        id
    }

    pub(in crate::tree) fn callable<T, C: Caller<T>>(&mut self) {
        let (of, receiver) = receiver_itself::<T, C>();
        self.lookup.receivers.insert(of, receiver);
    }

    /// Says what the generic type of the module that was just entered is defined as.
    pub(in crate::tree) fn is_defined(&mut self, definition: &'static TypeInfo) {
        if let Some(node) = self.nodes.last_mut() {
            node.own.definition = Some(definition);
        }
    }

    pub(in crate::tree) fn has_state(&mut self) {
        let id = self.walk.open.last().map(|(id, _)| *id as usize);
        if self.walk.pure.is_some_and(|pure| id == Some(pure as usize)) {
            return;
        }
        if let Some(node) = id.and_then(|id| self.nodes.get_mut(id)) {
            node.has_state = true;
        }
    }

    /// Visits a field of the innermost module, which takes no state from it.
    pub(in crate::tree) fn pure(&mut self, inside: impl FnOnce(&mut Self)) {
        let around = std::mem::replace(&mut self.walk.pure, self.walk.open.last().map(|(id, _)| *id));
        inside(self);
        self.walk.pure = around;
    }

    /// Visits what a cell or a lock holds. Layers in it stay what they are; anything else is state: a tensor,
    /// a number, a module with methods that change it.
    pub(in crate::tree) fn cell(&mut self, inside: impl FnOnce(&mut Self)) {
        let first = self.nodes.len();
        inside(self);
        let open = self.walk.open.last().map(|(id, _)| *id);
        let direct: Vec<&Node> = self.nodes.iter().skip(first).filter(|node| node.parent == open).collect();
        let changes = |node: &&Node| match node.kind {
            Kind::Leaf => false,
            Kind::Module => self.methods(node).iter().any(|m| !matches!(m.effects, Effects::None { .. })),
            _ => true,
        };
        if direct.is_empty() || direct.iter().any(changes) {
            self.has_state();
        }
    }

    pub(in crate::tree) fn leave(&mut self, id: NodeId) {
        let end = self.nodes.len() as NodeId;
        if let Some(node) = self.nodes.get_mut(id as usize) {
            node.end = end;
        }
        self.walk.open.pop();
    }

    pub(in crate::tree) fn parameter(&mut self, tensor: &Tensor) {
        self.walk.boxes.clear();
        let id = self.add(Kind::Parameter, "Tensor", TypeId::of::<Tensor>());
        self.owns(tensor);
        self.lookup.last_parameter = self.lookup.last_parameter.max(number(tensor.id()));
        self.note_weight("", tensor, false);
        if let Some(places) = self.lookup.parameters.entry(tensor.id(), || Places::None) {
            places.push(id);
        }
    }

    /// The memory of this tensor is the model's.
    fn owns(&mut self, tensor: &Tensor) {
        let buffer = buffer(tensor);
        self.memory.buffers.insert(buffer);
        self.memory.buffer_sieve.insert(&buffer);
    }

    fn add(&mut self, kind: Kind, type_name: &'static str, type_id: TypeId) -> NodeId {
        let id = self.nodes.len() as NodeId;
        let (parent, depth) = match self.walk.open.last() {
            Some((parent, depth)) => (Some(*parent), *depth),
            None => (None, 0),
        };
        let start = self.steps.len() as u32;
        self.steps.extend(self.walk.path.iter().skip(depth).cloned());
        let steps = (start, self.steps.len() as u32);
        let (number, end) = (self.modules, id + 1);
        self.modules += u32::from(kind != Kind::Parameter);
        let node = Node {
            kind,
            type_name,
            type_id,
            parent,
            end,
            number,
            width: None,
            has_state: false,
            is_foreign: kind == Kind::Leaf && !is_of_candle(type_name),
            minds_training: false,
            own: Own {
                has_place: kind == Kind::Parameter,
                has_forward: OnceLock::new(),
                definition: None,
                steps,
            },
        };
        self.nodes.push(node);
        id
    }

    fn place(&mut self, place: (usize, TypeId), id: NodeId) {
        if let Some(places) = self.lookup.places.entry(place, || Places::None) {
            places.push(id);
        }
    }
}

/// Where the data of a tensor is kept; views share it.
fn buffer(tensor: &Tensor) -> usize {
    let (storage, _) = tensor.storage_and_layout();
    std::ptr::from_ref(&*storage) as usize
}

/// Is this a layer of candle's, which writes to nothing that it gives? Those that hold layers or closures of others may.
fn is_of_candle(type_name: &str) -> bool {
    let of = ["candle_nn::", "candle_core::quantized::", "candle_transformers::", "hookpoint_layers::"];
    let holds_others = ["::func::", "::sequential::", "::chain::"];
    of.iter().any(|krate| type_name.starts_with(krate))
        && !holds_others.iter().any(|of| type_name.contains(of))
}
