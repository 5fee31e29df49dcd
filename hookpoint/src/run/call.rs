//! Calls of foreign modules, hooked where they are called.

use std::any::TypeId;
use std::cell::{Cell, RefCell};

use candle_core::Tensor;

use super::anew::{Again, CallAgain};
use super::dispatch::BeforeCall;
use super::gradient::TrackedInputs;
use super::{current, RunState};
use crate::erased::{self, active, Erased, ErasedMut};
use crate::tree::{known_layer, NodeId};

/// Where a call stands in the source, and what it says.
#[derive(Debug)]
pub struct CallSite {
    /// The method's name.
    pub method: &'static str,
    /// The name of the field that is called, where the receiver says it.
    pub field: &'static str,
    /// The source file.
    pub file: &'static str,
    /// The line.
    pub line: u32,
}

/// What is to be done at a call site.
pub enum Before<R> {
    /// Make the call, and give its result to [`CallToken::after`].
    Call(CallToken),
    /// Do not make the call: this is its result.
    Done(R),
    /// The call was made, so that there is a gradient: this is its result.
    Made(R),
}

/// The same for a call that is written `module.forward(x)`, and may be made anew.
pub enum BeforeForward<R> {
    /// As in [`Before`].
    Call(CallToken),
    /// As in [`Before`].
    Done(R),
    /// As in [`Before`].
    Made(R),
    /// Make the call with what is in here, as often as is wanted: what that gives is the result.
    Anew(Again<R>),
}

/// A call that is under way.
pub struct CallToken(pub(super) Token);

pub(super) enum Token {
    /// Nobody listens.
    Idle,
    /// A foreign module whose output is kept, and of which nothing else is asked.
    Kept(NodeId),
    /// A module of an annotated type, and how many calls of such modules were announced before.
    Announced(NodeId, u32),
    /// Anything more.
    Watched(Call),
}

pub(super) struct Call {
    pub node: NodeId,
    /// As in [`Token::Announced`]; a foreign module is not announced.
    pub announced: Option<u32>,
    /// Which lesson this call may become.
    pub lesson: Option<u32>,
    /// Where it is noted what the module is called with, if it is.
    pub called_with: Option<u32>,
    /// What a foreign module is given that wants a gradient.
    pub tracked: TrackedInputs,
    /// Which call of a foreign module it is, where there is to be a backward pass.
    pub number: usize,
    /// Were listeners told of it?
    pub entered: bool,
}

impl CallToken {
    /// Nobody listens.
    pub const IDLE: Self = CallToken(Token::Idle);

    /// The call's result: what the caller goes on with.
    #[inline(always)]
    pub fn after<R>(self, mut result: R) -> R {
        if !matches!(self.0, Token::Idle) {
            self.0.after(ErasedMut::of(&mut result));
        }
        result
    }
}

impl Token {
    #[cold]
    #[inline(never)]
    fn after(self, result: ErasedMut<'_>) {
        current(|state| state.after(self, result));
    }
}

impl Call {
    pub fn of(node: NodeId) -> Self {
        let (tracked, number) = (TrackedInputs::new(), 0);
        Self { node, announced: None, lesson: None, called_with: None, tracked, number, entered: false }
    }
}

impl From<Call> for CallToken {
    fn from(call: Call) -> Self {
        CallToken(Token::Watched(call))
    }
}

/// Asks before a call of `module` with `inputs`, which is one of candle's traits, or has no single input.
#[cold]
pub fn before_call<R>(site: &'static CallSite, module: Erased<'_>, inputs: &[Erased<'_>]) -> Before<R> {
    debug_assert!(active());
    match current(|state| state.before_plainly(module)) {
        Some(Some(token)) => Before::Call(token),
        _ => before_call_in_full(site, module, inputs),
    }
}

#[inline(never)]
fn before_call_in_full<R>(site: &'static CallSite, module: Erased<'_>, inputs: &[Erased<'_>]) -> Before<R> {
    match asked_in_full(site, module, inputs, None) {
        BeforeForward::Call(token) => Before::Call(token),
        BeforeForward::Done(result) => Before::Done(result),
        BeforeForward::Made(result) => Before::Made(result),
        BeforeForward::Anew(again) => Before::Done(again.refused()),
    }
}

/// Asks before a call `module.forward(argument)`, or `forward_t`: of candle's traits, or a method of that name.
#[cold]
pub fn before_forward<R>(
    site: &'static CallSite,
    module: Erased<'_>,
    inputs: &[Erased<'_>],
    argument: Erased<'_>,
) -> BeforeForward<R> {
    debug_assert!(active());
    match current(|state| state.before_plainly(module)) {
        Some(Some(token)) => BeforeForward::Call(token),
        _ => asked_in_full(site, module, inputs, Some(argument)),
    }
}

#[inline(never)]
fn asked_in_full<R>(
    site: &'static CallSite,
    module: Erased<'_>,
    inputs: &[Erased<'_>],
    argument: Option<Erased<'_>>,
) -> BeforeForward<R> {
    let computable = || typeid::of::<R>() == TypeId::of::<candle_core::Result<Tensor>>();
    let mut done = None;
    let (made, again) = (Cell::new(false), RefCell::new(None));
    let asked = Asked { site, module, inputs, argument, computable: &computable, made, again };
    let token = current(|state| state.before(&asked, &mut done)).unwrap_or(CallToken::IDLE);
    if let Some(again) = asked.again.take().and_then(Again::new) {
        return BeforeForward::Anew(again);
    }
    match done.and_then(erased::same_type) {
        Some(result) if asked.made.get() => BeforeForward::Made(result),
        Some(result) => BeforeForward::Done(result),
        None => BeforeForward::Call(token),
    }
}

/// A call that is about to be made.
pub(super) struct Asked<'a> {
    pub site: &'static CallSite,
    pub module: Erased<'a>,
    pub inputs: &'a [Erased<'a>],
    /// What is between the parentheses, where only the source says which method is called.
    pub argument: Option<Erased<'a>>,
    /// Is its result one that we could make ourselves?
    pub computable: &'a dyn Fn() -> bool,
    /// Was the call made, rather than replaced?
    pub made: Cell<bool>,
    /// The call, where it is to be made by the source, with what is said here.
    pub again: RefCell<Option<CallAgain>>,
}

/// Who can make a call with another tensor.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Maker {
    /// We can, through candle's traits.
    Traits,
    /// The source can.
    Source,
    Nobody,
}

impl Asked<'_> {
    pub fn maker(&self, module: Option<Erased<'_>>) -> Maker {
        if !calls_with_one_tensor(self.site.method, self.inputs) || !(self.computable)() {
            return Maker::Nobody;
        }
        match self.argument {
            None => Maker::Traits,
            Some(_) if module.and_then(known_layer).is_some() => Maker::Traits,
            Some(argument) if argument.is_one_tensor() => Maker::Source,
            Some(_) => Maker::Nobody,
        }
    }
}

/// Is this a call that can be made anew with another tensor: `forward(x)`, `x.apply(m)`, or with a
/// flag for training? A method with more arguments is not the one of candle's traits.
pub(super) fn calls_with_one_tensor(method: &str, inputs: &[Erased<'_>]) -> bool {
    match (method, inputs) {
        ("forward" | "apply", [_]) => true,
        ("forward_t" | "apply_t", [_, train]) => train.get::<bool>().is_some(),
        _ => false,
    }
}

impl RunState<'_> {
    /// Nearly all calls of nearly all runs: of a module that is called where it lives, and of which nothing
    /// is asked, or only to keep its output.
    #[inline]
    fn before_plainly(&self, module: Erased<'_>) -> Option<CallToken> {
        if !self.listeners.only_acts || self.has_ended() {
            return None;
        }
        let (address, type_id) = (module.address(), module.type_id());
        let (node, address, type_id) = match self.tree.only_module_at(address, type_id) {
            Some(node) => (node, address, type_id),
            None => self.tree.only_module_behind(module)?,
        };
        Some(CallToken(match self.dispatch.at(node).before_call {
            BeforeCall::Nothing => Token::Idle,
            BeforeCall::Keep => Token::Kept(node),
            BeforeCall::Announce => Token::Announced(node, self.stack.announce(node, address, type_id)),
            BeforeCall::Decide => return None,
        }))
    }

    fn after(&self, token: Token, mut result: ErasedMut<'_>) {
        let call = match token {
            Token::Idle => return,
            Token::Announced(_, at) if self.stack.was_claimed(at) => return,
            Token::Watched(call) => call,
            Token::Kept(node) | Token::Announced(node, _) => {
                // The commonest of all results.
                if let Some(Ok(tensor)) = result.get_mut::<candle_core::Result<Tensor>>() {
                    if matches!(self.keep_output(node, tensor), Ok(true)) {
                        return;
                    }
                }
                Call::of(node)
            }
        };
        self.after_in_full(call, result);
    }
}
