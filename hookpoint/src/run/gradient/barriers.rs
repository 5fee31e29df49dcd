//! Where gradients are lost.
//!
//! Candle records nothing for an operation that has no backward, and says nothing of it. So a run that
//! is to be differentiated looks at what goes into a call and what comes out. A foreign module that is
//! given a tracked value and gives an untracked one is a barrier: should the gradient come to its
//! result, it would have to go on and cannot, which is an error. An annotated method whose result does
//! not depend on its input may mean it so: it may need but the shape. That is noted, to be named when a
//! wanted gradient turns out to be missing.

use std::cell::RefCell;

use candle_core::Tensor;

use super::taps::Tapping;
use super::Gradient;
use crate::erased::{Erased, ErasedMut};
use crate::error::Result;
use crate::pattern::point_name;
use crate::run::RunState;
use crate::tree::{MethodInfo, NodeId};
use crate::value::DynamicOps;

/// Places where the gradient may have been lost, in the order in which they were met.
#[derive(Default)]
pub(crate) struct Lost(RefCell<Vec<String>>);

impl Lost {
    pub fn places(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    fn note(&self, place: String) {
        let mut places = self.0.borrow_mut();
        if !places.contains(&place) {
            places.push(place);
        }
    }
}

/// What has become of gradients so far in a method that is being executed.
#[derive(Default)]
pub(in crate::run) struct Trail {
    /// Which call of the module it is.
    pub call: usize,
    /// Was it given something tracked?
    tracked_input: bool,
    /// The last binding that is tracked, and the first after it that is not.
    tracked: Option<u32>,
    untracked: Option<u32>,
}

impl Trail {
    pub fn of_call(call: usize) -> Self {
        Self { call, ..Self::default() }
    }
}

/// The tracked tensors that a call of a foreign module is given.
pub(in crate::run) type TrackedInputs = Vec<Tensor>;

impl RunState<'_> {
    /// Takes note of what a foreign module is given; nothing, where no gradient is wanted.
    pub(in crate::run) fn tracked_inputs(&self, inputs: &[Erased<'_>]) -> TrackedInputs {
        if self.gradient().is_none() {
            return Vec::new();
        }
        inputs.iter().filter_map(Erased::tensor).filter(|tensor| tensor.track_op()).cloned().collect()
    }

    /// What a foreign module gave for tracked inputs: the same, or if the gradient cannot pass the
    /// module, something that notices when one comes.
    pub(in crate::run) fn watch(
        &self,
        node: NodeId,
        inputs: &[Tensor],
        ops: &DynamicOps,
        mut result: ErasedMut<'_>,
    ) -> Result<()> {
        let Some(gradient) = self.gradient().filter(|_| !inputs.is_empty()) else { return Ok(()) };
        let (mut floats, mut tracked) = (false, false);
        ops.each_tensor(result.reborrow(), &mut |_, output| {
            floats |= output.dtype().is_float();
            tracked |= output.track_op();
            Ok(())
        })?;
        if tracked || !floats || !inputs.iter().any(|input| gradient.taps.is_upstream_of(input)) {
            return Ok(());
        }
        gradient.barrier(&self.shown(node), ops, result)
    }

    /// A module by its path and its type.
    pub(in crate::run) fn shown(&self, node: NodeId) -> String {
        let type_name = self.tree.node(node).map_or("", |node| node.type_name);
        format!("`{}`, a `{}`", self.tree.name(node), short(type_name))
    }

    /// An argument of the method that is being executed.
    pub(in crate::run) fn note_argument(&self, depth: usize, tensor: &Tensor) {
        if self.gradient().is_some() && tensor.track_op() {
            if let Some(frame) = self.stack.frames.borrow_mut().get_mut(depth - 1) {
                frame.trail.tracked_input = true;
            }
        }
    }

    /// A value that a method has bound to a name.
    pub(in crate::run) fn note_binding(&self, method: &'static MethodInfo, number: u32, tensor: &Tensor) {
        if self.gradient().is_none() || !tensor.dtype().is_float() {
            return;
        }
        let mut frames = self.stack.frames.borrow_mut();
        let Some(top) = frames.last_mut().filter(|top| std::ptr::eq(top.method, method)) else { return };
        let trail = &mut top.trail;
        if tensor.track_op() {
            (trail.tracked, trail.untracked) = (Some(number), None);
        } else if trail.tracked.is_some() || trail.tracked_input {
            trail.untracked.get_or_insert(number);
        }
    }

    /// What a method gives, where none of it is tracked.
    pub(in crate::run) fn note_result(&self, depth: usize, outputs: &[(bool, bool)]) {
        let untracked =
            outputs.iter().any(|(is_float, _)| *is_float) && !outputs.iter().any(|(_, tracked)| *tracked);
        let Some(gradient) = self.gradient().filter(|_| untracked) else { return };
        let frames = self.stack.frames.borrow();
        let Some(frame) = frames.get(depth - 1) else { return };
        let Some(node) = frame.node.filter(|_| frame.trail.tracked_input || frame.trail.tracked.is_some())
        else {
            return;
        };
        let method = frame.method;
        let binding = |number: Option<u32>| {
            let name = method.values.get(number? as usize)?;
            Some(format!("`{}`", point_name(self.tree.segments(node), &method.value_name(name))))
        };
        let whole = format!(
            "`{}` of {}",
            method.name,
            match &*self.tree.name(node) {
                "" => "the root".to_string(),
                name => format!("`{name}`"),
            }
        );
        gradient.taps.lost.note(match (binding(frame.trail.tracked), binding(frame.trail.untracked)) {
            (Some(tracked), Some(untracked)) => format!("{whole}, between {tracked} and {untracked}"),
            (Some(tracked), None) => format!("{whole}, after {tracked}"),
            (None, Some(untracked)) => format!("{whole}, before {untracked}"),
            (None, None) => whole,
        });
    }
}

impl Gradient {
    /// Has it noticed when a gradient comes to the result of an operation that it cannot pass.
    pub(in crate::run) fn barrier(
        &self,
        operation: &str,
        ops: &DynamicOps,
        result: ErasedMut<'_>,
    ) -> Result<()> {
        self.note_lost(operation.to_string());
        ops.each_tensor(result, &mut |_, output| {
            if output.dtype().is_float() {
                *output = self.taps.put(Tapping::Barrier(operation.to_string()), output)?.1;
                self.barred.borrow_mut().push(output.id());
            }
            Ok(())
        })
    }

    /// A place where a gradient may be lost, to be named if one turns out to be missing.
    pub(in crate::run) fn note_lost(&self, place: String) {
        self.taps.lost.note(place);
    }

    /// Is a gradient wanted of what this was computed from?
    pub(in crate::run) fn wants_gradient_of(&self, tensor: &Tensor) -> bool {
        tensor.dtype().is_float() && self.taps.is_upstream_of(tensor)
    }
}

/// The name of a type without its modules.
fn short(type_name: &str) -> &str {
    match type_name.find('<') {
        Some(_) => type_name,
        None => type_name.rsplit("::").next().unwrap_or(type_name),
    }
}
