//! Annotated methods: entering, arguments, leaving.

use std::cell::Cell;

use candle_core::Tensor;

use super::call::known_shape;
use super::fire::{check_patch, Replace};
use super::request::Action;
use super::{Frame, PointKey, RunState, Slot32};
use crate::error::Result;
use crate::raw::{active, current, Erased, ErasedMut, Slot};
use crate::tree::{MethodInfo, NodeId};
use crate::value::{DynamicOps, ValueOps};

/// A method that has been entered; leaves it when dropped, on return, error and panic.
#[must_use = "the method is left when this is dropped"]
pub struct Entered {
    /// The number of frames including this one; 0 where nobody listens.
    depth: usize,
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        if self.depth != 0 {
            leave(self.depth);
        }
    }
}

#[cold]
fn leave(depth: usize) {
    current(|state| state.frames.borrow_mut().truncate(depth - 1));
}

impl Entered {
    /// Enters `method` of `this`.
    #[inline(always)]
    pub fn new<T: ?Sized>(method: &'static MethodInfo, this: &T) -> Self {
        if active() {
            return Self::enter(method, Erased::of(this));
        }
        Self { depth: 0 }
    }

    #[cold]
    fn enter(method: &'static MethodInfo, this: Erased<'_>) -> Self {
        let depth = current(|state| state.enter(method, this));
        Self { depth: depth.unwrap_or(0) }
    }

    /// Is somebody listening?
    #[inline(always)]
    pub fn live(&self) -> bool {
        self.depth != 0
    }

    /// An argument that is a reference: what the method goes on with.
    #[inline(always)]
    pub fn by_ref<'s, T: ?Sized>(&self, number: u32, value: &'s T, slot: &'s mut Slot) -> &'s T {
        if self.depth == 0 {
            return value;
        }
        self.by_ref_cold(number, value, slot)
    }

    #[cold]
    fn by_ref_cold<'s, T: ?Sized>(&self, number: u32, value: &'s T, slot: &'s mut Slot) -> &'s T {
        match self.argument(number, Erased::of(value), Replace::Yes) {
            Some(new) => slot.put(value, new),
            None => value,
        }
    }

    /// An argument that is an optional reference.
    #[inline(always)]
    pub fn by_option<'s, T>(&self, number: u32, value: Option<&'s T>, slot: &'s mut Slot) -> Option<&'s T> {
        if self.depth == 0 {
            return value;
        }
        match value {
            Some(value) => Some(self.by_ref_cold(number, value, slot)),
            None => {
                self.no_argument::<T>();
                None
            }
        }
    }

    /// An argument that is only looked at.
    #[inline(always)]
    pub fn by_look<T: ?Sized>(&self, number: u32, value: &T) {
        if self.depth != 0 {
            let reason = "the argument is borrowed for longer than the call; hook the value where it is made";
            self.argument(number, Erased::of(value), Replace::No(reason));
        }
    }

    /// An argument that is passed by value: what the method goes on with.
    #[inline(always)]
    pub fn by_value<T>(&self, number: u32, mut value: T) -> T {
        if self.depth != 0 {
            self.by_value_cold(number, ErasedMut::of(&mut value));
        }
        value
    }

    #[cold]
    fn by_value_cold(&self, number: u32, value: ErasedMut<'_>) {
        current(|state| {
            if let Err(error) = state.argument_value(self.depth, number, value) {
                state.fail(error);
            }
        });
    }

    #[cold]
    fn argument(&self, number: u32, value: Erased<'_>, replace: Replace) -> Option<Tensor> {
        current(|state| match state.argument(self.depth, number, value, replace) {
            Ok(new) => new,
            Err(error) => {
                state.fail(error);
                None
            }
        })?
    }

    #[cold]
    fn no_argument<T>(&self) {
        current(|state| {
            if holds_tensors(typeid::of::<T>()) {
                state.next_input(self.depth);
            }
        });
    }

    /// The method's result where it need not run: its whole output is replaced and nothing inside is
    /// wanted, or the run is over.
    #[cold]
    pub fn skip<R>(&self, ops: &ValueOps<R>) -> Option<R> {
        current(|state| {
            if let (Some(error), Some(from_error)) = (state.ended(), ops.from_error) {
                return Some(from_error(error));
            }
            let from_tensor = ops.from_tensor?;
            match state.skip(self.depth) {
                Ok(Some(tensor)) => Some(from_tensor(tensor)),
                Ok(None) => None,
                Err(error) => {
                    state.fail(error.clone());
                    ops.from_error.map(|from_error| from_error(error))
                }
            }
        })?
    }

    /// The method's result: what the caller goes on with.
    #[cold]
    pub fn result<R>(&self, ops: &ValueOps<R>, mut result: R) -> R {
        let error = current(|state| {
            if let Err(error) = state.result(self.depth, ops, &mut result) {
                state.fail(error);
            }
            state.ended()
        });
        match (error.flatten(), ops.from_error) {
            (Some(error), Some(from_error)) => from_error(error),
            _ => result,
        }
    }
}

fn holds_tensors(type_id: std::any::TypeId) -> bool {
    DynamicOps::for_type(type_id).is_some_and(|ops| ops.has_tensors())
}

impl RunState<'_> {
    fn enter(&self, method: &'static MethodInfo, this: Erased<'_>) -> usize {
        let caller = self.caller();
        let node = self.claim(this, caller);
        let mut frames = self.frames.borrow_mut();
        // A `forward_t` that `forward` of the same module calls is part of the same call.
        let nested = frames.last().is_some_and(|top| {
            top.node.is_some() && top.node == node && top.method.is_forward() && method.is_forward()
        });
        let wants = node.map(|node| self.dispatch.at(node));
        frames.push(Frame {
            node,
            method,
            is_call: method.is_forward() && !nested,
            wants_inputs: wants.is_some_and(|wants| wants.inputs) || self.scans(),
            wants_values: wants.is_some_and(|wants| wants.values) || self.scans(),
            inputs_seen: 0,
            first_input: None,
        });
        frames.len()
    }

    /// The node of the module that is entered. Where its call site has said which one it is about to
    /// call, that is it.
    fn claim(&self, this: Erased<'_>, caller: Option<NodeId>) -> Option<NodeId> {
        let mut announced = self.announced.borrow_mut();
        if let Some(last) = announced.last_mut().filter(|last| !last.claimed) {
            if self.tree.is_at(last.node, this.address(), this.type_id()) {
                last.claimed = true;
                return Some(last.node);
            }
        }
        self.tree.module_at(this.address(), this.type_id(), caller, "")
    }

    /// Counts the tensor arguments of the current call, and says which one this is.
    fn next_input(&self, depth: usize) -> u32 {
        let mut frames = self.frames.borrow_mut();
        let Some(frame) = frames.get_mut(depth - 1) else { return 0 };
        frame.inputs_seen += 1;
        frame.inputs_seen - 1
    }

    fn argument(
        &self,
        depth: usize,
        number: u32,
        value: Erased<'_>,
        replace: Replace,
    ) -> Result<Option<Tensor>> {
        let Some(tensor) = value.tensor() else {
            if holds_tensors(value.type_id()) {
                self.next_input(depth);
            }
            return Ok(None);
        };
        let input = self.next_input(depth);
        let Some(at) = self.argument_point(depth, number, input, tensor) else { return Ok(None) };
        self.fire(at.key, &|| at.names(), tensor, replace)
    }

    fn argument_value(&self, depth: usize, number: u32, mut value: ErasedMut<'_>) -> Result<()> {
        if let Some(tensor) = value.get_mut::<Tensor>() {
            let input = self.next_input(depth);
            if let Some(at) = self.argument_point(depth, number, input, tensor) {
                if let Some(new) = self.fire(at.key, &|| at.names(), tensor, Replace::Yes)? {
                    *tensor = new;
                }
            }
            return Ok(());
        }
        let shared = value.shared();
        if shared.tensor().is_some() && value.get_mut::<Option<Tensor>>().is_none() {
            let reason = "the argument is a reference inside another type; hook the value where it is made";
            self.argument(depth, number, value.shared(), Replace::No(reason))?;
            return Ok(());
        }
        let Some(ops) = DynamicOps::for_type(value.type_id()) else { return Ok(()) };
        let input = if ops.has_tensors() { self.next_input(depth) } else { 0 };
        let mut part = 0;
        ops.each_tensor(value, &mut |label, tensor| {
            if let Some(mut at) = self.argument_point(depth, number, input, tensor) {
                at.key.part = part;
                let names = || with_label(at.names(), part, label);
                if let Some(new) = self.fire(at.key, &names, tensor, Replace::Yes)? {
                    *tensor = new;
                }
            }
            part += 1;
            Ok(())
        })
    }

    fn argument_point(&self, depth: usize, number: u32, input: u32, tensor: &Tensor) -> Option<Argument> {
        let mut frames = self.frames.borrow_mut();
        let frame = frames.get_mut(depth - 1)?;
        let node = frame.node?;
        if frame.is_call && frame.first_input.is_none() && self.dispatch.at(node).output {
            frame.first_input = Some(tensor.dims().to_vec());
        }
        let (method, is_call) = (frame.method, frame.is_call);
        frame.wants_inputs.then(|| Argument {
            key: PointKey { node, method: address(method), slot: Slot32::Input(number), part: 0 },
            method,
            number,
            input,
            is_call,
        })
    }

    fn skip(&self, depth: usize) -> Result<Option<Tensor>> {
        let (node, input) = {
            let frames = self.frames.borrow();
            let Some(frame) = frames.get(depth - 1).filter(|frame| frame.is_call) else { return Ok(None) };
            let Some(node) = frame.node else { return Ok(None) };
            (node, frame.first_input.clone())
        };
        self.replaced(node, || known_shape(self, node, input.as_deref()))
    }

    /// The value of a module that need not run because its whole output is patched. `shape` gives
    /// the shape that its output would have, if that is known without running it.
    pub(super) fn replaced(
        &self,
        node: NodeId,
        shape: impl FnOnce() -> Option<Vec<usize>>,
    ) -> Result<Option<Tensor>> {
        let wants = self.dispatch.at(node);
        if !wants.may_skip || self.scans() {
            return Ok(None);
        }
        let key = PointKey { node, method: 0, slot: Slot32::Result, part: 0 };
        let call = self.points.borrow().get(&key).map_or(0, |point| point.calls);
        let patches = wants.requests.iter().rev().filter_map(|id| self.requests.get(*id as usize));
        let mut whole = patches.filter_map(|request| match &request.action {
            Action::Patch(patch)
                if request.pattern.index().is_none()
                    && request.pattern.call().is_none_or(|wanted| wanted == call) =>
            {
                Some(patch)
            }
            _ => None,
        });
        let Some(patch) = whole.next() else { return Ok(None) };
        let Some(shape) = shape() else { return Ok(None) };
        check_patch(&self.tree.name(node), patch, &shape)?;
        let fired = self.fire(key, &|| vec!["out".into()], patch, Replace::Yes)?;
        Ok(Some(fired.unwrap_or_else(|| patch.clone())))
    }

    fn result<R>(&self, depth: usize, ops: &ValueOps<R>, result: &mut R) -> Result<()> {
        let (node, method, is_call, wants_values, first_input) = {
            let mut frames = self.frames.borrow_mut();
            let Some(frame) = frames.get_mut(depth - 1) else { return Ok(()) };
            let Some(node) = frame.node else { return Ok(()) };
            (node, frame.method, frame.is_call, frame.wants_values, frame.first_input.take())
        };
        let wanted = if is_call { self.dispatch.at(node).output || self.scans() } else { wants_values };
        if !wanted {
            return Ok(());
        }
        let key = |part| PointKey {
            node,
            method: if is_call { 0 } else { address(method) },
            slot: Slot32::Result,
            part,
        };
        let base = if is_call { "out" } else { method.name };
        let parts = Cell::new(0);
        if let Some(each_tensor) = ops.each_tensor {
            each_tensor(result, &mut |label, tensor| {
                let part = parts.get();
                parts.set(part + 1);
                if part == 0 && is_call {
                    self.learn(node, first_input.as_deref(), tensor);
                }
                let names = || with_label(vec![base.to_string()], part, label);
                if let Some(new) = self.fire(key(part), &names, tensor, Replace::Yes)? {
                    *tensor = new;
                }
                Ok(())
            })?;
        }
        if ops.from_tensor.is_none() {
            if let Some(copy) = &ops.copy {
                // Under the same name, beside the tensors: the whole value, of whatever type.
                let key = key(u32::MAX);
                self.fire_any(key, &|| vec![base.to_string()], &mut || (copy.0)(result));
            }
        }
        Ok(())
    }

    fn learn(&self, node: NodeId, first_input: Option<&[usize]>, output: &Tensor) {
        if let Some(input) = first_input.filter(|input| *input != output.dims()) {
            let mut learned = self.learned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            learned.insert((node, input.to_vec()), output.dims().to_vec());
        }
    }
}

/// Names for one part of a value: the first part has the value's own name.
pub(super) fn with_label(names: Vec<String>, part: u32, label: &str) -> Vec<String> {
    let labelled = |name: &String| match label {
        "" => name.clone(),
        label => format!("{name}.{label}"),
    };
    match part {
        0 => names.iter().cloned().chain(names.iter().map(labelled)).collect(),
        _ => names.iter().map(labelled).collect(),
    }
}

pub(super) fn address(method: &'static MethodInfo) -> usize {
    std::ptr::from_ref(method) as usize
}

/// An argument of the method that is being executed.
struct Argument {
    key: PointKey,
    method: &'static MethodInfo,
    number: u32,
    input: u32,
    is_call: bool,
}

impl Argument {
    fn names(&self) -> Vec<String> {
        let own = self.method.args.get(self.number as usize).filter(|name| !name.is_empty());
        let numbered = match self.input {
            0 => "in".to_string(),
            n => format!("in.{n}"),
        };
        let by_number = match self.is_call {
            true => numbered,
            false => format!("{}.{numbered}", self.method.name),
        };
        own.map(|name| self.method.value_name(name)).into_iter().chain([by_number]).collect()
    }
}
