//! The listeners of a plan: what they are interested in, and how they are told.
//!
//! A plan asks once and keeps the answers as [`Interests`], which say for every point who listens there, one bit for
//! each listener. So a point that interests none of them costs a run nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use candle_core::Tensor;

use super::call_hooks::look;
use super::fire::Replace;
use super::gradient::Operation;
use super::points::Described;
use super::replacement::{fit, Broadcast, Like};
use super::{PointKey, RunState};
use crate::error::{Error, ErrorKind, Result};
use crate::listen::{self, Answer, At, End, Interest, Listener, Point};
use crate::lookup::FastMap;
use crate::pattern::point_name;
use crate::raw::{paused, Erased, ErasedMut};
use crate::tree::{Kind, NodeId, Tree};
use crate::value::{DynamicOps, ValueOps};

/// A listener as a plan holds it.
pub(crate) trait Ear {
    fn tell(&self, f: &mut dyn FnMut(&mut dyn Listener) -> Result<()>) -> Result<()>;
}

impl<'l> Ear for RefCell<&'l mut (dyn Listener + 'l)> {
    fn tell(&self, f: &mut dyn FnMut(&mut dyn Listener) -> Result<()>) -> Result<()> {
        let mut listener = self.try_borrow_mut().map_err(|_| Error::from(ErrorKind::ListenerBusy))?;
        paused(|| f(&mut **listener))
    }
}

/// The listeners of a plan, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Audience<'a> {
    ears: Vec<Rc<dyn Ear + 'a>>,
    /// Is there a run that they listen to?
    listening: Cell<bool>,
}

/// As many as have a bit of their own.
const MOST: usize = u32::BITS as usize;

impl<'a> Audience<'a> {
    pub fn add(&mut self, listener: &'a mut (dyn Listener + 'a)) -> Result<()> {
        if self.ears.len() == MOST {
            return Err(ErrorKind::TooManyListeners { most: MOST }.into());
        }
        self.ears.push(Rc::new(RefCell::new(listener)));
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.ears.is_empty()
    }

    /// A run begins; it ends when the guard is dropped.
    pub fn begin(&self) -> Result<Listening<'_>> {
        if self.is_empty() {
            return Ok(Listening(None));
        }
        if self.listening.replace(true) {
            return Err(ErrorKind::ListenerBusy.into());
        }
        let listening = Listening(Some(&self.listening));
        self.each(u32::MAX, |listener| listener.begin())?;
        Ok(listening)
    }

    /// Tells those with these bits, in order; an error goes to the caller and is not told to the rest.
    pub(super) fn each(&self, who: u32, mut f: impl FnMut(&mut dyn Listener) -> Result<()>) -> Result<()> {
        let mut left = who;
        while left != 0 {
            let number = left.trailing_zeros();
            left &= left - 1;
            let Some(ear) = self.ears.get(number as usize) else { break };
            ear.tell(&mut f)?;
        }
        Ok(())
    }

    pub(super) fn tell(&self, number: u32, mut f: impl FnMut(&mut dyn Listener) -> Result<()>) -> Result<()> {
        self.ears.get(number as usize).map_or(Ok(()), |ear| ear.tell(&mut f))
    }

    fn masks(&self, point: &Point<'_>) -> Masks {
        let mut masks = Masks::default();
        for (number, ear) in self.ears.iter().enumerate() {
            let mut interest = Interest::NOTHING;
            // Asked between runs, or by a run that does not tell it anything at that moment.
            let _ = ear.tell(&mut |listener| {
                interest = listener.interest(point);
                Ok(())
            });
            let bit = |wanted| u32::from(interest.contains(wanted)) << number;
            masks.values |= bit(Interest::VALUES);
            masks.calls |= bit(Interest::CALLS);
            masks.operations |= bit(Interest::OPERATIONS);
            masks.gradients |= bit(Interest::GRADIENTS);
        }
        masks
    }
}

/// While it is there, a run is going on.
#[must_use = "the run is over when this is dropped"]
pub(crate) struct Listening<'l>(Option<&'l Cell<bool>>);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        if let Some(listening) = self.0 {
            listening.set(false);
        }
    }
}

/// Who wants to hear what, one bit for each listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Masks {
    pub values: u32,
    pub calls: u32,
    pub operations: u32,
    pub gradients: u32,
}

impl Masks {
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Must the value itself be shown?
    pub fn shown(&self) -> bool {
        self.values | self.gradients != 0
    }
}

/// What the listeners of a plan want of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Interested {
    /// Of its output, and of the module that it is.
    pub output: Masks,
    /// Is any of its inputs, or of the values inside it, to be shown?
    pub inside: bool,
}

impl Interested {
    pub fn any(&self) -> bool {
        self.inside || self.output.any()
    }
}

/// What the listeners of a plan want of all points.
#[derive(Default)]
pub(crate) struct Interests {
    nodes: Vec<Interested>,
    values: RefCell<FastMap<(NodeId, String), Masks>>,
}

impl Interests {
    /// Asks all listeners about all points that are known before a run. Interest in nothing at all is an error.
    pub fn of(audience: &Audience<'_>, tree: &Tree) -> Result<Self> {
        if audience.is_empty() {
            return Ok(Self::default());
        }
        let mut heard = 0u32;
        let mut values = FastMap::default();
        let mut note = |masks: Masks| {
            heard |= masks.values | masks.calls | masks.operations | masks.gradients;
            masks
        };
        let mut nodes = Vec::with_capacity(tree.nodes.len());
        for (id, node) in (0..).zip(&tree.nodes) {
            let ask = |value: &str, kind| {
                let (name, type_name) = (point_name_of(tree, id, value), node.type_name);
                audience.masks(&Point { name: &name, value, kind, type_name })
            };
            let mut interested = Interested { output: note(ask("out", node.kind)), inside: false };
            let mut inside: Vec<String> = Vec::new();
            if node.kind != Kind::Parameter {
                inside.push("in".to_string());
            }
            for method in tree.methods(node) {
                let named = method.args.iter().chain(method.values).filter(|name| !name.is_empty());
                inside.extend(named.map(|name| method.value_name(name)));
            }
            for value in inside {
                let masks = note(ask(&value, Kind::Value));
                interested.inside |= masks.shown();
                values.insert((id, value), masks);
            }
            nodes.push(interested);
        }
        let deaf = (0..audience.ears.len()).find(|number| heard & 1 << number == 0);
        match deaf {
            Some(number) => Err(ErrorKind::NoInterest { listener: number }.into()),
            None => Ok(Self { nodes, values: values.into() }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn at(&self, node: NodeId) -> Interested {
        self.nodes.get(node as usize).copied().unwrap_or_default()
    }

    /// Who wants to hear of a value of a node; those are asked now that was not known before the run.
    fn value(&self, audience: &Audience<'_>, tree: &Tree, node: NodeId, value: &str) -> Masks {
        if self.is_empty() {
            return Masks::default();
        }
        if value == "out" {
            return self.at(node).output;
        }
        let key = (node, value.to_string());
        if let Some(masks) = self.values.borrow().get(&key) {
            return *masks;
        }
        let name = point_name_of(tree, node, value);
        let type_name = tree.node(node).map_or("", |node| node.type_name);
        let masks = audience.masks(&Point { name: &name, value, kind: Kind::Value, type_name });
        self.values.borrow_mut().insert(key, masks);
        masks
    }
}

fn point_name_of(tree: &Tree, node: NodeId, value: &str) -> String {
    match value {
        "out" => tree.name(node).to_string(),
        value => point_name(tree.segments(node), value),
    }
}

/// What a run tells its listeners.
pub(crate) struct Telling<'p> {
    /// Who they are.
    pub audience: &'p Audience<'p>,
    /// The calls that listeners have entered and that are not over.
    open: RefCell<Vec<Open>>,
    /// How often each name was called.
    numbers: RefCell<FastMap<(NodeId, usize), usize>>,
}

impl<'p> Telling<'p> {
    pub fn new(audience: &'p Audience<'p>) -> Self {
        let (open, numbers) = Default::default();
        Self { audience, open, numbers }
    }
}

/// A call that was entered.
struct Open {
    who: u32,
    name: Arc<str>,
    method: &'static str,
    node: NodeId,
    is_module: bool,
    number: usize,
    inputs: Vec<Tensor>,
    /// How many frames there are around it; a method has its own besides.
    depth: usize,
    result: Option<Tensor>,
}

/// What the listeners said to a call.
pub(super) enum Said {
    Go,
    Done(Tensor),
}

impl RunState<'_> {
    /// Who wants to hear of a point.
    pub(super) fn heard_at(&self, node: NodeId, value: &str) -> Masks {
        self.dispatch.interests.value(self.listeners.users.audience, self.tree, node, value)
    }

    /// Who listens to calls of a module.
    pub(super) fn hears_calls(&self, node: NodeId) -> u32 {
        match self.listeners.users.audience.is_empty() {
            true => 0,
            false => self.dispatch.interests.at(node).output.calls,
        }
    }

    /// Who listens to operations in the code that is being executed.
    pub(super) fn hears_operations(&self) -> u32 {
        if self.listeners.users.audience.is_empty() {
            return 0;
        }
        self.caller().map_or(0, |node| self.dispatch.interests.at(node).output.operations)
    }

    fn told<'c>(&'c self, open: &'c Open) -> listen::Call<'c> {
        let node = self.tree.node(open.node);
        listen::Call {
            name: &open.name,
            method: open.method,
            kind: node.map_or(Kind::Module, |node| node.kind),
            type_name: node.map_or("", |node| node.type_name),
            number: open.number,
            depth: 0,
            is_module: open.is_module,
            inputs: &open.inputs,
        }
    }

    /// A call is about to be made with these inputs.
    pub(super) fn tell_enter(
        &self,
        (node, method, is_module): (NodeId, &'static str, bool),
        depth: usize,
        inputs: Vec<Tensor>,
    ) -> Result<Said> {
        let who = self.hears_calls(node);
        let name = match is_module {
            true => self.tree.name(node),
            false => point_name(self.tree.segments(node), method).into(),
        };
        let counted = (node, if is_module { 0 } else { method.as_ptr() as usize });
        let number = {
            let mut numbers = self.listeners.users.numbers.borrow_mut();
            let number = numbers.entry(counted).or_insert(0);
            *number += 1;
            *number - 1
        };
        let open = Open { who, name, method, node, is_module, number, inputs, depth, result: None };
        let mut said = Answer::Go;
        let around = self.listeners.users.open.borrow();
        self.each_at_depth(&around, who, |depth, listener| {
            if matches!(said, Answer::Go) {
                said = listener.enter(&listen::Call { depth, ..self.told(&open) })?;
            } else {
                // What another one answers is entered and left by all.
                let _ = listener.enter(&listen::Call { depth, ..self.told(&open) })?;
            }
            Ok(())
        })?;
        drop(around);
        self.listeners.users.open.borrow_mut().push(open);
        match said {
            Answer::Go => Ok(Said::Go),
            Answer::Done(tensor) => Ok(Said::Done(tensor)),
            Answer::Stop => Err(ErrorKind::Stopped.into()),
        }
    }

    fn each_at_depth(
        &self,
        around: &[Open],
        who: u32,
        mut f: impl FnMut(usize, &mut dyn Listener) -> Result<()>,
    ) -> Result<()> {
        let mut left = who;
        while left != 0 {
            let number = left.trailing_zeros();
            left &= left - 1;
            let depth = around.iter().filter(|open| open.who & 1 << number != 0).count();
            self.listeners.users.audience.tell(number, |listener| f(depth, listener))?;
        }
        Ok(())
    }

    /// The annotated method with so many frames has been given all its arguments.
    pub(super) fn tell_method(&self, depth: usize) -> Result<Said> {
        let (node, method, is_call, inputs) = {
            let mut frames = self.stack.frames.borrow_mut();
            let Some(frame) = frames.get_mut(depth - 1) else { return Ok(Said::Go) };
            let Some(node) = frame.node.filter(|node| self.hears_calls(*node) != 0) else {
                return Ok(Said::Go);
            };
            (node, frame.method, frame.is_call, std::mem::take(&mut frame.arguments.heard))
        };
        let said = self.tell_enter((node, method.name, is_call), depth, inputs)?;
        if let Said::Done(tensor) = said {
            if !is_call || !self.is_free_of_effects(depth) {
                return Err(self.not_answerable(node));
            }
            return Ok(Said::Done(tensor));
        }
        Ok(Said::Go)
    }

    pub(super) fn not_answerable(&self, node: NodeId) -> Error {
        let point = self.tree.name(node).to_string();
        let reason = "a listener has answered the call, which may change something besides its result, or gives something \
                      other than one tensor";
        ErrorKind::NotReplaceable { point, reason: reason.to_string() }.into()
    }

    /// Notes an argument of the method with so many frames, for those who listen to calls.
    #[inline]
    pub(super) fn hear_argument(&self, depth: usize, value: Erased<'_>) {
        if !self.listeners.users.audience.is_empty() {
            self.note_heard(depth, value);
        }
    }

    #[cold]
    fn note_heard(&self, depth: usize, value: Erased<'_>) {
        let mut frames = self.stack.frames.borrow_mut();
        let Some(frame) = frames.get_mut(depth - 1) else { return };
        if frame.node.is_some_and(|node| self.hears_calls(node) != 0) {
            // What cannot be looked at is not shown.
            let _ = look(&value, &mut |_, _, tensor| frame.arguments.heard.push(tensor.clone()));
        }
    }

    /// The method with so many frames gives this.
    pub(super) fn hear_result<R>(&self, depth: usize, ops: &ValueOps<R>, result: &mut R) {
        let Some(each_tensor) = ops.each_tensor else { return };
        let mut open = self.listeners.users.open.borrow_mut();
        let Some(open) = open.iter_mut().rev().find(|open| open.depth == depth) else { return };
        // A result that is an error has no tensors.
        let _ = each_tensor(result, &mut |_, tensor| {
            open.result.get_or_insert_with(|| tensor.clone());
            Ok(())
        });
    }

    /// A foreign module gives this.
    pub(super) fn hear_leaf_result(&self, node: NodeId, mut result: ErasedMut<'_>) {
        let depth = self.stack.depth() + 1;
        if let (Some(ops), Some(open)) =
            (DynamicOps::for_type(result.type_id()), self.listeners.users.open.borrow_mut().last_mut())
        {
            if open.node == node && open.depth == depth {
                let _ = ops.each_tensor(result.reborrow(), &mut |_, tensor| {
                    open.result.get_or_insert_with(|| tensor.clone());
                    Ok(())
                });
            }
        }
        self.tell_leave(depth);
    }

    /// All calls with so many frames, or more, are over.
    pub(super) fn tell_leave(&self, depth: usize) {
        loop {
            let over = self.listeners.users.open.borrow_mut().pop_if(|open| open.depth >= depth);
            let Some(over) = over else { return };
            let around = self.listeners.users.open.borrow();
            let left = self.each_at_depth(&around, over.who, |depth, listener| {
                listener.leave(&listen::Call { depth, ..self.told(&over) }, over.result.as_ref());
                Ok(())
            });
            drop(around);
            if let Err(error) = left {
                self.fail(error);
            }
        }
    }

    /// A value has reached its point, after hooks and patches: what the model goes on with, if that is another one.
    pub(super) fn tell_value(
        &self,
        (described, key, visit): (&Described, PointKey, usize),
        value: &Tensor,
        replace: Replace,
    ) -> Result<Option<Tensor>> {
        let name = point_name_of(self.tree, described.node, &described.value);
        let output = || self.tree.node(described.node).map_or(Kind::Value, |node| node.kind);
        let kind = if described.value == "out" { output() } else { Kind::Value };
        let point = Point { name: &name, value: &described.value, kind, type_name: described.type_name };
        let step = self.step();
        let at = At { point, call: visit, step: step.as_ref() };
        let mut new: Option<Tensor> = None;
        self.listeners.users.audience.each(described.heard.values, |listener| {
            let now = new.as_ref().unwrap_or(value);
            let Some(given) = listener.value(&at, now)?.filter(|given| given.id() != now.id()) else {
                return Ok(());
            };
            if let Replace::No(reason) = replace {
                let (point, reason) = (name.clone(), reason.to_string());
                return Err(ErrorKind::NotReplaceable { point, reason }.into());
            }
            let given = fit("what the listener returned", &name, &given, &Like::of(now), Broadcast::No)?;
            new = Some(given.contiguous()?);
            Ok(())
        })?;
        let new = new.map(|new| self.lent(new)).transpose()?;
        let now = new.as_ref().unwrap_or(value);
        // A value that depends on nothing whose gradient is wanted has none.
        let has_gradient = self.gradient().is_some() && now.track_op() && now.dtype().is_float();
        if described.heard.gradients == 0 || !has_gradient {
            return Ok(new);
        }
        let heard = (name.as_str(), kind, described.heard.gradients);
        Ok(self.tap_heard(heard, described.type_name, (key, visit), now)?.or(new))
    }

    /// An operation is done.
    pub(super) fn tell_operation(&self, operation: &Operation, mut result: ErasedMut<'_>) -> Result<()> {
        let who = self.hears_operations();
        if who == 0 {
            return Ok(());
        }
        let started = operation.started().unwrap_or_else(Instant::now);
        let took = started.elapsed();
        let operands = operation.tensors();
        let inside = self.caller().map(|node| self.tree.name(node)).unwrap_or_default();
        let site = operation.site();
        let told = listen::Operation {
            name: site.name,
            inside: &inside,
            file: site.file,
            line: site.line,
            operands: &operands,
            started,
            took,
        };
        let Some(ops) = DynamicOps::for_type(result.type_id()) else { return Ok(()) };
        let mut first = true;
        ops.each_tensor(result.reborrow(), &mut |_, tensor| {
            if !std::mem::replace(&mut first, false) {
                return Ok(());
            }
            self.listeners.users.audience.each(who, |listener| {
                let Some(new) = listener.operation(&told, tensor)? else { return Ok(()) };
                let what = format!("`{}` at {}:{}", site.name, site.file, site.line);
                let new = fit("what the listener returned", &what, &new, &Like::of(tensor), Broadcast::No)?;
                *tensor = self.lent(new.contiguous()?)?;
                Ok(())
            })
        })
    }

    /// The run is over. `failed` is the error that the closure returned.
    pub fn tell_end(&self, failed: Option<&Error>) {
        if self.listeners.users.audience.is_empty() {
            return;
        }
        self.tell_leave(0);
        let own = self.ended();
        let text = own.as_ref().or(failed).map(Error::to_string);
        let how = match &text {
            _ if self.is_stopped() => End::Stopped,
            Some(text) => End::Failed(text),
            None => End::Returned,
        };
        if let Err(error) = self.listeners.users.audience.each(u32::MAX, |listener| listener.end(&how)) {
            self.fail(error);
        }
    }
}
