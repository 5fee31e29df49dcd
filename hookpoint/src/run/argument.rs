//! The arguments of annotated methods: shown in order, numbered as inputs, replaced.

use candle_core::Tensor;

use super::any::type_name;
use super::fire::Replace;
use super::observe::Over;
use super::result::{address, with_label};
use super::RunState;
use crate::erased::{paused, Erased, ErasedMut};
use crate::error::{ErrorKind, Result};
use crate::pattern::point_name;
use crate::point::{Member, PointKey, Slot32};
use crate::tree::MethodInfo;
use crate::value::{AnyValue, DynamicOps};

/// How the type of a tensor is called in messages.
const TENSOR: &str = "candle_core::Tensor";

const INSIDE: &str = "it is inside an argument that is a reference; hook it where it is made";

/// What is to be done with the tensors inside an argument.
#[derive(Clone, Copy, PartialEq)]
enum Parts {
    /// They are to be shown.
    New,
    /// They were shown before.
    Shown,
}

pub(super) fn holds_tensors(type_id: std::any::TypeId) -> bool {
    DynamicOps::for_type(type_id).is_some_and(|ops| ops.has_tensors())
}

/// What takes the place of an argument.
pub(super) enum New {
    Tensor(Tensor),
    Any(AnyValue),
}

impl RunState<'_> {
    /// Counts the tensor arguments of the current call, and says which one this is.
    pub(super) fn next_input(&self, depth: usize) -> u32 {
        let mut frames = self.stack.frames.borrow_mut();
        let Some(frame) = frames.get_mut(depth - 1) else { return 0 };
        frame.arguments.seen += 1;
        frame.arguments.seen - 1
    }

    pub(super) fn argument(
        &self,
        depth: usize,
        number: u32,
        value: Erased<'_>,
        replace: Replace<'_>,
    ) -> Result<Option<New>> {
        if let Some(new) = self.decided_argument(depth, number, replace) {
            return match (value.tensor(), new?) {
                (Some(_), new) => {
                    self.next_input(depth);
                    Ok(new.map(New::Tensor))
                }
                // The tensors inside were shown before, the value as a whole was not.
                (None, None) => {
                    Ok(self.argument_any(depth, number, value, replace, Parts::Shown)?.map(New::Any))
                }
                (None, Some(_)) => Err(self.not_replaceable(depth, number, INSIDE)),
            };
        }
        if let Some(list) = value.slice() {
            let looked = self.argument_any(depth, number, Erased::of(&list), Replace::No(INSIDE), Parts::New);
            return looked.map(|_| None);
        }
        let Some(tensor) = value.tensor() else {
            return Ok(self.argument_any(depth, number, value, replace, Parts::New)?.map(New::Any));
        };
        let input = self.next_input(depth);
        self.note_argument(depth, tensor);
        let Some(at) = self.argument_point(depth, number, Some(input), Some(tensor)) else { return Ok(None) };
        self.patch_any(at.key, &|| at.names(), TENSOR, &mut |_| false)?;
        let new = self.fire(at.key, &|| at.names(), tensor, replace)?;
        if let Some(new) = &new {
            self.note_argument(depth, new);
        }
        self.over(at.key.node, Over::Values);
        Ok(new.map(New::Tensor))
    }

    /// An argument of another type, which can be kept and replaced as a whole; its tensors can be looked at.
    fn argument_any(
        &self,
        depth: usize,
        number: u32,
        value: Erased<'_>,
        replace: Replace<'_>,
        parts: Parts,
    ) -> Result<Option<AnyValue>> {
        let Some(ops) = DynamicOps::for_type(value.type_id()) else { return Ok(None) };
        let input = ops.has_tensors().then(|| self.next_input(depth));
        let Some(mut at) = self.argument_point(depth, number, input, None) else { return Ok(None) };
        at.key.member = Member::WHOLE;
        let names = || at.names();
        let mut new = None;
        if self.dispatch.at(at.key.node).patches_any {
            let copied = paused(|| ops.copy(value));
            self.patch_any(at.key, &names, type_name(copied.as_ref()), &mut |any| {
                let fits = any.is(value.type_id());
                new = fits.then(|| any.clone());
                fits
            })?;
        }
        if let (Some(_), Replace::No(reason)) = (&new, replace) {
            let value = names().into_iter().next().unwrap_or_default();
            let point = point_name(self.tree.segments(at.key.node), &value);
            return Err(ErrorKind::NotReplaceable { point, reason: reason.to_string() }.into());
        }
        // What replaces it is the user's, who knows what is inside.
        if parts == Parts::New && new.is_none() && ops.has_tensors() {
            self.argument_parts(depth, &at, ops, value)?;
        }
        self.fire_any(at.key, &names, &mut || new.clone().or_else(|| ops.copy(value)));
        self.over(at.key.node, Over::Values);
        Ok(new)
    }

    /// The tensors inside an argument that is a reference, one by one.
    fn argument_parts(&self, depth: usize, at: &Argument, ops: &DynamicOps, value: Erased<'_>) -> Result<()> {
        let mut parts: Vec<(String, Tensor)> = Vec::new();
        // They are looked at in a copy, and a `clone` is the user's own code.
        paused(|| {
            ops.look(value, &mut |label, tensor| {
                parts.push((label.to_string(), tensor.clone()));
                Ok(())
            })
        })?;
        let mut members = self.members();
        for (label, tensor) in &parts {
            self.note_argument(depth, tensor);
            let (part, member) = members.next(label);
            let key = PointKey { member, ..at.key };
            self.fire(key, &|| at.part_names(part, label), tensor, Replace::No(INSIDE))?;
        }
        Ok(())
    }

    /// An argument whose tensors were shown before: what is to be done with it as a whole.
    fn argument_whole(&self, depth: usize, number: u32, mut value: ErasedMut<'_>) -> Result<()> {
        let Some(ops) = DynamicOps::for_type(value.type_id()) else { return Ok(()) };
        let input = ops.has_tensors().then(|| self.next_input(depth));
        let Some(at) = self.argument_point(depth, number, input, None) else { return Ok(()) };
        let key = |member| PointKey { member, ..at.key };
        self.patch_value(&key, &|| at.names(), ops, &mut value)?;
        if !ops.is_one_tensor() {
            self.fire_any(key(Member::WHOLE), &|| at.names(), &mut || ops.copy(value.shared()));
            self.over(at.key.node, Over::Values);
        }
        Ok(())
    }

    pub(super) fn argument_value(&self, depth: usize, number: u32, mut value: ErasedMut<'_>) -> Result<()> {
        if self.decided_value(depth, number, &mut value)? {
            return self.argument_whole(depth, number, value);
        }
        if let Some(tensor) = value.get_mut::<Tensor>() {
            let input = self.next_input(depth);
            if let Some(at) = self.argument_point(depth, number, Some(input), Some(tensor)) {
                self.patch_any(at.key, &|| at.names(), TENSOR, &mut |_| false)?;
                if let Some(new) = self.fire(at.key, &|| at.names(), tensor, Replace::Yes)? {
                    *tensor = new;
                }
                self.over(at.key.node, Over::Values);
            }
            self.note_argument(depth, tensor);
            return Ok(());
        }
        let shared = value.shared();
        if shared.tensor().is_some() && value.get_mut::<Option<Tensor>>().is_none() {
            let reason = "the argument is a reference inside another type; hook the value where it is made";
            self.argument(depth, number, value.shared(), Replace::No(reason))?;
            return Ok(());
        }
        let Some(ops) = DynamicOps::for_type(value.type_id()) else { return Ok(()) };
        let input = ops.has_tensors().then(|| self.next_input(depth));
        let whole = self.argument_point(depth, number, input, None);
        if let Some(at) = &whole {
            self.patch_value(&|member| PointKey { member, ..at.key }, &|| at.names(), ops, &mut value)?;
        }
        let mut members = self.members();
        ops.each_tensor(value.reborrow(), &mut |label, tensor| {
            let (part, member) = members.next(label);
            if let Some(mut at) = self.argument_point(depth, number, input, Some(tensor)) {
                at.key.member = member;
                let names = || at.part_names(part, label);
                if let Some(new) = self.fire(at.key, &names, tensor, Replace::Yes)? {
                    *tensor = new;
                }
            }
            self.note_argument(depth, tensor);
            Ok(())
        })?;
        if let Some(at) = whole {
            let key = PointKey { member: Member::WHOLE, ..at.key };
            self.fire_any(key, &|| at.names(), &mut || ops.copy(value.shared()));
            self.over(at.key.node, Over::Values);
        }
        Ok(())
    }

    /// The point of an argument, if somebody may want it. `input` is its number among the arguments that
    /// hold tensors.
    fn argument_point(
        &self,
        depth: usize,
        number: u32,
        input: Option<u32>,
        tensor: Option<&Tensor>,
    ) -> Option<Argument> {
        let mut frames = self.stack.frames.borrow_mut();
        let frame = frames.get_mut(depth - 1)?;
        let node = frame.node?;
        let wants = self.dispatch.at(node);
        let is_lesson = frame.is_call
            && frame.method.is_forward()
            && frame.memo.lesson.is_none()
            && self.is_lesson(wants);
        if let Some(tensor) = tensor.filter(|_| is_lesson) {
            frame.memo.lesson = self.begin_lesson(node, tensor, frame.before.effects);
            frame.memo.input = wants.may_skip.then(|| tensor.clone());
        }
        let (method, is_call) = (frame.method, frame.is_call);
        frame.wants_inputs.then(|| Argument {
            key: PointKey {
                node,
                method: address(method),
                slot: Slot32::Input(number),
                member: Member::FIRST,
            },
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
    pub input: Option<u32>,
    pub is_call: bool,
}

impl Argument {
    pub fn names(&self) -> Vec<String> {
        self.own_name().into_iter().chain(self.by_number()).collect()
    }

    fn own_name(&self) -> Option<String> {
        let own = self.method.args.get(self.number as usize).filter(|name| !name.is_empty());
        own.map(|name| self.method.value_name(name))
    }

    /// `in`, and `encode.in` of a method that is no `forward`.
    fn by_number(&self) -> Vec<String> {
        let Some(input) = self.input else { return Vec::new() };
        let numbered = match input {
            0 => "in".to_string(),
            n => format!("in.{n}"),
        };
        let of_method =
            (!self.is_call || !self.method.is_forward()).then(|| format!("{}.{numbered}", self.method.name));
        of_method.into_iter().chain(self.is_call.then_some(numbered)).collect()
    }

    /// The names of a part of the argument. The second part of the first input is `in.0.1`: the second
    /// input is `in.1`.
    pub fn part_names(&self, part: u32, label: &str) -> Vec<String> {
        let first = if part == 0 { self.names() } else { Vec::new() };
        let numbered = |name: String| match name.strip_suffix("in") {
            Some(_) if self.input == Some(0) => format!("{name}.0"),
            _ => name,
        };
        let whole = self.own_name().into_iter().chain(self.by_number().into_iter().map(numbered)).collect();
        first.into_iter().chain(with_label(whole, 1, label)).collect()
    }
}
