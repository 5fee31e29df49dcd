//! Bindings, and operations that use a parameter.

use candle_core::Tensor;

use super::fire::Replace;
use super::frame::{address, with_label};
use super::{part_id, PointKey, RunState, Slot32};
use crate::error::Result;
use crate::raw::{active, current, Erased, ErasedMut};
use crate::tree::{MethodInfo, NodeId};
use crate::value::DynamicOps;

/// A value that was just bound to a name: what the code goes on with.
#[inline(always)]
pub fn bound<T>(method: &'static MethodInfo, number: u32, mut value: T) -> T {
    if active() {
        bound_cold(method, number, ErasedMut::of(&mut value));
    }
    value
}

#[cold]
#[inline(never)]
fn bound_cold(method: &'static MethodInfo, number: u32, value: ErasedMut<'_>) {
    current(|state| {
        if let Err(error) = state.bound(method, number, value) {
            state.fail(error);
        }
    });
}

/// The parameters among the operands of an operation that is about to be done.
pub struct Uses(Option<Box<[(NodeId, usize)]>>);

impl Uses {
    /// None, or nobody listens.
    pub const NONE: Self = Uses(None);

    /// The operation's result: what the code goes on with.
    #[inline(always)]
    pub fn result<R>(self, mut result: R) -> R {
        if let Some(parameters) = self.0 {
            used(&parameters, ErasedMut::of(&mut result));
        }
        result
    }
}

#[cold]
#[inline(never)]
fn used(parameters: &[(NodeId, usize)], result: ErasedMut<'_>) {
    current(|state| state.used(parameters, result));
}

/// Which of these operands are parameters? `hints` are the names of the fields they are read from.
#[cold]
#[inline(never)]
pub fn uses(operands: &[(&'static str, Erased<'_>)]) -> Uses {
    current(|state| {
        if !state.tree.has_parameters() || !(state.dispatch.parameters || state.scans()) {
            return Uses::NONE;
        }
        let caller = state.caller();
        let mut found = Vec::new();
        for (hint, operand) in operands {
            let Some(tensor) = operand.tensor() else { continue };
            let Some(node) = state.tree.parameter_of(tensor.id(), caller, hint) else { continue };
            found.push((node, state.uses_so_far(node)));
        }
        if found.is_empty() {
            Uses::NONE
        } else {
            Uses(Some(found.into()))
        }
    })
    .unwrap_or(Uses::NONE)
}

impl RunState<'_> {
    fn parameter_key(node: NodeId) -> PointKey {
        PointKey { node, method: 0, slot: Slot32::Result, part: 0 }
    }

    fn uses_so_far(&self, node: NodeId) -> usize {
        self.points.borrow().get(&Self::parameter_key(node)).map_or(0, |point| point.calls)
    }

    fn used(&self, parameters: &[(NodeId, usize)], mut result: ErasedMut<'_>) {
        let Some(ops) = DynamicOps::for_type(result.type_id()) else { return };
        for (node, before) in parameters {
            // Where the parameter was handed to an annotated method, the use inside it has fired.
            if self.uses_so_far(*node) != *before {
                continue;
            }
            let mut first = true;
            let fired = ops.each_tensor(result.reborrow(), &mut |_, tensor| {
                let only_first = std::mem::replace(&mut first, false);
                // A clone, or a `contiguous` that had nothing to do, is the parameter itself.
                let itself = self.tree.parameter_of(tensor.id(), self.caller(), "").is_some();
                if !only_first || itself {
                    return Ok(());
                }
                let names = || vec!["out".to_string()];
                if let Some(new) = self.fire(Self::parameter_key(*node), &names, tensor, Replace::Yes)? {
                    *tensor = new;
                }
                Ok(())
            });
            if let Err(error) = fired {
                self.fail(error);
            }
            self.settle(*node);
        }
        self.hand_on(ops, result);
    }

    fn bound(&self, method: &'static MethodInfo, number: u32, value: ErasedMut<'_>) -> Result<()> {
        let node = {
            let frames = self.frames.borrow();
            // A binding of a method that is not on top belongs to a closure that outlived it.
            let top = frames.last().filter(|top| std::ptr::eq(top.method, method) && top.wants_values);
            let Some(node) = top.and_then(|top| top.node) else { return Ok(()) };
            node
        };
        self.bound_at(node, method, number, value)?;
        self.settle(node);
        Ok(())
    }

    fn bound_at(
        &self,
        node: NodeId,
        method: &'static MethodInfo,
        number: u32,
        mut value: ErasedMut<'_>,
    ) -> Result<()> {
        let key = |part| PointKey { node, method: address(method), slot: Slot32::Binding(number), part };
        let own = || vec![method.value_name(method.values.get(number as usize).unwrap_or(&""))];
        if let Some(tensor) = value.get_mut::<Tensor>() {
            if let Some(new) = self.fire(key(0), &own, tensor, Replace::Yes)? {
                *tensor = new;
            }
            return Ok(());
        }
        let Some(ops) = DynamicOps::for_type(value.type_id()) else {
            let reason = "the binding is a reference; hook the value where it is made";
            if let Some(tensor) = value.shared().tensor() {
                self.fire(key(0), &own, tensor, Replace::No(reason))?;
            }
            return Ok(());
        };
        let mut part = 0;
        ops.each_tensor(value.reborrow(), &mut |label, tensor| {
            let names = || with_label(own(), part, label);
            if let Some(new) = self.fire(key(part_id(part, label)), &names, tensor, Replace::Yes)? {
                *tensor = new;
            }
            part += 1;
            Ok(())
        })?;
        if !ops.is_one_tensor() {
            self.fire_any(key(u32::MAX), &own, &mut || ops.copy(value.reborrow()));
        }
        Ok(())
    }
}
