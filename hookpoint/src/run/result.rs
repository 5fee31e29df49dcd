//! What annotated methods give, whether they run or not.

use candle_core::Tensor;

use super::any::type_name;
use super::call_hooks::{gather, scatter, When};
use super::listeners::Said;
use super::observe::Over;
use super::stack::Frame;
use super::RunState;
use crate::erased::{paused, ErasedMut};
use crate::error::Result;
use crate::point::{Member, PointKey, Slot32};
use crate::tree::MethodInfo;
use crate::value::ValueOps;

impl RunState<'_> {
    /// What the method that was just entered gives, where it need not run: a listener answers the call, it is known from an
    /// earlier run, or its whole output is patched.
    pub(super) fn known_result<R>(&self, depth: usize, ops: &ValueOps<R>) -> Result<Option<R>> {
        if let (Some(error), Some(_)) = (self.ended(), ops.from_error) {
            return Err(error);
        }
        if !self.listeners.users.audience.is_empty() {
            if let Said::Done(value) = self.tell_method(depth)? {
                return Ok(self.answered(depth, ops, value));
            }
        }
        let Some(from_tensor) = ops.from_tensor else { return Ok(None) };
        if self.listeners.follows.calls {
            if let Some(value) = self.observers_answer(depth)? {
                return Ok(self.answered(depth, ops, value));
            }
        }
        let skipped = self.skip(depth)?;
        Ok(skipped.map(|tensor| {
            self.is_done(depth);
            from_tensor(tensor)
        }))
    }

    /// Gives the result of a method that need not run, after its point has seen it.
    fn answered<R>(&self, depth: usize, ops: &ValueOps<R>, value: Tensor) -> Option<R> {
        let node = self.stack.frames.borrow().get(depth - 1).and_then(|frame| frame.node)?;
        let Some(from_tensor) = ops.from_tensor else {
            let error = self.not_answerable(node);
            self.fail(error.clone());
            return ops.from_error.map(|from_error| from_error(error));
        };
        self.is_done(depth);
        let shown = self.show_replayed(node, value.clone());
        let mut given = match (shown, ops.from_error) {
            (Err(error), Some(from_error)) => return Some(from_error(error)),
            (shown, _) => from_tensor(shown.unwrap_or(value)),
        };
        self.hear_result(depth, ops, &mut given);
        Some(given)
    }

    /// Notes that a method was not run, and that its result has been shown.
    fn is_done(&self, depth: usize) {
        if let Some(frame) = self.stack.frames.borrow_mut().get_mut(depth - 1) {
            frame.node = None;
        }
    }

    /// The output of the module that is entered, where it need not run.
    fn skip(&self, depth: usize) -> Result<Option<Tensor>> {
        if !self.is_free_of_effects(depth) {
            return Ok(None);
        }
        let (node, input) = {
            let mut frames = self.stack.frames.borrow_mut();
            // What one method of a module gives, another does not.
            let is_forward = |frame: &&mut Frame| frame.is_call && frame.method.is_forward();
            let Some(frame) = frames.get_mut(depth - 1).filter(is_forward) else {
                return Ok(None);
            };
            let Some(node) = frame.node.filter(|node| self.dispatch.at(*node).may_skip) else {
                return Ok(None);
            };
            (node, frame.memo.input.take())
        };
        self.replaced(node, input.as_ref(), || None)
    }

    pub(super) fn result<R>(&self, depth: usize, ops: &ValueOps<R>, result: &mut R) -> Result<()> {
        let (is_call, is_forward) = {
            let frames = self.stack.frames.borrow();
            let Some(frame) = frames.get(depth - 1).filter(|frame| frame.node.is_some()) else {
                return Ok(());
            };
            (frame.is_call, frame.method.is_forward())
        };
        if let (Some(_), Some(each_tensor)) = (self.gradient(), ops.each_tensor) {
            let mut outputs = Vec::new();
            each_tensor(result, &mut |_, tensor| {
                outputs.push((tensor.dtype().is_float(), tensor.track_op()));
                Ok(())
            })?;
            self.note_result(depth, &outputs);
        }
        if is_call && !is_forward {
            // Its own point, and then that of the module.
            self.result_as(false, depth, ops, result)?;
        }
        self.result_as(is_call, depth, ops, result)
    }

    fn result_as<R>(&self, is_call: bool, depth: usize, ops: &ValueOps<R>, result: &mut R) -> Result<()> {
        let (node, method, wants_values, lesson) = {
            let frames = self.stack.frames.borrow();
            let Some(frame) = frames.get(depth - 1) else { return Ok(()) };
            let Some(node) = frame.node else { return Ok(()) };
            (node, frame.method, frame.wants_values, frame.memo.lesson)
        };
        let wants = self.dispatch.at(node);
        let output_wanted = is_call && wants.output;
        if !(output_wanted || wants_values || self.listeners.hears_every_result()) {
            return Ok(());
        }
        // The commonest of all results.
        let mut plain = ErasedMut::of(result);
        let key = |member| PointKey {
            node,
            method: if is_call { 0 } else { address(method) },
            slot: Slot32::Result,
            member,
        };
        if let (Some(Ok(tensor)), false) =
            (plain.get_mut::<candle_core::Result<Tensor>>(), is_call && wants.call_hooks)
        {
            self.end_lesson(lesson, tensor);
            if self.keeps(key(Member::FIRST), tensor)? {
                return Ok(());
            }
        }
        let names = || match (is_call, method.is_forward()) {
            (true, true) => vec!["out".to_string(), method.name.to_string()],
            (true, false) => vec!["out".to_string()],
            (false, _) => vec![method.name.to_string()],
        };
        if let Some(copy) = ops.copy.as_ref().filter(|_| wants.patches_any) {
            let found = type_name(paused(|| (copy.copy)(result)).as_ref());
            // A tensor is counted as such.
            let whole = if ops.from_tensor.is_some() { Member::FIRST } else { Member::WHOLE };
            self.patch_any(key(whole), &names, found, &mut |any| (copy.put)(result, any))?;
        }
        let mut parts = 0;
        let whole_call = is_call && wants.call_hooks;
        if let Some(each_tensor) = ops.each_tensor.filter(|_| whole_call) {
            let mut gathered = gather(node, self.members(), names, |f| each_tensor(result, f))?;
            parts = gathered.len() as u32;
            if let Some(first) = gathered.first() {
                self.end_lesson(lesson, &first.tensor);
            }
            let previewed = self
                .stack
                .frames
                .borrow_mut()
                .get_mut(depth - 1)
                .and_then(|frame| frame.arguments.previewed.take());
            let inputs = previewed.map(|previewed| previewed.inputs).unwrap_or_default();
            self.fire_call(node, When::After, &inputs, &mut gathered)?;
            scatter(&gathered, |f| each_tensor(result, f))?;
        } else if let Some(each_tensor) = ops.each_tensor {
            let names = |part: u32, label: &str| {
                let mut names = with_label(names(), part, label);
                // A field is told from a value inside the method by the word `out`.
                if !is_call && part > 0 && !label.starts_with(|c: char| c.is_ascii_digit()) {
                    names.insert(0, format!("{}.out.{label}", method.name));
                } else if !is_call && !label.is_empty() {
                    // It need not come first at every call.
                    names.push(format!("{}.out.{label}", method.name));
                }
                names
            };
            let first = |part: u32, tensor: &Tensor| self.end_lesson(lesson.filter(|_| part == 0), tensor);
            parts = self.fire_each(&key, &names, &first, |f| each_tensor(result, f))?;
        }
        if let (None, Some(copy)) = (ops.from_tensor, &ops.copy) {
            // Under the same name, beside the tensors: the whole value, of whatever type.
            self.fire_any(key(Member::WHOLE), &names, &mut || (copy.copy)(result));
        }
        self.over(node, Over::Values);
        // A method that failed gave no tensors, and its error says why some points were not reached.
        if parts > 0 {
            self.over(node, Over::Method { method: address(method), is_call });
        }
        Ok(())
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
