//! What calls change besides their results. One rule for all who would leave a call out: a module is skipped,
//! or answered from a recording, only where nothing says that it has effects.
//!
//! What says so: a signature with `&mut`, an argument of a type that may hold a cell or a lock, a field that is
//! one, a layer in training, a write into a tensor, and [`side_effect`](super::side_effect).

use std::cell::{Cell, RefCell};

use candle_core::{Storage, Tensor};

use super::current::current;
use super::replacement::laid_out;
use super::{Captures, RunState};
use crate::erased::{active, Erased, ErasedMut};
use crate::error::{ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::lookup::FastSet;
use crate::tree::{is_annotated, Effects, MethodInfo, NodeId};
use crate::value::DynamicOps;

/// What a run knows of effects, and of who may write to which memory.
pub(super) struct Memory {
    /// How often something was changed that no result tells of.
    pub count: Cell<u32>,
    /// Is that noted?
    pub noted: bool,
    /// Is anything kept, so that it matters who writes to what?
    pub keeps: bool,
    /// What others have given out, and may write to later: caches of keys and values, code without annotations.
    pub buffers: RefCell<FastSet<usize>>,
    /// What was kept and shares its memory with code that is not known, and some of its numbers as they were then.
    pub sampled: RefCell<Vec<(Tensor, Fingerprint)>>,
    /// Was something kept that is computed from variables?
    pub tracked: Cell<bool>,
}

impl Memory {
    pub fn new(noted: bool, keeps: bool) -> Self {
        let (count, buffers, sampled, tracked) = Default::default();
        Self { count, noted, keeps, buffers, sampled, tracked }
    }
}

/// A value that these functions have given out, or a field or static where the name is empty: somebody else may write to
/// its memory later.
#[inline(always)]
pub fn given<T>(by: &'static [&'static str], mut value: T) -> T {
    if active() {
        given_cold(by, ErasedMut::of(&mut value));
    }
    value
}

#[cold]
#[inline(never)]
fn given_cold(by: &'static [&'static str], value: ErasedMut<'_>) {
    current(|state| {
        if state.effects.keeps && by.iter().any(|name| name.is_empty() || !is_annotated(name)) {
            state.note_buffers(value);
        }
    });
}

impl RunState<'_> {
    /// Something may be changed now that no result tells of.
    pub(super) fn effect(&self) {
        self.effects.count.set(self.effects.count.get() + 1);
        self.calls_observed(|observer| observer.effect());
    }

    /// An annotated method is entered.
    #[cold]
    #[inline(never)]
    pub(super) fn note_method(&self, node: Option<NodeId>, method: &MethodInfo) {
        // Its code may use the state of what is inside without calling that.
        let has_state = node.is_some_and(|node| self.tree.holds_state(node));
        if has_state || method.effects == Effects::Possible {
            self.effect();
        }
    }

    /// An argument of a method is shown.
    pub(super) fn note_doubt(&self, depth: usize, number: u32, value: Erased<'_>) {
        if !self.effects.noted {
            return;
        }
        let method = self.stack.frames.borrow().get(depth - 1).map(|frame| frame.method.effects);
        let Some(Effects::None { doubts }) = method else { return };
        if doubts.contains(&number) && !self.is_harmless(value) {
            self.effect();
        }
    }

    /// Is this known to hold no cell and no lock? Tensors are, under whatever name of their type, and so are
    /// modules of the model without state.
    fn is_harmless(&self, value: Erased<'_>) -> bool {
        value.tensor().is_some()
            || value.is_no_tensor()
            || value.slice().is_some()
            || DynamicOps::is_built_in(value.type_id())
            || self
                .tree
                .module_behind(value, || self.caller(), "")
                .is_some_and(|(node, _)| !self.tree.holds_state(node))
    }

    /// A layer is called.
    pub(super) fn note_layer(&self, node: NodeId, inputs: &[Erased<'_>]) {
        if self.effects.noted && self.changes_in_training(node, inputs) {
            self.effect();
        }
    }

    /// Is this call of a layer for training, in which it draws lots or keeps statistics?
    pub(super) fn changes_in_training(&self, node: NodeId, inputs: &[Erased<'_>]) -> bool {
        let trains = inputs.iter().any(|input| input.get::<bool>() == Some(&true));
        trains && self.tree.node(node).is_none_or(|node| node.minds_training)
    }

    /// May a call of the method with so many frames be left out, for all that is known before its code runs?
    pub(super) fn is_free_of_effects(&self, depth: usize) -> bool {
        let frames = self.stack.frames.borrow();
        let Some(frame) = frames.get(depth - 1) else { return false };
        // Code that is declared pure may tell of effects when it runs, and does not run.
        let by_signature = matches!(frame.method.effects, Effects::None { .. });
        let has_state = frame.node.is_some_and(|node| self.tree.holds_state(node));
        by_signature && !has_state && frame.before.effects == self.effects.count.get()
    }

    /// An operation that writes into a tensor is about to be done.
    #[cold]
    #[inline(never)]
    pub(super) fn note_write(&self, written: Option<Erased<'_>>) {
        self.effect();
        if self.tree.writes_in_place() {
            return;
        }
        // Code of a type that is no part of the model: nobody knew, so nothing was copied.
        self.tree.note_write();
        let Some(written) = written.as_ref().and_then(Erased::tensor) else { return };
        let buffer = address(&written.storage_and_layout().0);
        let mut kept = self.act.kept.borrow_mut();
        for capture in kept.iter_mut() {
            if address(&capture.tensor.storage_and_layout().0) == buffer {
                match capture.tensor.force_contiguous() {
                    Ok(copy) => capture.tensor = copy,
                    Err(error) => self.fail(error.into()),
                }
            }
        }
    }

    /// Somebody has given out these tensors, who may write to them later.
    pub(super) fn note_buffers(&self, mut result: ErasedMut<'_>) {
        let note = |tensor: &Tensor| {
            let (storage, _) = tensor.storage_and_layout();
            self.effects.buffers.borrow_mut().insert(address(&storage));
        };
        let Some(ops) = DynamicOps::for_type(result.type_id()) else {
            result.shared().tensor().into_iter().for_each(note);
            return;
        };
        // Looking does not fail.
        let _ = ops.each_tensor(result.reborrow(), &mut |_, tensor| {
            note(tensor);
            Ok(())
        });
    }

    /// Does it matter what this layer gives out, because nobody knows its code?
    pub(super) fn minds_buffers_of(&self, node: NodeId) -> bool {
        self.effects.keeps && self.tree.node(node).is_some_and(|node| node.is_foreign)
    }

    /// Looks at some numbers of what is kept without a copy, where code that is not known may write to it.
    pub(super) fn sample(&self, kept: &Tensor) -> Result<()> {
        if self.tree.calls_strangers() {
            let mut print = Fingerprint::default();
            print.sample(kept)?;
            self.effects.sampled.borrow_mut().push((kept.clone(), print));
        }
        Ok(())
    }

    /// Are the numbers of what was kept as they were?
    pub(super) fn check_samples(&self, kept: &Captures) -> Result<()> {
        for (tensor, before) in self.effects.sampled.borrow().iter() {
            let mut now = Fingerprint::default();
            now.sample(tensor)?;
            if now == *before {
                continue;
            }
            // From now on the model is known to write, and gets copies.
            self.tree.note_write();
            let labels = self.dispatch.labels();
            let found = kept.iter().find(|capture| capture.tensor.id() == tensor.id());
            let point = found.map_or(String::new(), |capture| {
                labels.get(capture.label).map_or("", |(name, _)| name).to_string()
            });
            return Err(ErrorKind::CacheOverwritten { point }.into());
        }
        Ok(())
    }

    /// May somebody write to this memory later?
    pub(super) fn may_be_written(&self, storage: &Storage) -> bool {
        self.tree.writes_in_place()
            || self.tree.owns_buffer(storage)
            || self.effects.buffers.borrow().contains(&address(storage))
    }

    /// What the model is given and somebody else goes on holding: a copy, since nobody knows what code without
    /// annotations writes to.
    pub(super) fn lent(&self, value: Tensor) -> Result<Tensor> {
        copied(&value)
    }

    /// What a recording keeps of the model's values: a copy, where somebody may write to it.
    pub(super) fn photograph(&self, value: &Tensor) -> Result<Tensor> {
        let written = self.may_be_written(&value.storage_and_layout().0);
        if written {
            return copied(value);
        }
        Ok(value.clone())
    }
}

/// A copy in the same layout, so that what is computed from it has the same bits.
fn copied(value: &Tensor) -> Result<Tensor> {
    laid_out(value.force_contiguous()?, value.stride())
}

fn address(storage: &Storage) -> usize {
    std::ptr::from_ref(storage) as usize
}
