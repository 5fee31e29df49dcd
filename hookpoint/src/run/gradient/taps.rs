//! What a run notes for the backward pass: where gradients are wanted, and by whom.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use candle_core::{DType, Tensor, TensorId, Var};

use super::barriers::Lost;
use super::nudge::Nudge;
use super::tap::Tap;
use super::Gradient;
use crate::error::Result;
use crate::lookup::FastMap;
use crate::point::{is_part, PointKey, Slot32, Step};
use crate::run::points::Asked;
use crate::run::{Action, RunState};
use crate::tree::{Kind, NodeId};

/// The taps of a run, in the order in which they were put in.
#[derive(Default)]
pub(crate) struct Taps {
    /// Tells the taps of this run from those of others, whose tensors a model may have kept.
    run: OnceCell<u64>,
    /// One variable of one element for each device.
    roots: RefCell<Vec<Var>>,
    pub(in crate::run) taps: RefCell<Vec<Tapping>>,
    /// Which tap a point has in a visit of it.
    at: RefCell<FastMap<(PointKey, usize), usize>>,
    /// Where the gradient of something that is not a float was wanted, by request.
    pub(in crate::run) not_floats: RefCell<Vec<(u32, Arc<str>, DType)>>,
    pub(in crate::run) calls: RefCell<Calls>,
    /// Where the model has read numbers that a gradient is wanted of.
    pub(in crate::run) reads: RefCell<Vec<String>>,
    /// How often each module was called, and which call the last one of a foreign module was.
    entered: RefCell<FastMap<NodeId, usize>>,
    leaf: Cell<usize>,
    /// Where the gradient was or may have been lost.
    pub(in crate::run) lost: Lost,
    /// Whether, and how, gradients are compared with differences.
    pub(super) nudge: Option<Rc<Nudge>>,
}

/// What a tap is there for.
pub(in crate::run) enum Tapping {
    /// A point where the gradient is wanted.
    Point(TappedPoint),
    /// The result of something that gives no gradient, though its input wants one.
    Barrier(String),
}

pub(in crate::run) struct TappedPoint {
    pub type_name: &'static str,
    pub key: PointKey,
    pub visit: usize,
    pub call: usize,
    /// Which step of a generation it was.
    pub step: Option<Step>,
    /// The requests that want the gradient of this call of the point, in the order in which they act.
    pub wishes: Vec<Wish>,
    /// What listeners know it as, and which of them want to hear of the gradient.
    pub name: Option<(Arc<str>, Kind)>,
    pub heard: u32,
}

/// A request that wants the gradient at a point.
pub(in crate::run) struct Wish {
    pub request: u32,
    pub name: Arc<str>,
    pub label: u32,
    pub kind: Kind,
    /// Which call of the module it is, where the call is wanted as a whole.
    pub of_call: usize,
}

/// A request for the gradient at a point, in a call of it.
pub(in crate::run) struct Wanted<'a> {
    pub asked: &'a Asked,
    pub type_name: &'static str,
    pub key: PointKey,
    /// Which visit of the point it is, and which call of its name.
    pub visit: usize,
    pub call: usize,
}

/// What became of a wish for the gradient of a value.
pub(in crate::run) enum Tapped {
    /// The model goes on with this.
    New(Tensor),
    /// Another request has put in the tap.
    Already,
    /// There is no gradient of such a value, or none of this call is wanted.
    Nothing,
}

/// The calls whose gradients somebody wants all at once, by request, module and number.
pub(in crate::run) type Calls = FastMap<(u32, NodeId, usize), Call>;

pub(in crate::run) struct Call {
    pub name: Arc<str>,
    pub kind: Kind,
    pub type_name: &'static str,
    pub number: usize,
    pub step: Option<Step>,
    pub inputs: Vec<Part>,
    pub outputs: Vec<Part>,
    order: usize,
}

/// An input or output of such a call.
pub(in crate::run) struct Part {
    pub key: PointKey,
    /// What it is called: `in`, `in.1`, `out`.
    pub name: String,
    pub value: Tensor,
    pub grad: Option<Tensor>,
}

impl Call {
    pub fn part(&mut self, key: PointKey) -> Option<&mut Part> {
        self.inputs.iter_mut().chain(&mut self.outputs).find(|part| part.key == key)
    }

    pub fn is_complete(&self) -> bool {
        let mut parts = self.inputs.iter().chain(&self.outputs);
        parts.all(|part| part.grad.is_some() || !part.value.dtype().is_float())
    }

    /// Which of the calls came first.
    pub fn order(&self) -> usize {
        self.order
    }

    pub fn has_any(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).any(|part| part.grad.is_some())
    }
}

impl RunState<'_> {
    /// Has the gradient of a value noted when the backward pass comes by.
    pub(in crate::run) fn want_gradient(&self, wanted: &Wanted<'_>, value: &Tensor) -> Result<Tapped> {
        // Hooks that stay on a model are there in other runs, too.
        let Some(Gradient { taps, .. }) = self.gradient() else { return Ok(Tapped::Nothing) };
        let Wanted { asked, type_name, key, visit, call } = *wanted;
        let request = self.requests.get(asked.request as usize);
        let whole_call = request.filter(|request| matches!(request.action, Action::HookBackward(_)));
        let Asked { request, label, kind, .. } = *asked;
        let mut wish = Wish { request, name: asked.name.clone(), label, kind, of_call: 0 };
        if let Some(request) = whole_call {
            wish.of_call = self.module_call(taps, wanted);
            if request.pattern.call().is_some_and(|call| call != wish.of_call) {
                return Ok(Tapped::Nothing);
            }
            self.note_part(taps, wanted, wish.of_call, value);
        }
        if !value.dtype().is_float() {
            if whole_call.is_some() {
                return Ok(Tapped::Already);
            }
            taps.not_floats.borrow_mut().push((request, wish.name, value.dtype()));
            return Ok(Tapped::Nothing);
        }
        let tap = taps.at.borrow().get(&(key, visit)).copied();
        if let Some(tap) = tap {
            taps.add_wish(tap, wish);
            return Ok(Tapped::Already);
        }
        let met = taps.nudge.as_ref().map(|nudge| nudge.met((key, visit), &wish.name, value)).transpose()?;
        if let Some(moved) = met.as_ref().filter(|_| taps.nudge.as_ref().is_some_and(|nudge| nudge.moves())) {
            taps.at.borrow_mut().insert((key, visit), 0);
            return Ok(Tapped::New(moved.clone()));
        }
        let (step, wishes, name, heard) = (self.step(), vec![wish], None, 0);
        let point = TappedPoint { type_name, key, visit, call, step, wishes, name, heard };
        let (number, tapped) = taps.put(Tapping::Point(point), met.as_ref().unwrap_or(value))?;
        taps.at.borrow_mut().insert((key, visit), number);
        Ok(Tapped::New(tapped))
    }

    /// Has listeners told of the gradient of a value when the backward pass comes by; gives what the model goes on
    /// with, where it is another value.
    pub(in crate::run) fn tap_heard(
        &self,
        (name, kind, who): (&str, Kind, u32),
        type_name: &'static str,
        (key, visit): (PointKey, usize),
        value: &Tensor,
    ) -> Result<Option<Tensor>> {
        let Some(Gradient { taps, .. }) = self.gradient() else { return Ok(None) };
        let tap = taps.at.borrow().get(&(key, visit)).copied();
        if let Some(tap) = tap {
            taps.hear(tap, who, (name, kind));
            return Ok(None);
        }
        let name = Some((name.into(), kind));
        let (call, step, wishes) = (visit, self.step(), Vec::new());
        let point = TappedPoint { type_name, key, visit, call, step, wishes, name, heard: who };
        let (number, tapped) = taps.put(Tapping::Point(point), value)?;
        taps.at.borrow_mut().insert((key, visit), number);
        Ok(Some(tapped))
    }

    /// Which call of its module a value belongs to. That is not how often the value was seen: an input
    /// may be optional.
    fn module_call(&self, taps: &Taps, wanted: &Wanted<'_>) -> usize {
        let node = wanted.key.node;
        match self.tree.node(node).map(|node| node.kind) {
            Some(Kind::Module) => {
                let frames = self.stack.frames.borrow();
                let of_node = frames.iter().rev().find(|frame| frame.node == Some(node) && frame.is_call);
                of_node.map_or(wanted.call, |frame| frame.trail.call)
            }
            Some(Kind::Leaf) => taps.leaf.get(),
            _ => wanted.call,
        }
    }

    /// A module is called: which call of it that is.
    pub(in crate::run) fn count_call(&self, node: NodeId) -> usize {
        let Some(Gradient { taps, .. }) = self.gradient() else { return 0 };
        let mut entered = taps.entered.borrow_mut();
        let count = entered.entry(node).or_insert(0);
        *count += 1;
        *count - 1
    }

    /// What comes next belongs to this call of a foreign module.
    pub(in crate::run) fn in_leaf_call(&self, number: usize) {
        if let Some(Gradient { taps, .. }) = self.gradient() {
            taps.leaf.set(number);
        }
    }

    fn note_part(&self, taps: &Taps, wanted: &Wanted<'_>, number: usize, value: &Tensor) {
        let mut calls = taps.calls.borrow_mut();
        let order = calls.len();
        let node = wanted.key.node;
        let path = self.tree.name(node);
        let of_path = wanted.asked.name.strip_prefix(&*path).and_then(|rest| rest.strip_prefix(':'));
        let name = of_path.unwrap_or("out").to_string();
        let call = calls.entry((wanted.asked.request, node, number)).or_insert_with(|| Call {
            name: path,
            kind: self.tree.node(node).map_or(Kind::Module, |node| node.kind),
            type_name: wanted.type_name,
            number,
            step: self.step(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            order,
        });
        let part = Part { key: wanted.key, name, value: value.detach(), grad: None };
        match wanted.key.slot {
            Slot32::Input(_) => call.inputs.push(part),
            Slot32::Result | Slot32::Binding(_) => call.outputs.push(part),
        }
    }
}

/// Is this one of the values that a call has: its inputs and outputs?
pub(in crate::run) fn is_of_call(name: &str) -> bool {
    is_part("in", name) || is_part("out", name)
}

impl Taps {
    /// In a run that a certificate of gradients needs.
    pub(super) fn nudged(nudge: Option<Rc<Nudge>>) -> Self {
        Self { nudge, ..Self::default() }
    }

    fn run(&self) -> u64 {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        *self.run.get_or_init(|| RUNS.fetch_add(1, Ordering::Relaxed))
    }

    pub(in crate::run) fn is_run(&self, run: u64) -> bool {
        self.run.get() == Some(&run)
    }

    /// Puts in a tap: its number, and what the model goes on with.
    pub(in crate::run) fn put(&self, tapping: Tapping, value: &Tensor) -> Result<(usize, Tensor)> {
        let number = self.taps.borrow().len();
        let root = self.root(value)?;
        let tapped = Tap::new(self.run(), number).put(value, &root)?;
        self.taps.borrow_mut().push(tapping);
        Ok((number, tapped))
    }

    fn add_wish(&self, tap: usize, wish: Wish) {
        if let Some(Tapping::Point(point)) = self.taps.borrow_mut().get_mut(tap) {
            point.wishes.push(wish);
        }
    }

    fn hear(&self, tap: usize, who: u32, (name, kind): (&str, Kind)) {
        if let Some(Tapping::Point(point)) = self.taps.borrow_mut().get_mut(tap) {
            point.heard |= who;
            point.name.get_or_insert_with(|| (name.into(), kind));
        }
    }

    fn root(&self, like: &Tensor) -> Result<Var> {
        let mut roots = self.roots.borrow_mut();
        if let Some(root) = roots.iter().find(|root| root.device().same_device(like.device())) {
            return Ok(root.clone());
        }
        let root = Var::zeros((), DType::F32, like.device())?;
        roots.push(root.clone());
        Ok(root)
    }

    pub(in crate::run) fn note_read(&self, place: String) {
        let mut reads = self.reads.borrow_mut();
        if !reads.contains(&place) {
            reads.push(place);
        }
    }

    /// Is this a variable of the run's own?
    pub(crate) fn is_root(&self, id: TensorId) -> bool {
        self.roots.borrow().iter().any(|root| root.id() == id)
    }

    /// Has the value to do with a point whose gradient is wanted? This walks over all that it was computed
    /// from, so it is asked only where something is wrong.
    pub(in crate::run) fn is_upstream_of(&self, value: &Tensor) -> bool {
        value.track_op() && value.sorted_nodes().iter().any(|node| self.is_root(node.id()))
    }
}
