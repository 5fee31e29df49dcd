//! Calls of foreign modules, hooked where they are called.

use std::any::TypeId;
use std::cell::{Cell, RefCell};

use candle_core::Tensor;

use super::anew::{Again, CallAgain, NOT_ANEW};
use super::call_hooks::{gather, named, scatter, Named, Part, When};
use super::current;
use super::dispatch::BeforeCall;
use super::fire::Replace;
use super::frame::with_label;
use super::gradient::TrackedInputs;
use super::listeners::Said;
use super::member::Member;
use super::{PointKey, RunState, Slot32};
use crate::error::{ErrorKind, Result};
use crate::raw::{self, active, Erased, ErasedMut, Receiver};
use crate::tree::{known_layer, Kind, NodeId};
use crate::value::DynamicOps;

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
pub struct CallToken(Token);

enum Token {
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
    announced: Option<u32>,
    /// Which lesson this call may become.
    lesson: Option<u32>,
    /// Where it is noted what the module is called with, if it is.
    called_with: Option<u32>,
    /// What a foreign module is given that wants a gradient.
    pub tracked: TrackedInputs,
    /// Which call of a foreign module it is, where there is to be a backward pass.
    number: usize,
    /// Were listeners told of it?
    entered: bool,
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
    fn of(node: NodeId) -> Self {
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
    match done.and_then(raw::same_type) {
        Some(result) if asked.made.get() => BeforeForward::Made(result),
        Some(result) => BeforeForward::Done(result),
        None => BeforeForward::Call(token),
    }
}

/// A call that is about to be made.
struct Asked<'a> {
    site: &'static CallSite,
    module: Erased<'a>,
    inputs: &'a [Erased<'a>],
    /// What is between the parentheses, where only the source says which method is called.
    argument: Option<Erased<'a>>,
    /// Is its result one that we could make ourselves?
    computable: &'a dyn Fn() -> bool,
    /// Was the call made, rather than replaced?
    made: Cell<bool>,
    /// The call, where it is to be made by the source, with what is said here.
    again: RefCell<Option<CallAgain>>,
}

/// Who can make a call with another tensor.
#[derive(Clone, Copy, PartialEq)]
enum Maker {
    /// We can, through candle's traits.
    Traits,
    /// The source can.
    Source,
    Nobody,
}

impl Asked<'_> {
    fn maker(&self, module: Option<Erased<'_>>) -> Maker {
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

const MAY_BE_ANOTHER: &str = "its type may hold a lifetime, and the model, which is borrowed exclusively or has \
                              changed, does not show that it still has this module; annotate the type, or hook the \
                              value where it is made";

/// Is this a call that can be made anew with another tensor: `forward(x)`, `x.apply(m)`, or with a
/// flag for training? A method with more arguments is not the one of candle's traits.
fn calls_with_one_tensor(method: &str, inputs: &[Erased<'_>]) -> bool {
    match (method, inputs) {
        ("forward" | "apply", [_]) => true,
        ("forward_t" | "apply_t", [_, train]) => train.get::<bool>().is_some(),
        _ => false,
    }
}

/// Is a layer called for training?
fn trains(inputs: &[Erased<'_>]) -> bool {
    inputs.iter().find_map(|input| input.get::<bool>().copied()).unwrap_or(false)
}

fn input_name(number: u32) -> String {
    match number {
        0 => "in".to_string(),
        n => format!("in.{n}"),
    }
}

/// The tensors that a module is called with.
fn gathered_inputs(node: NodeId, inputs: &[Erased<'_>], replace: impl Fn(usize) -> Replace) -> Vec<Part> {
    let part = |(number, tensor): (usize, &Tensor)| {
        let (slot, replace) = (Slot32::Input(number as u32), replace(number));
        let key = PointKey { node, method: 0, slot, member: Member::FIRST };
        Part::new(key, vec![input_name(number as u32)], tensor, replace)
    };
    inputs.iter().filter_map(Erased::tensor).enumerate().map(part).collect()
}

/// What a call is replaced by, if it is.
type Done = Option<candle_core::Result<Tensor>>;

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

    fn before(&self, asked: &Asked<'_>, done: &mut Done) -> CallToken {
        let Asked { site, module, .. } = *asked;
        if self.has_ended() {
            *done = self.ended().filter(|_| (asked.computable)()).map(|error| Err(error.into_candle()));
        }
        if done.is_some() {
            return CallToken::IDLE;
        }
        let found = self.tree.module_behind(module, || self.caller(), site.field);
        let Some((node, receiver)) = found else {
            // `rotary.apply(&q)` and `x.apply(&None)` are no calls of a module.
            if let Some(scan) = &self.listeners.scan {
                if module.tensor().is_none() && !self.tree.is_nobody(module) {
                    scan.unknown_call(site);
                }
            }
            // One of candle's layers that is no part of the model.
            if let Some(x) = asked.inputs.first().and_then(Erased::tensor).filter(|_| self.makes_anew(asked))
            {
                *done = known_layer(module).and_then(|layer| layer.with_gradient(x, trains(asked.inputs)));
                asked.made.set(done.is_some());
            }
            return CallToken::IDLE;
        };
        if let Some(scan) = &self.listeners.scan {
            scan.known_call(site);
        }
        if self.tree.node(node).is_some_and(|node| node.kind == Kind::Module) {
            let (address, type_id) = receiver.place_of(module);
            let at = self.stack.announce(node, address, type_id);
            if !self.dispatch.at(node).together {
                return CallToken(Token::Announced(node, at));
            }
            // In case that its code is not annotated.
            let parts = gathered_inputs(node, asked.inputs, |_| Replace::Yes);
            let called_with = Some(self.stack.begin_call(named(&parts, "in")));
            return Call { announced: Some(at), called_with, ..Call::of(node) }.into();
        }
        self.note_layer(node, asked.inputs);
        if self.listeners.tape.is_on() {
            if let Some(token) = self.before_on_tape(asked, node, done) {
                return token;
            }
        }
        let wants = self.dispatch.at(node);
        if wants.requests.is_empty() && !wants.heard && !self.listeners.hears_every_call() {
            return CallToken::IDLE;
        }
        if wants.before_call == BeforeCall::Keep && self.listeners.only_acts {
            return CallToken(Token::Kept(node));
        }
        match self.decide(asked, node, receiver, done) {
            Ok(token) => token,
            Err(error) => {
                self.fail(error.clone());
                *done = (asked.computable)().then(|| Err(error.into_candle()));
                CallToken::IDLE
            }
        }
    }

    /// Where calls are noted, or answered: answers this one, or sees to it that its result is told.
    #[cold]
    #[inline(never)]
    fn before_on_tape(&self, asked: &Asked<'_>, node: NodeId, done: &mut Done) -> Option<CallToken> {
        if !self.may_be_left_out(asked, node) {
            return None;
        }
        let answered = self.tape_leaf(node, asked.inputs).inspect_err(|error| self.fail(error.clone()));
        let shown = answered.and_then(|value| value.map(|value| self.show_replayed(node, value)).transpose());
        if let Some(shown) = shown.transpose() {
            *done = Some(shown.map_err(|error| error.into_candle()));
            return Some(CallToken::IDLE);
        }
        let wants = self.dispatch.at(node);
        let unasked = wants.requests.is_empty() && !wants.heard && !self.listeners.hears_every_point();
        unasked.then(|| Call::of(node).into())
    }

    /// May this call of a layer be left out, because its result is all that comes of it?
    fn may_be_left_out(&self, asked: &Asked<'_>, node: NodeId) -> bool {
        let changes = self.changes_in_training(node, asked.inputs);
        !changes && calls_with_one_tensor(asked.site.method, asked.inputs) && (asked.computable)()
    }

    #[cold]
    fn decide(
        &self,
        asked: &Asked<'_>,
        node: NodeId,
        receiver: &Receiver,
        done: &mut Done,
    ) -> Result<CallToken> {
        let Asked { module, inputs, .. } = *asked;
        let computable = (asked.computable)();
        let (layer, maker) = (receiver.module(module), asked.maker(receiver.module(module)));
        let wants = self.dispatch.at(node);
        let first = inputs.iter().find_map(Erased::tensor);
        // What a layer with a known width gives is known anyway.
        let is_lesson =
            self.is_lesson(wants) && self.tree.node(node).is_some_and(|node| node.width.is_none());
        let lesson = first
            .filter(|_| is_lesson)
            .and_then(|input| self.begin_lesson(node, input, self.effects.count.get()));
        let (tracked, number) = (self.tracked_inputs(inputs), self.count_call(node));
        self.in_leaf_call(number);
        let mut call = Call { lesson, tracked, number, ..Call::of(node) };
        let mut new_input = None;
        let can_replace = |number: usize| {
            if number == 0 && maker != Maker::Nobody {
                Replace::Yes
            } else {
                Replace::No(NOT_ANEW)
            }
        };
        if wants.inputs || self.listeners.hears_every_point() {
            if wants.together {
                let mut parts = gathered_inputs(node, inputs, can_replace);
                self.fire_together(node, When::Before, &Named::default(), &mut parts)?;
                new_input = parts.first().filter(|part| part.is_new).map(|part| part.tensor.clone());
                call.called_with = Some(self.stack.begin_call(named(&parts, "in")));
            } else {
                for (number, tensor) in inputs.iter().filter_map(Erased::tensor).enumerate() {
                    let replace = can_replace(number);
                    let number = number as u32;
                    let key =
                        PointKey { node, method: 0, slot: Slot32::Input(number), member: Member::FIRST };
                    let names = || vec![input_name(number)];
                    new_input = self.fire(key, &names, tensor, replace)?.or(new_input);
                }
            }
            self.settle(node);
            self.inputs_are_there(node);
            if let Some(error) = self.ended().filter(|_| computable) {
                *done = Some(Err(error.into_candle()));
                return Ok(CallToken::IDLE);
            }
        }
        if self.hears_calls(node) != 0 {
            if let Some(result) = self.tell_leaf(asked, node, new_input.as_ref())? {
                *done = Some(Ok(result));
                return Ok(CallToken::IDLE);
            }
            call.entered = true;
        }
        if wants.may_skip && self.may_be_left_out(asked, node) {
            let facts = || known_layer(receiver.module(module)?)?.outline(first?);
            if let Some(tensor) = self.replaced(node, first, facts)? {
                if call.entered {
                    self.hear_leaf_result(
                        node,
                        ErasedMut::of(&mut Ok::<_, candle_core::Error>(tensor.clone())),
                    );
                }
                *done = Some(match self.ended() {
                    Some(error) => Err(error.into_candle()),
                    None => Ok(tensor),
                });
                return Ok(CallToken::IDLE);
            }
        }
        let (differentiates, is_replaced) = (self.gradient().is_some(), new_input.is_some());
        let anew = differentiates && maker != Maker::Nobody;
        let Some(input) = new_input.or_else(|| first.cloned().filter(|_| anew)) else {
            return Ok(call.into());
        };
        let train = trains(inputs);
        let of_candle = layer.and_then(known_layer);
        let known = of_candle.filter(|_| differentiates).and_then(|layer| layer.with_gradient(&input, train));
        let is_right = of_candle.is_some();
        if known.is_none() && maker == Maker::Source {
            *asked.again.borrow_mut() = Some(CallAgain { call, input, is_replaced, is_right });
            return Ok(CallToken::IDLE);
        }
        let callable = receiver.may_call(module);
        if let Some(gradient) = self.gradient().filter(|_| known.is_none() && !callable && !is_replaced) {
            if gradient.wants_gradient_of(&input) {
                let operations = vec![format!("{}: {MAY_BE_ANOTHER}", self.shown(node))];
                return Err(ErrorKind::GradientLost { operations }.into());
            }
        }
        let mut forward = |x: &Tensor| receiver.call(module, x, train);
        let made = match (known, self.gradient().filter(|_| layer.is_some())) {
            (Some(known), _) => Some(known),
            (None, Some(gradient)) => self.differentiable(gradient, node, is_right, &input, &mut forward)?,
            (None, None) => forward(&input),
        };
        let Some(mut result) = made else {
            if !is_replaced {
                return Ok(call.into());
            }
            let reason = if callable { NOT_ANEW } else { MAY_BE_ANOTHER };
            let (point, reason) = (format!("{}:in", self.tree.name(node)), reason.to_string());
            return Err(ErrorKind::NotReplaceable { point, reason }.into());
        };
        call.tracked.extend(Some(input).filter(|input| differentiates && input.track_op()));
        self.after_in_full(call, ErasedMut::of(&mut result));
        asked.made.set(!is_replaced);
        *done = Some(result);
        Ok(CallToken::IDLE)
    }

    /// Tells the listeners of a call of a foreign module; gives what they answer it with.
    fn tell_leaf(
        &self,
        asked: &Asked<'_>,
        node: NodeId,
        replaced: Option<&Tensor>,
    ) -> Result<Option<Tensor>> {
        let mut inputs: Vec<Tensor> = asked.inputs.iter().filter_map(Erased::tensor).cloned().collect();
        if let (Some(first), Some(new)) = (inputs.first_mut(), replaced) {
            *first = new.clone();
        }
        let depth = self.stack.depth() + 1;
        let Said::Done(value) = self.tell_enter((node, asked.site.method, true), depth, inputs)? else {
            return Ok(None);
        };
        if !self.may_be_left_out(asked, node) {
            return Err(self.not_answerable(node));
        }
        let value = self.show_replayed(node, value)?;
        self.hear_leaf_result(node, ErasedMut::of(&mut Ok::<_, candle_core::Error>(value.clone())));
        Ok(Some(value))
    }

    /// Is the call made here, and not as it is written, because there is to be a backward pass?
    fn makes_anew(&self, asked: &Asked<'_>) -> bool {
        let makes = self.gradient().is_some() && calls_with_one_tensor(asked.site.method, asked.inputs);
        makes && (asked.computable)()
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

    #[inline(never)]
    pub(super) fn after_in_full(&self, call: Call, mut result: ErasedMut<'_>) {
        let (node, entered) = (call.node, call.entered);
        self.shown_after(call, result.reborrow());
        if entered {
            self.hear_leaf_result(node, result);
        }
    }

    fn shown_after(&self, call: Call, mut result: ErasedMut<'_>) {
        let inputs = call.called_with.map(|at| self.stack.end_call(at));
        if call.announced.is_some_and(|at| self.stack.was_claimed(at)) {
            return;
        }
        if self.listeners.tape.is_on() {
            let value = result.get_mut::<candle_core::Result<Tensor>>();
            self.tape_leaf_result(call.node, value.and_then(|value| value.as_ref().ok()));
        }
        if let Some(Ok(tensor)) = result.get_mut::<candle_core::Result<Tensor>>() {
            self.end_lesson(call.lesson, tensor);
            let kept = || self.keeps(PointKey::output(call.node), tensor);
            if inputs.is_none() && matches!(kept(), Ok(true)) {
                return;
            }
        }
        self.in_leaf_call(call.number);
        let wanted = self.dispatch.at(call.node).output || self.listeners.hears_every_result();
        let matters = wanted || self.has_ended() || !call.tracked.is_empty();
        let Some(ops) = DynamicOps::for_type(result.type_id()).filter(|_| matters) else {
            return;
        };
        if let Err(error) = self.watch(call.node, &call.tracked, ops, result.reborrow()) {
            self.fail(error);
        }
        let key = |member| PointKey { node: call.node, method: 0, slot: Slot32::Result, member };
        let output = || vec!["out".to_string()];
        let patched = self.patch_value(&key, &output, ops, &mut result);
        let fired = patched.and_then(|()| match inputs {
            Some(inputs) => self.fire_result_together(&call, &inputs, ops, &mut result),
            None => self.fire_result(&call, ops, &mut result),
        });
        if !ops.is_one_tensor() {
            self.fire_any(key(Member::WHOLE), &output, &mut || ops.copy(result.shared()));
        }
        let parts = fired.unwrap_or_else(|error| {
            self.fail(error);
            0
        });
        self.settle(call.node);
        if parts > 0 {
            self.method_is_over(call.node, 0, true);
        }
        self.hand_on(ops, result);
    }

    /// Fires what a call gave, tensor by tensor, and says how many there were.
    fn fire_result(&self, call: &Call, ops: &DynamicOps, result: &mut ErasedMut<'_>) -> Result<u32> {
        let mut members = self.members();
        ops.each_tensor(result.reborrow(), &mut |label, tensor| {
            let (part, member) = members.next(label);
            let key = PointKey { node: call.node, method: 0, slot: Slot32::Result, member };
            let names = || with_label(vec!["out".to_string()], part, label);
            if part == 0 {
                self.end_lesson(call.lesson, tensor);
            }
            if let Some(new) = self.fire(key, &names, tensor, Replace::Yes)? {
                *tensor = new;
            }
            Ok(())
        })?;
        Ok(members.count())
    }

    /// The same, all tensors at once.
    fn fire_result_together(
        &self,
        call: &Call,
        inputs: &Named,
        ops: &DynamicOps,
        result: &mut ErasedMut<'_>,
    ) -> Result<u32> {
        let names = || vec!["out".to_string()];
        let mut parts = gather(call.node, self.members(), names, |f| ops.each_tensor(result.reborrow(), f))?;
        if let Some(first) = parts.first() {
            self.end_lesson(call.lesson, &first.tensor);
        }
        self.fire_together(call.node, When::After, inputs, &mut parts)?;
        scatter(&parts, |f| ops.each_tensor(result.reborrow(), f))?;
        Ok(parts.len() as u32)
    }

    /// Turns a result into the error that ended the run, if it is over.
    pub(super) fn hand_on(&self, ops: &DynamicOps, result: ErasedMut<'_>) {
        if let Some(error) = self.ended() {
            ops.fail(result, error);
        }
    }
}
