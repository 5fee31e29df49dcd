//! Calls of foreign modules, hooked where they are called.

use std::any::TypeId;

use candle_core::Tensor;

use super::fire::Replace;
use super::frame::with_label;
use super::{Announced, PointKey, RunState, Slot32, UnknownCall};
use crate::error::{ErrorKind, Result};
use crate::raw::{self, active, current, Erased, ErasedMut};
use crate::tree::{Kind, NodeId};
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
}

/// A call that is under way.
#[derive(Clone, Copy)]
pub struct CallToken(Option<Call>);

#[derive(Clone, Copy)]
struct Call {
    node: NodeId,
    /// How many calls of annotated modules were announced before; for a foreign module, none is.
    announced: Option<usize>,
}

impl CallToken {
    /// Nobody listens.
    pub const IDLE: Self = CallToken(None);

    /// The call's result: what the caller goes on with.
    #[inline(always)]
    pub fn after<R>(self, mut result: R) -> R {
        if let Some(call) = self.0 {
            call.after(ErasedMut::of(&mut result));
        }
        result
    }
}

impl Call {
    #[cold]
    fn after(self, result: ErasedMut<'_>) {
        current(|state| state.after(self, result));
    }
}

/// Asks before a call of `module` with `inputs`.
#[cold]
pub fn before_call<R>(site: &'static CallSite, module: Erased<'_>, inputs: &[Erased<'_>]) -> Before<R> {
    debug_assert!(active());
    let computable = typeid::of::<R>() == TypeId::of::<candle_core::Result<Tensor>>();
    let before = current(|state| state.before(site, module, inputs, computable));
    match before {
        Some(Ok(token)) => Before::Call(token),
        Some(Err(result)) => match raw::same_type(result) {
            Some(result) => Before::Done(result),
            None => Before::Call(CallToken::IDLE),
        },
        None => Before::Call(CallToken::IDLE),
    }
}

/// `Err` holds what the call is replaced by.
type Decision = std::result::Result<CallToken, candle_core::Result<Tensor>>;

impl RunState<'_> {
    fn before(
        &self,
        site: &'static CallSite,
        module: Erased<'_>,
        inputs: &[Erased<'_>],
        computable: bool,
    ) -> Decision {
        if let Some(error) = self.ended().filter(|_| computable) {
            return Err(Err(error.into_candle()));
        }
        match self.decide(site, module, inputs, computable) {
            Ok(decision) => decision,
            Err(error) => {
                self.fail(error.clone());
                if computable {
                    Err(Err(error.into_candle()))
                } else {
                    Ok(CallToken::IDLE)
                }
            }
        }
    }

    fn decide(
        &self,
        site: &'static CallSite,
        module: Erased<'_>,
        inputs: &[Erased<'_>],
        computable: bool,
    ) -> Result<Decision> {
        let Some((node, receiver)) = self.tree.module_behind(module, self.caller(), site.field) else {
            if self.scans() {
                let CallSite { method, file, line, .. } = *site;
                self.unknown.borrow_mut().push(UnknownCall { method, file, line });
            }
            return Ok(Ok(CallToken::IDLE));
        };
        if self.tree.node(node).is_some_and(|node| node.kind == Kind::Module) {
            let mut announced = self.announced.borrow_mut();
            announced.push(Announced { node, claimed: false });
            return Ok(Ok(CallToken(Some(Call { node, announced: Some(announced.len() - 1) }))));
        }
        let wants = self.dispatch.at(node);
        if wants.requests.is_empty() && !self.scans() {
            return Ok(Ok(CallToken::IDLE));
        }
        let call = Call { node, announced: None };
        let mut new_input = None;
        if wants.inputs || self.scans() {
            for (number, tensor) in inputs.iter().filter_map(Erased::tensor).enumerate() {
                let reason = "only the first input of a foreign layer can be replaced; hook the value where it is made";
                let can = number == 0
                    && computable
                    && matches!(site.method, "forward" | "forward_t" | "apply" | "apply_t");
                let replace = if can { Replace::Yes } else { Replace::No(reason) };
                let number = number as u32;
                let key = PointKey { node, method: 0, slot: Slot32::Input(number), part: 0 };
                let names = || match number {
                    0 => vec!["in".to_string()],
                    n => vec![format!("in.{n}")],
                };
                new_input = self.fire(key, &names, tensor, replace)?.or(new_input);
                if let Some(error) = self.ended().filter(|_| computable) {
                    return Ok(Err(Err(error.into_candle())));
                }
            }
        }
        if computable && wants.may_skip {
            let input = inputs.iter().find_map(Erased::tensor);
            let shape =
                || layer_shape(module, input?).or_else(|| known_shape(self, node, Some(input?.dims())));
            if let Some(tensor) = self.replaced(node, shape)? {
                return Ok(Err(match self.ended() {
                    Some(error) => Err(error.into_candle()),
                    None => Ok(tensor),
                }));
            }
        }
        let Some(input) = new_input else { return Ok(Ok(CallToken(Some(call)))) };
        let train = inputs.iter().find_map(|input| input.get::<bool>().copied()).unwrap_or(false);
        let Some(mut result) = receiver.call(module, &input, train) else {
            let reason = "this layer cannot be called anew; hook the value where it is made".to_string();
            let point = format!("{}:in", self.tree.name(node));
            return Err(ErrorKind::NotReplaceable { point, reason }.into());
        };
        self.after(call, ErasedMut::of(&mut result));
        Ok(Err(result))
    }

    fn after(&self, call: Call, mut result: ErasedMut<'_>) {
        if let Some(at) = call.announced {
            let mut announced = self.announced.borrow_mut();
            let claimed = announced.get(at).is_none_or(|announced| announced.claimed);
            announced.truncate(at);
            // An annotated method has done everything itself.
            if claimed {
                return;
            }
        }
        let wanted = self.dispatch.at(call.node).output || self.scans();
        let Some(ops) = DynamicOps::for_type(result.type_id()).filter(|_| wanted || self.ended.get()) else {
            return;
        };
        let mut part = 0;
        let fired = ops.each_tensor(result.reborrow(), &mut |label, tensor| {
            let key = PointKey { node: call.node, method: 0, slot: Slot32::Result, part };
            let names = || with_label(vec!["out".to_string()], part, label);
            if let Some(new) = self.fire(key, &names, tensor, Replace::Yes)? {
                *tensor = new;
            }
            part += 1;
            Ok(())
        });
        if let Err(error) = fired {
            self.fail(error);
        }
        self.hand_on(ops, result);
    }

    /// Turns a result into the error that ended the run, if it is over.
    pub(super) fn hand_on(&self, ops: &DynamicOps, result: ErasedMut<'_>) {
        if let Some(error) = self.ended() {
            ops.fail(result, error);
        }
    }
}

/// The shape that the output of a well-known layer has for this input.
fn layer_shape(module: Erased<'_>, input: &Tensor) -> Option<Vec<usize>> {
    let with_last = |last: usize| {
        let mut dims = input.dims().to_vec();
        *dims.last_mut()? = last;
        Some(dims)
    };
    if let Some(linear) = module.get::<candle_nn::Linear>() {
        return with_last(linear.weight().dim(0).ok()?);
    }
    if let Some(embedding) = module.get::<candle_nn::Embedding>() {
        let mut dims = input.dims().to_vec();
        dims.push(embedding.hidden_size());
        return Some(dims);
    }
    let same = module.get::<candle_nn::LayerNorm>().is_some()
        || module.get::<candle_nn::RmsNorm>().is_some()
        || module.get::<candle_nn::GroupNorm>().is_some()
        || module.get::<candle_nn::BatchNorm>().is_some()
        || module.get::<candle_nn::Dropout>().is_some()
        || module.get::<candle_nn::PReLU>().is_some();
    same.then(|| input.dims().to_vec())
}

/// The shape that the output of a module has for an input of this shape, as an earlier run saw it;
/// else, where a patch has the input's own shape, that one, since most modules keep it.
pub(super) fn known_shape(state: &RunState<'_>, node: NodeId, input: Option<&[usize]>) -> Option<Vec<usize>> {
    let input = input?.to_vec();
    let learned = state.learned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(shape) = learned.get(&(node, input.clone())) {
        return Some(shape.clone());
    }
    drop(learned);
    state.patch_shape(node).filter(|shape| *shape == input)
}

impl RunState<'_> {
    fn patch_shape(&self, node: NodeId) -> Option<Vec<usize>> {
        let requests = self.dispatch.at(node).requests.iter().rev();
        requests.filter_map(|id| self.requests.get(*id as usize)).find_map(|request| match &request.action {
            super::Action::Patch(patch) if request.pattern.index().is_none() => Some(patch.dims().to_vec()),
            _ => None,
        })
    }
}
