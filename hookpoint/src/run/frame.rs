//! Annotated methods: entering, arguments, leaving.

use super::argument::{holds_tensors, New};
use super::current;
use super::fire::Replace;
use super::gradient::Trail;
use super::stack::{Arguments, Before, Frame, Memo};
use super::RunState;
use crate::erased::{active, listen_to_values, resume, suspend, Erased, ErasedMut, Slot};
use crate::tree::{Effects, MethodInfo, NodeId};
use crate::value::{DynamicOps, ValueOps};

/// A method that has been entered; leaves it when dropped, on return, error and panic.
#[must_use = "the method is left when this is dropped"]
pub struct Entered {
    /// The number of frames including this one, and what is wanted; 0 where nobody listens.
    depth: u32,
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        if self.depth != 0 {
            self.leave();
        }
    }
}

impl Entered {
    /// Does somebody want the arguments?
    const ARGUMENTS: u32 = 1 << 31;
    /// Does somebody want them all at once?
    const WHOLE_CALL: u32 = 1 << 30;
    /// Are numbers wanted, too, by which one call is told from another?
    const SCALARS: u32 = 1 << 29;
    /// Is this no part of the run? What was told to the run before is in the lowest bits.
    const STRANGE: u32 = 1 << 28;
    const IDLE: Self = Self { depth: 0 };

    /// Enters `method` of `this`.
    #[inline(always)]
    pub fn new<T: ?Sized>(method: &'static MethodInfo, this: &T) -> Self {
        if active() {
            return Self::enter(method, Erased::of(this), false);
        }
        Self::IDLE
    }

    /// Enters a method whose result is of a known type.
    #[inline(always)]
    pub fn giving<T: ?Sized, R>(
        method: &'static MethodInfo,
        this: &T,
        ops: impl FnOnce() -> ValueOps<R>,
    ) -> Self {
        if active() {
            return Self::enter(method, Erased::of(this), ops().each_tensor.is_some());
        }
        Self::IDLE
    }

    #[cold]
    fn enter(method: &'static MethodInfo, this: Erased<'_>, gives_tensors: bool) -> Self {
        current(|state| state.enter(method, this, gives_tensors)).unwrap_or(Self::IDLE)
    }

    #[cold]
    fn leave(&self) {
        if self.is_strange() {
            return resume(self.depth as u8);
        }
        current(|state| state.leave(self.depth()));
    }

    fn is_strange(&self) -> bool {
        self.depth & Self::STRANGE != 0
    }

    fn depth(&self) -> usize {
        (self.depth & !(Self::ARGUMENTS | Self::WHOLE_CALL | Self::SCALARS)) as usize
    }

    #[inline(always)]
    fn wants_arguments(&self) -> bool {
        self.depth & Self::ARGUMENTS != 0
    }

    /// Are arguments wanted that are no tensors, such as positions and flags?
    #[inline(always)]
    pub fn wants_scalars(&self) -> bool {
        self.depth & Self::SCALARS != 0
    }

    /// Such an argument, as text.
    #[cold]
    pub fn scalar(&self, number: u32, value: std::fmt::Arguments<'_>) {
        current(|state| state.scalar_observed(self.depth(), number, &value.to_string()));
    }

    /// Does somebody want to see all arguments at once, before they are shown one by one?
    #[inline(always)]
    pub fn wants_preview(&self) -> bool {
        self.depth & Self::WHOLE_CALL != 0
    }

    /// All arguments.
    #[cold]
    pub fn preview(&self, arguments: &[(u32, Erased<'_>)]) {
        current(|state| {
            if let Err(error) = state.preview(self.depth(), arguments) {
                state.fail(error);
            }
        });
    }

    /// An argument that is a reference: what the method goes on with.
    #[inline(always)]
    pub fn by_ref<'s, T: ?Sized>(&self, number: u32, value: &'s T, slot: &'s mut Slot) -> &'s T {
        if !self.wants_arguments() {
            return value;
        }
        self.by_ref_cold(number, value, slot)
    }

    #[cold]
    fn by_ref_cold<'s, T: ?Sized>(&self, number: u32, value: &'s T, slot: &'s mut Slot) -> &'s T {
        match self.argument(number, Erased::of(value), Replace::Yes) {
            Some(New::Tensor(new)) => slot.put(value, new),
            Some(New::Any(new)) => match DynamicOps::for_type(typeid::of::<T>()) {
                Some(ops) => slot.put_any(value, new, ops.plain()),
                None => value,
            },
            None => value,
        }
    }

    /// An argument that is an optional reference.
    #[inline(always)]
    pub fn by_option<'s, T>(&self, number: u32, value: Option<&'s T>, slot: &'s mut Slot) -> Option<&'s T> {
        if !self.wants_arguments() {
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
        if self.wants_arguments() {
            let reason = "the argument is borrowed for longer than the call; hook the value where it is made";
            self.argument(number, Erased::of(value), Replace::No(reason));
        }
    }

    /// An argument that is passed by value: what the method goes on with.
    #[inline(always)]
    pub fn by_value<T>(&self, number: u32, mut value: T) -> T {
        if self.wants_arguments() {
            // What needs no drop and has no lifetime shares nothing with anybody.
            let may_share = std::mem::needs_drop::<T>();
            self.by_value_cold(number, ErasedMut::of(&mut value), may_share);
        }
        value
    }

    #[cold]
    fn by_value_cold(&self, number: u32, value: ErasedMut<'_>, may_share: bool) {
        current(|state| {
            if may_share {
                state.note_doubt(self.depth(), number, value.shared());
            }
            if state.listeners.follows.calls {
                state.argument_observed(self.depth(), number, value.shared());
            }
            let mut value = value;
            if let Err(error) = state.argument_value(self.depth(), number, value.reborrow()) {
                state.fail(error);
            }
            state.hear_argument(self.depth(), value.shared());
        });
    }

    #[cold]
    fn argument(&self, number: u32, value: Erased<'_>, replace: Replace<'_>) -> Option<New> {
        current(|state| {
            state.note_doubt(self.depth(), number, value);
            if state.listeners.follows.calls {
                state.argument_observed(self.depth(), number, value);
            }
            match state.argument(self.depth(), number, value, replace) {
                Ok(new) => {
                    match &new {
                        Some(New::Tensor(new)) => state.hear_argument(self.depth(), Erased::of(new)),
                        _ => state.hear_argument(self.depth(), value),
                    }
                    new
                }
                Err(error) => {
                    state.fail(error);
                    None
                }
            }
        })?
    }

    #[cold]
    fn no_argument<T>(&self) {
        current(|state| {
            if holds_tensors(typeid::of::<T>()) {
                state.next_input(self.depth());
            }
        });
    }

    /// The method's result where it need not run: its whole output is replaced and nothing inside is
    /// wanted, or the run is over.
    #[inline(always)]
    pub fn skipped<R>(&self, ops: impl FnOnce() -> ValueOps<R>) -> Option<R> {
        if self.depth == 0 {
            return None;
        }
        self.skip(&ops())
    }

    #[cold]
    fn skip<R>(&self, ops: &ValueOps<R>) -> Option<R> {
        if self.is_strange() {
            return None;
        }
        current(|state| {
            state.arguments_shown(self.depth());
            state.known_result(self.depth(), ops).unwrap_or_else(|error| {
                state.fail(error.clone());
                ops.from_error.map(|from_error| from_error(error))
            })
        })?
    }

    /// The method's result, in its place: what the caller goes on with.
    #[inline(always)]
    pub fn result<R>(&self, ops: impl FnOnce() -> ValueOps<R>, result: &mut R) {
        if self.depth != 0 {
            self.show_result(&ops(), result);
        }
    }

    #[cold]
    fn show_result<R>(&self, ops: &ValueOps<R>, result: &mut R) {
        if self.is_strange() {
            return;
        }
        let error = current(|state| {
            if state.listeners.follows.calls {
                state.result_observed(self.depth(), ops, result);
            }
            if let Err(error) = state.result(self.depth(), ops, result) {
                state.fail(error);
            }
            if !state.listeners.users.audience.is_empty() {
                state.hear_result(self.depth(), ops, result);
            }
            state.ended()
        });
        if let (Some(error), Some(from_error)) = (error.flatten(), ops.from_error) {
            *result = from_error(error);
        }
    }
}

impl RunState<'_> {
    fn enter(&self, method: &'static MethodInfo, this: Erased<'_>, gives_tensors: bool) -> Entered {
        let (node, was_announced) = self.claim(this, method);
        if !was_announced && node.is_some_and(|node| self.is_strange(node, method)) {
            return Entered { depth: Entered::STRANGE | u32::from(suspend()) };
        }
        if let Some(gradient) = self.gradient() {
            gradient.begin();
        }
        let mut frames = self.stack.frames.borrow_mut();
        // A `forward_t` that `forward` of the same module calls is part of the same call; a `forward`
        // that calls itself is called anew.
        let same_module = frames.iter().rev().take_while(|frame| node.is_some() && frame.node == node);
        let mut others = same_module.filter(|frame| !std::ptr::eq(frame.method, method));
        let nested = others.any(|frame| frame.is_call || frame.method.is_forward());
        let is_forward = method.is_forward();
        let stands_for_it = || gives_tensors && self.stands_for_module(node, method, was_announced);
        let is_call = !nested && (is_forward || stands_for_it());
        let wants = node.map(|node| self.dispatch.at(node));
        let wants_inputs = wants.is_some_and(|wants| wants.inputs) || self.listeners.hears_every_point();
        let wants_values = wants.is_some_and(|wants| wants.values) || self.listeners.hears_every_point();
        let is_lesson = is_call && is_forward && wants.is_some_and(|wants| self.is_lesson(wants));
        let call = node.filter(|_| is_call).map_or(0, |node| self.count_call(node));
        frames.push(Frame {
            node,
            method,
            is_call,
            wants_inputs,
            wants_values,
            arguments: Arguments::default(),
            memo: Memo::default(),
            trail: Trail::of_call(call),
            before: Before {
                effects: self.effects.count.get(),
                announced: self.stack.announced.borrow().len(),
                uses: self.stack.uses.borrow().len(),
            },
        });
        let depth = frames.len();
        let as_call = node.filter(|_| is_call && is_forward);
        self.calls_observed(|observer| observer.entered(self, depth, as_call));
        let mut doubted = false;
        if self.effects.noted {
            self.note_method(node, method);
            doubted = matches!(method.effects, Effects::None { doubts } if !doubts.is_empty());
        }
        let every_value = self.listeners.hears_every_value();
        listen_to_values(wants_values || every_value);
        let hears_calls = node.is_some_and(|node| self.hears_calls(node) != 0);
        let shown = wants_inputs || is_lesson || doubted || hears_calls || every_value;
        let compares = self.listeners.follows.calls && self.compares(depth);
        let arguments = if shown || compares { Entered::ARGUMENTS } else { 0 };
        let scalars = if compares { Entered::SCALARS } else { 0 };
        let whole_call = is_call && wants.is_some_and(|wants| wants.call_hooks);
        let whole_call = if whole_call { Entered::WHOLE_CALL } else { 0 };
        Entered { depth: frames.len() as u32 | arguments | scalars | whole_call }
    }

    /// Is this module entered by work that is none of the run's? A thread of a pool takes up other work while it waits,
    /// which may be a call of the same model. No module calls one that it is inside of, and a `forward` that calls itself
    /// is announced where it does. Calls of other methods are not announced, so these may call themselves.
    fn is_strange(&self, node: NodeId, method: &'static MethodInfo) -> bool {
        let end = self.tree.node(node).map_or(node, |node| node.end);
        let frames = self.stack.frames.borrow();
        frames.iter().any(|frame| match frame.node {
            Some(open) if open == node => std::ptr::eq(frame.method, method) && may_be_announced(method),
            Some(open) => node < open && open < end,
            None => false,
        })
    }

    /// Forgets a method, and what was called in it and did not return, because somebody caught a panic.
    fn leave(&self, depth: usize) {
        let mut frames = self.stack.frames.borrow_mut();
        if let Some(frame) = frames.get(depth - 1) {
            self.stack.announced.borrow_mut().truncate(frame.before.announced);
            self.stack.uses.borrow_mut().truncate(frame.before.uses);
        }
        frames.truncate(depth - 1);
        self.calls_observed(|observer| observer.left(depth));
        drop(frames);
        if !self.listeners.users.audience.is_empty() {
            self.tell_leave(depth);
        }
        let frames = self.stack.frames.borrow();
        let every_value = self.listeners.hears_every_value();
        listen_to_values(frames.last().is_some_and(|frame| frame.wants_values || every_value));
    }

    /// Is this method a call of the module, though it is no `forward`? It is where the type has none. A call site
    /// that was about to call another method of the module means that one.
    fn stands_for_module(
        &self,
        node: Option<NodeId>,
        method: &'static MethodInfo,
        was_announced: bool,
    ) -> bool {
        let is_meant = !was_announced || may_be_announced(method);
        is_meant && node.is_some_and(|node| !self.tree.has_forward(node))
    }

    /// The node of the module that is entered, and whether its call site has said which one it is about to call.
    fn claim(&self, this: Erased<'_>, method: &'static MethodInfo) -> (Option<NodeId>, bool) {
        let mut announced = self.stack.announced.borrow_mut();
        if let Some(last) = announced.last_mut().filter(|last| !last.claimed) {
            let (address, type_id) = (this.address(), this.type_id());
            let is_it = last.address == address && last.type_id == type_id;
            if is_it || self.tree.is_at(last.node, address, type_id) {
                last.claimed = may_be_announced(method);
                return (Some(last.node), true);
            }
        }
        (self.tree.module_at(this.address(), this.type_id(), || self.caller(), ""), false)
    }
}

/// Are calls of a method with this name announced by their call sites? A helper that is annotated, of a module whose
/// `forward` is not, is not what was announced.
fn may_be_announced(method: &MethodInfo) -> bool {
    method.is_forward() || matches!(method.name, "apply" | "apply_t" | "step" | "seq" | "seq_init")
}
