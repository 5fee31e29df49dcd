//! Where the model is: the annotated methods that are being executed, the calls that are about to be made, and the
//! parameters among the operands of operations that are being done.

use std::any::TypeId;
use std::cell::RefCell;

use candle_core::Tensor;

use super::arguments::Previewed;
use super::call_hooks::Named;
use super::gradient::Trail;
use super::operand::Use;
use crate::tree::{MethodInfo, NodeId};

#[derive(Default)]
pub(super) struct Stack {
    pub frames: RefCell<Vec<Frame>>,
    pub announced: RefCell<Vec<Announced>>,
    /// The parameters among the operands of operations that are being done.
    pub uses: RefCell<Vec<Use>>,
    /// What modules are being called with, where a hook wants to see that together with the result.
    pub called_with: RefCell<Vec<Named>>,
}

/// The annotated method that is being executed.
pub(super) struct Frame {
    pub node: Option<NodeId>,
    pub method: &'static MethodInfo,
    /// Is this a call of the module as such, whose result is the module's output?
    pub is_call: bool,
    pub wants_inputs: bool,
    pub wants_values: bool,
    pub arguments: Arguments,
    /// What this call may teach about the shapes that its module gives.
    pub memo: Memo,
    /// What becomes of gradients in this method, where there is to be a backward pass.
    pub trail: Trail,
    pub before: Before,
}

/// The arguments of a method, as far as they were shown.
#[derive(Default)]
pub(super) struct Arguments {
    /// How many of them held tensors.
    pub seen: u32,
    /// The tensors, where a listener wants to know.
    pub heard: Vec<Tensor>,
    /// What became of them, where they were shown all at once.
    pub previewed: Option<Box<Previewed>>,
}

#[derive(Default)]
pub(super) struct Memo {
    /// Which lesson the call may become.
    pub lesson: Option<u32>,
    /// The first input itself, where the module may be skipped.
    pub input: Option<Tensor>,
}

/// How much there was when a method was entered.
pub(super) struct Before {
    pub effects: u32,
    /// Calls that had been announced.
    pub announced: usize,
    /// Uses of parameters that were waiting for their result.
    pub uses: usize,
}

/// A call site that is about to call a module of an annotated type.
pub(super) struct Announced {
    pub node: NodeId,
    pub address: usize,
    pub type_id: TypeId,
    pub claimed: bool,
}

impl Stack {
    /// The nearest module whose code is being executed.
    pub fn caller(&self) -> Option<NodeId> {
        self.frames.borrow().iter().rev().find_map(|frame| frame.node)
    }

    /// How many methods are being executed.
    pub fn depth(&self) -> usize {
        self.frames.borrow().len()
    }

    /// Says that a module of an annotated type is about to be called, and how many were before.
    pub fn announce(&self, node: NodeId, address: usize, type_id: TypeId) -> u32 {
        let mut announced = self.announced.borrow_mut();
        announced.push(Announced { node, address, type_id, claimed: false });
        announced.len() as u32 - 1
    }

    /// Forgets an announced call, and says whether an annotated method has done everything itself.
    pub fn was_claimed(&self, at: u32) -> bool {
        let mut announced = self.announced.borrow_mut();
        let claimed = announced.get(at as usize).is_none_or(|announced| announced.claimed);
        announced.truncate(at as usize);
        claimed
    }

    /// Notes what a module is called with, and says where.
    pub fn begin_call(&self, inputs: Named) -> u32 {
        let mut called_with = self.called_with.borrow_mut();
        called_with.push(inputs);
        called_with.len() as u32 - 1
    }

    /// What a module was called with, which is then forgotten, and so are calls inside it that did not
    /// return because somebody caught a panic.
    pub fn end_call(&self, at: u32) -> Named {
        let mut called_with = self.called_with.borrow_mut();
        called_with.truncate(at as usize + 1);
        called_with.pop().unwrap_or_default()
    }
}
