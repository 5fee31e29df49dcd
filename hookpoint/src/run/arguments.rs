//! The arguments of an annotated method, all at once, for hooks that see them so.
//!
//! Arguments are usually shown one by one. Where a hook wants all of them, they are shown together before:
//! everything that is to be done with them is done then, and what it led to is handed out one by one.

use candle_core::Tensor;

use super::argument::Argument;
use super::call_hooks::{is_input, look, named, Named, Part, When};
use super::fire::Replace;
use super::observe::Over;
use super::result::address;
use super::RunState;
use crate::erased::{Erased, ErasedMut};
use crate::error::{ErrorKind, Result};
use crate::point::{Member, PointKey, Slot32};
use crate::value::DynamicOps;

/// What became of the arguments.
pub(super) struct Previewed {
    pub inputs: Named,
    /// The new ones: which argument, and which tensor inside it.
    new: Vec<(u32, u32, Tensor)>,
}

impl RunState<'_> {
    /// Shows all arguments of a call, where somebody wants to see them together.
    pub(super) fn preview(&self, depth: usize, arguments: &[(u32, Erased<'_>)]) -> Result<()> {
        let (node, method) = {
            let frames = self.stack.frames.borrow();
            let Some(frame) = frames.get(depth - 1).filter(|frame| frame.is_call) else { return Ok(()) };
            let Some(node) = frame.node.filter(|node| self.dispatch.at(*node).call_hooks) else {
                return Ok(());
            };
            (node, frame.method)
        };
        let mut parts: Vec<Part> = Vec::new();
        let mut places = Vec::new();
        let inputs = arguments.iter().filter(|(_, value)| is_input(value));
        for (input, (number, value)) in (0..).zip(inputs) {
            let key =
                |member| PointKey { node, method: address(method), slot: Slot32::Input(*number), member };
            let at = Argument {
                key: key(Member::FIRST),
                method,
                number: *number,
                input: Some(input),
                is_call: true,
            };
            let mut members = self.members();
            look(value, &mut |part, label, tensor| {
                let (_, member) = members.next(label);
                let is_one = part == 0 && label.is_empty();
                let names = if is_one { at.names() } else { at.part_names(part, label) };
                parts.push(Part::new(key(member), names, tensor, Replace::Yes));
                places.push((*number, part));
            })?;
        }
        let is_lesson = self.is_lesson(self.dispatch.at(node));
        let effects = self.stack.frames.borrow().get(depth - 1).map_or(0, |frame| frame.before.effects);
        let first = parts.first().filter(|_| is_lesson);
        let lesson = first.and_then(|first| self.begin_lesson(node, &first.tensor, effects));
        self.fire_call(node, When::Before, &Named::default(), &mut parts)?;
        self.over(node, Over::Values);
        let new = places.iter().zip(&parts).filter(|(_, part)| part.is_new);
        let new = new.map(|((number, part), value)| (*number, *part, value.tensor.clone())).collect();
        if let Some(frame) = self.stack.frames.borrow_mut().get_mut(depth - 1) {
            frame.memo.lesson = lesson;
            frame.arguments.previewed = Some(Box::new(Previewed { inputs: named(&parts, "in"), new }));
        }
        Ok(())
    }

    /// What is to take the place of an argument's tensors; `None` where it was not shown before.
    fn decided(&self, depth: usize, number: u32) -> Option<Vec<(u32, Tensor)>> {
        let frames = self.stack.frames.borrow();
        let previewed = frames.get(depth - 1)?.arguments.previewed.as_ref()?;
        let own = previewed.new.iter().filter(|(of, _, _)| *of == number);
        Some(own.map(|(_, part, tensor)| (*part, tensor.clone())).collect())
    }

    /// An argument that is a reference: what takes its place. `None` where it was not shown before.
    pub(super) fn decided_argument(
        &self,
        depth: usize,
        number: u32,
        replace: Replace<'_>,
    ) -> Option<Result<Option<Tensor>>> {
        let new = self.decided(depth, number)?.into_iter().next().map(|(_, tensor)| tensor);
        Some(match replace {
            Replace::No(reason) if new.is_some() => Err(self.not_replaceable(depth, number, reason)),
            _ => Ok(new),
        })
    }

    /// As above, for an argument that is a value. Says whether it was shown before.
    pub(super) fn decided_value(&self, depth: usize, number: u32, value: &mut ErasedMut<'_>) -> Result<bool> {
        let Some(new) = self.decided(depth, number) else { return Ok(false) };
        if new.is_empty() {
            return Ok(true);
        }
        let Some(ops) = DynamicOps::for_type(value.type_id()) else {
            let reason = "the argument is a reference inside another type; hook the value where it is made";
            return Err(self.not_replaceable(depth, number, reason));
        };
        let mut part = 0;
        ops.each_tensor(value.reborrow(), &mut |_, tensor| {
            if let Some((_, new)) = new.iter().find(|(of, _)| *of == part) {
                *tensor = new.clone();
            }
            part += 1;
            Ok(())
        })?;
        Ok(true)
    }

    pub(super) fn not_replaceable(&self, depth: usize, number: u32, reason: &str) -> crate::Error {
        let frames = self.stack.frames.borrow();
        let frame = frames.get(depth - 1);
        let module = frame.and_then(|frame| frame.node).map(|node| self.tree.name(node)).unwrap_or_default();
        let name = frame.and_then(|frame| frame.method.args.get(number as usize)).unwrap_or(&"");
        let (point, reason) = (format!("{module}:{name}"), reason.to_string());
        ErrorKind::NotReplaceable { point, reason }.into()
    }
}
