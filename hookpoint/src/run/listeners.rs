//! How the listeners of a plan are told what happens in a run, and what comes of their answers.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use candle_core::Tensor;

use super::audience::{point_name_of, Audience, Masks};
use super::call_hooks::look;
use super::fire::Replace;
use super::gradient::Operation;
use super::points::Described;
use super::replacement::{fit, Broadcast, Like};
use super::RunState;
use crate::erased::{Erased, ErasedMut};
use crate::error::{Error, ErrorKind, Result};
use crate::lookup::FastMap;
use crate::pattern::point_name;
use crate::point::{self, Answer, At, End, Listener, Point, PointKey};
use crate::tree::{Kind, NodeId};
use crate::value::{DynamicOps, ValueOps};

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

    fn told<'c>(&'c self, open: &'c Open) -> point::Call<'c> {
        let node = self.tree.node(open.node);
        point::Call {
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
                said = listener.enter(&point::Call { depth, ..self.told(&open) })?;
            } else {
                // What another one answers is entered and left by all.
                let _ = listener.enter(&point::Call { depth, ..self.told(&open) })?;
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
                listener.leave(&point::Call { depth, ..self.told(&over) }, over.result.as_ref());
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
        replace: Replace<'_>,
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
        let told = point::Operation {
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
