//! The arguments of annotated methods: shown in order, numbered as inputs, replaced.

use candle_core::Tensor;

use super::fire::Replace;
use super::frame::{address, with_label};
use super::{part_id, PointKey, RunState, Slot32};
use crate::error::Result;
use crate::raw::{Erased, ErasedMut};
use crate::tree::MethodInfo;
use crate::value::DynamicOps;

pub(super) fn holds_tensors(type_id: std::any::TypeId) -> bool {
    DynamicOps::for_type(type_id).is_some_and(|ops| ops.has_tensors())
}

impl RunState<'_> {
    /// Counts the tensor arguments of the current call, and says which one this is.
    pub(super) fn next_input(&self, depth: usize) -> u32 {
        let mut frames = self.frames.borrow_mut();
        let Some(frame) = frames.get_mut(depth - 1) else { return 0 };
        frame.inputs_seen += 1;
        frame.inputs_seen - 1
    }

    pub(super) fn argument(
        &self,
        depth: usize,
        number: u32,
        value: Erased<'_>,
        replace: Replace,
    ) -> Result<Option<Tensor>> {
        if let Some(new) = self.decided_argument(depth, number, replace) {
            return new;
        }
        let Some(tensor) = value.tensor() else {
            if holds_tensors(value.type_id()) {
                self.next_input(depth);
            }
            return Ok(None);
        };
        let input = self.next_input(depth);
        let Some(at) = self.argument_point(depth, number, input, tensor) else { return Ok(None) };
        let new = self.fire(at.key, &|| at.names(), tensor, replace)?;
        self.settle(at.key.node);
        Ok(new)
    }

    pub(super) fn argument_value(&self, depth: usize, number: u32, mut value: ErasedMut<'_>) -> Result<()> {
        if self.decided_value(depth, number, &mut value)? {
            return Ok(());
        }
        if let Some(tensor) = value.get_mut::<Tensor>() {
            let input = self.next_input(depth);
            if let Some(at) = self.argument_point(depth, number, input, tensor) {
                if let Some(new) = self.fire(at.key, &|| at.names(), tensor, Replace::Yes)? {
                    *tensor = new;
                }
                self.settle(at.key.node);
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
                at.key.part = part_id(part, label);
                let names = || at.part_names(part, label);
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
        let wants = self.dispatch.at(node);
        if frame.is_call && frame.lesson.is_none() && self.is_lesson(wants) {
            frame.lesson = self.begin_lesson(node, tensor);
            frame.replaced_for = wants.may_skip.then(|| tensor.clone());
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
}

/// An argument of the method that is being executed.
pub(super) struct Argument {
    pub key: PointKey,
    pub method: &'static MethodInfo,
    pub number: u32,
    pub input: u32,
    pub is_call: bool,
}

impl Argument {
    pub fn names(&self) -> Vec<String> {
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

    /// The names of a part of the argument. The second part of the first input is `in.0.1`: the second
    /// input is `in.1`.
    pub fn part_names(&self, part: u32, label: &str) -> Vec<String> {
        let first = if part == 0 { self.names() } else { Vec::new() };
        let numbered = |name: String| match name.strip_suffix("in") {
            Some(_) if self.input == 0 => format!("{name}.0"),
            _ => name,
        };
        let mut whole = self.names();
        if let Some(last) = whole.pop() {
            whole.push(numbered(last));
        }
        first.into_iter().chain(with_label(whole, 1, label)).collect()
    }
}
