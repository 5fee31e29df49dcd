//! Values that are bound to names.

use std::any::TypeId;

use candle_core::Tensor;

use super::fire::Replace;
use super::observe::Over;
use super::result::{address, with_label};
use super::{current, RunState};
use crate::erased::{values_wanted, Erased, ErasedMut, Kept};
use crate::error::Result;
use crate::point::{Member, PointKey, Slot32};
use crate::tree::{MethodInfo, NodeId};
use crate::value::DynamicOps;

/// A value that was just bound to a name: what the code goes on with.
#[inline(always)]
pub fn bound<T>(method: &'static MethodInfo, number: u32, mut value: T) -> T {
    if values_wanted() {
        bound_cold(method, number, ErasedMut::of(&mut value));
    }
    value
}

/// A reference that was just bound to a name, and that stays in its method: what the code goes on with.
#[inline(always)]
pub fn bound_ref<'k, T: ?Sized>(
    method: &'static MethodInfo,
    number: u32,
    value: &'k T,
    kept: &'k Kept,
) -> &'k T {
    if values_wanted() {
        return bound_ref_cold(method, number, value, kept);
    }
    value
}

#[cold]
#[inline(never)]
fn bound_ref_cold<'k, T: ?Sized>(
    method: &'static MethodInfo,
    number: u32,
    mut value: &'k T,
    kept: &'k Kept,
) -> &'k T {
    let Some(tensor) = Erased::of(value).tensor().filter(|_| typeid::of::<T>() == TypeId::of::<Tensor>())
    else {
        bound_cold(method, number, ErasedMut::of(&mut value));
        return value;
    };
    let mut new = tensor.clone();
    bound_cold(method, number, ErasedMut::of(&mut new));
    // A clone is the same tensor.
    if new.id() == tensor.id() {
        return value;
    }
    kept.put(value, new)
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

impl RunState<'_> {
    fn bound(&self, method: &'static MethodInfo, number: u32, mut value: ErasedMut<'_>) -> Result<()> {
        self.bound_if_wanted(method, number, value.reborrow())?;
        if self.gradient().is_some() {
            if let Some(tensor) = value.shared().tensor() {
                self.note_binding(method, number, tensor);
            }
        }
        Ok(())
    }

    fn bound_if_wanted(&self, method: &'static MethodInfo, number: u32, value: ErasedMut<'_>) -> Result<()> {
        let node = {
            let frames = self.stack.frames.borrow();
            // A binding of a method that is not on top belongs to a closure that outlived it.
            let top = frames.last().filter(|top| std::ptr::eq(top.method, method) && top.wants_values);
            let Some(node) = top.and_then(|top| top.node) else { return Ok(()) };
            node
        };
        self.bound_at(node, method, number, value)?;
        self.over(node, Over::Values);
        Ok(())
    }

    fn bound_at(
        &self,
        node: NodeId,
        method: &'static MethodInfo,
        number: u32,
        mut value: ErasedMut<'_>,
    ) -> Result<()> {
        let key = |member| PointKey { node, method: address(method), slot: Slot32::Binding(number), member };
        let own = || vec![method.value_name(method.values.get(number as usize).unwrap_or(&""))];
        if self.dispatch.at(node).patches_any {
            if let Some(ops) = DynamicOps::for_type(value.type_id()) {
                self.patch_value(&key, &own, ops, &mut value)?;
            }
        }
        if let Some(tensor) = value.get_mut::<Tensor>() {
            if let Some(new) = self.fire(key(Member::FIRST), &own, tensor, Replace::Yes)? {
                *tensor = new;
            }
            return Ok(());
        }
        let Some(ops) = DynamicOps::for_type(value.type_id()) else {
            let reason = "the binding is a reference; hook the value where it is made";
            if let Some(tensor) = value.shared().tensor() {
                self.fire(key(Member::FIRST), &own, tensor, Replace::No(reason))?;
            }
            return Ok(());
        };
        let names = |part: u32, label: &str| with_label(own(), part, label);
        self.fire_each(&key, &names, &|_, _| {}, |f| ops.each_tensor(value.reborrow(), f))?;
        if !ops.is_one_tensor() {
            self.fire_any(key(Member::WHOLE), &own, &mut || ops.copy(value.shared()));
        }
        Ok(())
    }
}
