//! Calls of foreign modules that are more than kept: shown, replaced, answered, made anew.

use candle_core::Tensor;

use super::anew::{CallAgain, NOT_ANEW};
use super::call::{calls_with_one_tensor, Asked, Call, CallToken, Maker, Token};
use super::call_hooks::{gather, named, scatter, Named, Part, When};
use super::dispatch::BeforeCall;
use super::fire::Replace;
use super::listeners::Said;
use super::observe::Over;
use super::result::with_label;
use super::RunState;
use crate::erased::{Erased, ErasedMut, Receiver};
use crate::error::{ErrorKind, Result};
use crate::point::{Member, PointKey, Slot32};
use crate::tree::{known_layer, Kind, NodeId};
use crate::value::DynamicOps;

const MAY_BE_ANOTHER: &str = "its type may hold a lifetime, and the model, which is borrowed exclusively or has \
                              changed, does not show that it still has this module; annotate the type, or hook the \
                              value where it is made";

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
fn gathered_inputs(
    node: NodeId,
    inputs: &[Erased<'_>],
    replace: impl Fn(usize) -> Replace<'static>,
) -> Vec<Part> {
    let part = |(number, tensor): (usize, &Tensor)| {
        let (slot, replace) = (Slot32::Input(number as u32), replace(number));
        let key = PointKey { node, method: 0, slot, member: Member::FIRST };
        Part::new(key, vec![input_name(number as u32)], tensor, replace)
    };
    inputs.iter().filter_map(Erased::tensor).enumerate().map(part).collect()
}

/// What a call is replaced by, if it is.
pub(super) type Done = Option<candle_core::Result<Tensor>>;

impl RunState<'_> {
    pub(super) fn before(&self, asked: &Asked<'_>, done: &mut Done) -> CallToken {
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
            if module.tensor().is_none() && !self.tree.is_nobody(module) {
                self.observed(|observer| observer.called(site, false));
            }
            // One of candle's layers that is no part of the model.
            if let Some(x) = asked.inputs.first().and_then(Erased::tensor).filter(|_| self.makes_anew(asked))
            {
                *done = known_layer(module).and_then(|layer| layer.with_gradient(x, trains(asked.inputs)));
                asked.made.set(done.is_some());
            }
            return CallToken::IDLE;
        };
        self.observed(|observer| observer.called(site, true));
        if self.tree.node(node).is_some_and(|node| node.kind == Kind::Module) {
            let (address, type_id) = receiver.place_of(module);
            let at = self.stack.announce(node, address, type_id);
            if !self.dispatch.at(node).call_hooks {
                return CallToken(Token::Announced(node, at));
            }
            // In case that its code is not annotated.
            let parts = gathered_inputs(node, asked.inputs, |_| Replace::Yes);
            let called_with = Some(self.stack.begin_call(named(&parts, "in")));
            return Call { announced: Some(at), called_with, ..Call::of(node) }.into();
        }
        self.note_layer(node, asked.inputs);
        if self.listeners.follows.calls {
            if let Some(token) = self.before_observed(asked, node, done) {
                return token;
            }
        }
        let wants = self.dispatch.at(node);
        if wants.requests.is_empty() && !wants.heard && !self.listeners.hears_every_call() {
            return match self.minds_buffers_of(node) {
                true => Call::of(node).into(),
                false => CallToken::IDLE,
            };
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
    fn before_observed(&self, asked: &Asked<'_>, node: NodeId, done: &mut Done) -> Option<CallToken> {
        if !self.may_be_left_out(asked, node) {
            return None;
        }
        let answered =
            self.observers_answer_leaf(node, asked.inputs).inspect_err(|error| self.fail(error.clone()));
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

    /// Does before a call of a foreign module what somebody wants there: shows its inputs, has it answered or left out, or
    /// makes it anew. In `done` is the result, where the source need not make the call.
    #[cold]
    fn decide(
        &self,
        asked: &Asked<'_>,
        node: NodeId,
        receiver: &Receiver,
        done: &mut Done,
    ) -> Result<CallToken> {
        let wants = self.dispatch.at(node);
        let first = asked.inputs.iter().find_map(Erased::tensor);
        let mut call = self.begin_leaf(node, asked.inputs, first);
        let mut new_input = None;
        if wants.inputs || self.listeners.hears_every_point() {
            new_input = self.show_inputs(asked, asked.maker(receiver.module(asked.module)), &mut call)?;
            if let Some(error) = self.ended().filter(|_| (asked.computable)()) {
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
            let facts = || known_layer(receiver.module(asked.module)?)?.outline(first?);
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
        self.make(asked, receiver, call, new_input, done)
    }

    /// What is noted of a call as it begins.
    fn begin_leaf(&self, node: NodeId, inputs: &[Erased<'_>], first: Option<&Tensor>) -> Call {
        // What a layer with a known width gives is known anyway.
        let is_lesson = self.is_lesson(self.dispatch.at(node))
            && self.tree.node(node).is_some_and(|node| node.width.is_none());
        let effects = self.effects.count.get();
        let lesson = first.filter(|_| is_lesson).and_then(|input| self.begin_lesson(node, input, effects));
        let (tracked, number) = (self.tracked_inputs(inputs), self.count_call(node));
        self.in_leaf_call(number);
        Call { lesson, tracked, number, ..Call::of(node) }
    }

    /// Shows what a foreign module is called with; gives what the first input is replaced by, if it is.
    fn show_inputs(&self, asked: &Asked<'_>, maker: Maker, call: &mut Call) -> Result<Option<Tensor>> {
        let (node, mut new_input) = (call.node, None);
        let can_replace = |number: usize| {
            if number == 0 && maker != Maker::Nobody {
                Replace::Yes
            } else {
                Replace::No(NOT_ANEW)
            }
        };
        if self.dispatch.at(node).call_hooks {
            let mut parts = gathered_inputs(node, asked.inputs, can_replace);
            self.fire_call(node, When::Before, &Named::default(), &mut parts)?;
            new_input = parts.first().filter(|part| part.is_new).map(|part| part.tensor.clone());
            call.called_with = Some(self.stack.begin_call(named(&parts, "in")));
        } else {
            for (number, tensor) in asked.inputs.iter().filter_map(Erased::tensor).enumerate() {
                let replace = can_replace(number);
                let number = number as u32;
                let key = PointKey { node, method: 0, slot: Slot32::Input(number), member: Member::FIRST };
                let names = || vec![input_name(number)];
                new_input = self.fire(key, &names, tensor, replace)?.or(new_input);
            }
        }
        self.over(node, Over::Values);
        self.over(node, Over::Inputs);
        Ok(new_input)
    }

    /// Makes a call with another input than in the source, or so that its result has the right gradient. Any other is made
    /// by the source.
    fn make(
        &self,
        asked: &Asked<'_>,
        receiver: &Receiver,
        mut call: Call,
        new_input: Option<Tensor>,
        done: &mut Done,
    ) -> Result<CallToken> {
        let Asked { module, inputs, .. } = *asked;
        let (node, layer) = (call.node, receiver.module(module));
        let maker = asked.maker(layer);
        let first = inputs.iter().find_map(Erased::tensor);
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
        if self.minds_buffers_of(call.node) {
            self.note_buffers(result.reborrow());
        }
        if self.listeners.follows.calls {
            let value = result.get_mut::<candle_core::Result<Tensor>>();
            let (value, depth) = (value.and_then(|value| value.as_ref().ok()), self.stack.depth());
            self.observed(|observer| observer.gave(self, depth, call.node, value));
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
            Some(inputs) => self.fire_result_of_call(&call, &inputs, ops, &mut result),
            None => self.fire_result(&call, ops, &mut result),
        });
        if !ops.is_one_tensor() {
            self.fire_any(key(Member::WHOLE), &output, &mut || ops.copy(result.shared()));
        }
        let parts = fired.unwrap_or_else(|error| {
            self.fail(error);
            0
        });
        self.over(call.node, Over::Values);
        if parts > 0 {
            self.over(call.node, Over::Method { method: 0, is_call: true });
        }
        self.hand_on(ops, result);
    }

    /// Fires what a call gave, tensor by tensor, and says how many there were.
    fn fire_result(&self, call: &Call, ops: &DynamicOps, result: &mut ErasedMut<'_>) -> Result<u32> {
        let key = |member| PointKey { node: call.node, method: 0, slot: Slot32::Result, member };
        let names = |part: u32, label: &str| with_label(vec!["out".to_string()], part, label);
        let first = |part: u32, tensor: &Tensor| self.end_lesson(call.lesson.filter(|_| part == 0), tensor);
        self.fire_each(&key, &names, &first, |f| ops.each_tensor(result.reborrow(), f))
    }

    /// The same, all tensors at once.
    fn fire_result_of_call(
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
        self.fire_call(call.node, When::After, inputs, &mut parts)?;
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
