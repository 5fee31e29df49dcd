//! Candle's operations in annotated code, where there is to be a backward pass.
//!
//! The operation is done as it is written, so that its value is what it always is. Then its result is
//! given the right gradient, if candle has none or a wrong one, or one that costs too much: see
//! [`hookpoint_grad`]. What candle or anybody else does without a gradient is a barrier.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::time::Instant;

use candle_core::{Tensor, D};
use candle_nn::attention::AttnMask;
use hookpoint_grad::cached;
use hookpoint_grad::rule::{self, in_double, rule, Given, OpKind, Operand};

use super::Gradient;
use crate::erased::{Erased, ErasedMut};
use crate::error::Result;
use crate::run::RunState;
use crate::tree::NodeId;
use crate::value::DynamicOps;

/// Where an operation stands in the source, and what it is called there.
#[derive(Debug)]
pub struct OpSite {
    /// The name of the method or function, or the operator.
    pub name: &'static str,
    /// How it is written.
    pub kind: OpKind,
    /// The source file.
    pub file: &'static str,
    /// The line.
    pub line: u32,
}

impl OpSite {
    /// Does it write into the tensor that it is called on?
    pub(in crate::run) fn writes_in_place(&self) -> bool {
        self.kind == OpKind::Method && IN_PLACE.contains(&self.name)
    }

    /// May it put something into a cache of keys and values, and give out all that is in it?
    pub(in crate::run) fn fills_a_cache(&self) -> bool {
        self.kind == OpKind::Method && self.name == "append"
    }
}

/// An operation that is about to be done.
pub(in crate::run) struct Operation {
    site: &'static OpSite,
    given: RefCell<Given>,
    /// Are there operands that could not be looked at?
    hidden: bool,
    /// How much instrumented code had been begun when the last operand was there.
    begun: Cell<usize>,
    function: Cell<Option<TypeId>>,
    /// When it was begun, where a listener wants to know.
    started: Option<Instant>,
}

impl Operation {
    pub fn operand(&self, number: u8, value: Erased<'_>) {
        self.given.borrow_mut().put(number, read(value));
        crate::run::current(|state| {
            if let Some(gradient) = state.gradient() {
                self.begun.set(gradient.begun.get());
            }
        });
    }

    pub fn function(&self, function: TypeId) {
        self.function.set(Some(function));
    }

    pub fn site(&self) -> &'static OpSite {
        self.site
    }

    /// The operands that are tensors, in order.
    pub fn tensors(&self) -> Vec<Tensor> {
        self.given.borrow().tensors()
    }

    pub fn started(&self) -> Option<Instant> {
        self.started
    }

    fn described(&self) -> String {
        format!("`{}` at {}:{}", self.site.name, self.site.file, self.site.line)
    }
}

/// What a cache of keys and values has given in this run.
#[derive(Clone)]
pub(in crate::run) struct Filled {
    /// Whose code has asked it, and where.
    at: (Option<NodeId>, u32),
    keys: Tensor,
    values: Tensor,
}

fn read(value: Erased<'_>) -> Operand {
    if let Some(tensor) = value.tensor() {
        return Operand::Tensor(tensor.clone());
    }
    if value.is_no_tensor() {
        return Operand::Nothing;
    }
    let count = value.get::<usize>().copied();
    let count = count.or_else(|| value.get::<i32>().and_then(|count| usize::try_from(*count).ok()));
    if let Some(count) = count {
        return Operand::Count(count);
    }
    let pair = value.get::<(usize, usize)>().copied();
    let small = || value.get::<(i32, i32)>().map(|(a, b)| (*a as usize, *b as usize));
    if let Some((a, b)) = pair.or_else(small) {
        return Operand::Pair(a, b);
    }
    let number = value.get::<f64>().copied().or_else(|| value.get::<f32>().map(|number| f64::from(*number)));
    if let Some(number) = number {
        return Operand::Number(number);
    }
    if let Some(number) = value.get::<Option<f32>>() {
        return Operand::Number(f64::from(number.unwrap_or(0.)));
    }
    if let Some(mask) = value.get::<AttnMask>() {
        return Operand::Mask(mask.clone());
    }
    if let Some(flag) = value.get::<bool>() {
        return Operand::Flag(*flag);
    }
    match value.get::<D>() {
        Some(dim) => Operand::Dim(*dim),
        None => Operand::Unknown,
    }
}

fn each_tensor_of(value: Erased<'_>, f: &mut dyn FnMut(&Tensor)) {
    // What cannot be looked at holds nothing that was seen.
    let _ = crate::run::call_hooks::look(&value, &mut |_, _, tensor| f(tensor));
}

/// Does this hold tensors that nobody can look at? They are looked at in a copy, and not all types can be
/// copied.
fn is_hidden(value: Erased<'_>) -> bool {
    DynamicOps::for_type(value.type_id()).is_some_and(|ops| ops.has_tensors() && ops.copy(value).is_none())
}

/// Methods of a tensor whose result has nothing to do with its numbers.
const CONSTANT: [&str; 4] = ["zeros_like", "ones_like", "rand_like", "randn_like"];

/// Methods of candle's that use a part of what they are given: of the state of an LSTM what it shows, and
/// not what it remembers.
const SELECTS: [&str; 1] = ["states_to_tensor"];

/// Methods that take numbers out of the graph. Of the first, the result can be watched.
const STOPS: [&str; 6] = ["detach", "to_vec0", "to_vec1", "to_vec2", "to_vec3", "to_scalar"];

/// Methods that write into a tensor, of which candle knows no gradient.
const IN_PLACE: [&str; 8] = [
    "const_set",
    "inplace_op1",
    "inplace_op2",
    "inplace_op3",
    "scatter_add_set",
    "scatter_set",
    "slice_set",
    "zero_set",
];

impl RunState<'_> {
    pub(in crate::run) fn operation(
        &self,
        site: &'static OpSite,
        operands: &[(u8, &'static str, Erased<'_>)],
    ) -> Operation {
        if let Some(gradient) = self.gradient() {
            gradient.begin();
        }
        let (mut given, mut hidden) = (Given::default(), false);
        for (number, _, operand) in operands {
            match read(*operand) {
                // A struct of tensors, or a list.
                Operand::Unknown => {
                    hidden |= is_hidden(*operand);
                    each_tensor_of(*operand, &mut |tensor| {
                        given.put(*number, Operand::Tensor(tensor.clone()));
                    });
                }
                operand => given.put(*number, operand),
            }
        }
        Operation {
            site,
            given: RefCell::new(given),
            hidden,
            begun: Cell::new(self.gradient().map_or(0, |gradient| gradient.begun.get())),
            function: Cell::new(None),
            started: (self.hears_operations() != 0).then(Instant::now),
        }
    }

    /// An operation is done.
    pub(in crate::run) fn operated(&self, operation: &Operation, mut result: ErasedMut<'_>) {
        let differentiated = match self.gradient() {
            Some(gradient) => gradient.differentiated(self.caller(), operation, result.reborrow()),
            None => Ok(()),
        };
        if let Err(error) = differentiated.and_then(|()| self.tell_operation(operation, result.reborrow())) {
            self.fail(error);
        }
        if let Some(ops) = DynamicOps::for_type(result.type_id()) {
            self.hand_on(ops, result);
        }
    }
}

/// Operations whose gradient needs none of what they are given.
const IS_SUM: [&str; 6] = ["+", "-", "add", "sub", "broadcast_add", "broadcast_sub"];

impl Gradient {
    /// Is this the memory of something that a gradient will be computed from?
    fn has_used(&self, written: &Tensor) -> bool {
        let address = |tensor: &Tensor| std::ptr::from_ref(&*tensor.storage_and_layout().0) as usize;
        let written = address(written);
        self.used.borrow().iter().any(|used| address(used) == written)
    }

    /// Gives the result of an operation the right gradient, or sees to it that its lack is noticed.
    fn differentiated(
        &self,
        caller: Option<NodeId>,
        operation: &Operation,
        mut result: ErasedMut<'_>,
    ) -> Result<()> {
        let given = operation.given.borrow();
        let name = operation.site.name;
        if let Some(Err(_)) = result.get_mut::<candle_core::Result<Tensor>>() {
            let made = operation.function.get().and_then(|function| in_double(name, function, &given));
            if let (Some(value), Some(made)) = (result.get_mut::<candle_core::Result<Tensor>>(), made) {
                *value = made;
                return Ok(());
            }
        }
        // What is called on something that could not be seen may be wrong all the same.
        let unseen = operation.site.kind == OpKind::Method && !given.has(0) && rule::is_wrong(name);
        // What a cache gives may have a gradient from before.
        let may_append = name == "append" && !self.filled.borrow().is_empty();
        if IN_PLACE.contains(&name) && given.tensor(0).is_some_and(|written| self.has_used(written)) {
            let reason = "which overwrites what an operation before was given and needs for its gradient (write into a copy: \
                          `.copy()`)";
            let operations = vec![format!("{}, {reason}", operation.described())];
            return Err(crate::error::ErrorKind::GradientLost { operations }.into());
        }
        if given.tracked().next().is_none() && !unseen && !may_append && !operation.hidden {
            return Ok(());
        }
        if !IS_SUM.contains(&name) && !IN_PLACE.contains(&name) {
            self.used.borrow_mut().extend(given.tensors().into_iter().filter(|tensor| !tensor.track_op()));
        }
        if STOPS.contains(&name) || IN_PLACE.contains(&name) {
            return self.leaves_the_graph(operation, &given, result);
        }
        if let Some(Ok(value)) = result.get_mut::<candle_core::Result<Tensor>>() {
            match rule(operation.site.kind, name, operation.function.get(), &given, value)? {
                rule::Found::New(new) => {
                    *value = new;
                    return Ok(());
                }
                rule::Found::Right => return Ok(()),
                rule::Found::Wrong => {
                    let reason = "whose gradient in candle is wrong and whose operands could not be seen";
                    return self.stop(&format!("{}, {reason}", operation.described()), &given, result);
                }
                rule::Found::Nothing => {}
            }
        }
        if name == "append" && self.appended(caller, operation, &given, result.reborrow())? {
            return Ok(());
        }
        self.check_passes(operation, &given, result)
    }

    /// The model reads numbers, or writes them somewhere, or lets go of their gradient.
    fn leaves_the_graph(&self, operation: &Operation, given: &Given, result: ErasedMut<'_>) -> Result<()> {
        if operation.site.name == "detach" {
            // Should a gradient come to what is detached, it lacks a part upstream, though the model means it so.
            return self.stop(&operation.described(), given, result);
        }
        if IN_PLACE.contains(&operation.site.name) && given.tracked().any(|t| self.wants_gradient_of(t)) {
            let operations = vec![operation.described()];
            return Err(crate::error::ErrorKind::GradientLost { operations }.into());
        }
        self.note_lost(operation.described());
        // Numbers may come back, and nobody can follow them.
        if given.tracked().any(|tensor| self.wants_gradient_of(tensor)) {
            self.taps.note_read(format!("{}, which takes numbers out of the graph", operation.described()));
        }
        Ok(())
    }

    /// Caches of keys and values copy what they are given, and give back all they have: what was given, and what
    /// the same cache gave before in this run, or what it held before that.
    fn appended(
        &self,
        caller: Option<NodeId>,
        operation: &Operation,
        given: &Given,
        mut result: ErasedMut<'_>,
    ) -> Result<bool> {
        let Some(Ok((keys, values))) = result.get_mut::<candle_core::Result<(Tensor, Tensor)>>() else {
            return Ok(false);
        };
        let (Some(key), Some(value)) = (given.tensor(1), given.tensor(2)) else { return Ok(false) };
        let at = (caller, operation.site.line);
        if keys.track_op() || values.track_op() {
            // Not copied: what is longer than a cache is given back as it is, and held all the same.
            let filled = Filled { at, keys: keys.clone(), values: values.clone() };
            self.filled.borrow_mut().push(filled);
            return Ok(false);
        }
        // The same cache may be asked in several places, and several caches in one: values tell.
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            self.filled.borrow().iter().rev().cloned().partition(|filled| filled.at == at);
        let is_new = here.is_empty();
        let before = here.iter().chain(&elsewhere).map(Some).chain(is_new.then_some(None));
        for before in before {
            let before = before.map(|before| [&before.keys, &before.values]);
            if let Some([new_keys, new_values]) = cached(before, [key, value], [&*keys, &*values])? {
                let filled = Filled { at, keys: new_keys.clone(), values: new_values.clone() };
                self.filled.borrow_mut().push(filled);
                (*keys, *values) = (new_keys, new_values);
                return Ok(true);
            }
        }
        let held =
            here.iter().any(|held| [&held.keys, &held.values].iter().any(|t| self.wants_gradient_of(t)));
        match DynamicOps::for_type(result.type_id()).filter(|_| held) {
            Some(ops) => self.barrier(&operation.described(), ops, result).map(|()| true),
            None => Ok(false),
        }
    }

    /// Any other operation: what it was given and wants a gradient must have left a trace in the result.
    fn check_passes(&self, operation: &Operation, given: &Given, mut result: ErasedMut<'_>) -> Result<()> {
        let Some(ops) = DynamicOps::for_type(result.type_id()).filter(|ops| ops.has_tensors()) else {
            return Ok(());
        };
        let OpSite { name, kind, .. } = operation.site;
        // Instrumented code has looked at its operations itself.
        if CONSTANT.contains(name) || SELECTS.contains(name) || operation.begun.get() != self.begun.get() {
            return Ok(());
        }
        let (mut floats, mut barred, mut tracked) = (false, false, Vec::new());
        ops.each_tensor(result.reborrow(), &mut |_, output| {
            floats |= output.dtype().is_float();
            barred |= self.barred.borrow().contains(&output.id());
            tracked.extend(Some(output.clone()).filter(|output| output.track_op()));
            Ok(())
        })?;
        if !floats || barred {
            return Ok(());
        }
        if operation.hidden {
            let reason = "whose arguments could not be looked at (`#[derive(Clone)]` on their types helps)";
            return self.barrier(&format!("{}, {reason}", operation.described()), ops, result);
        }
        // Candle's own operations lose all or nothing.
        let of_candle = *kind != OpKind::Function && given.tensor(0).is_some();
        if tracked.is_empty() {
            return self.stop(&operation.described(), given, result);
        }
        if of_candle {
            return Ok(());
        }
        let reached: std::collections::HashSet<_> =
            tracked.iter().flat_map(|output| output.sorted_nodes()).map(Tensor::id).collect();
        let lost = given.tracked().any(|operand| !reached.contains(&operand.id()));
        if lost {
            let partly = format!("{}, which gives some of its arguments none", operation.described());
            return self.stop(&partly, given, result);
        }
        Ok(())
    }

    fn stop(&self, operation: &str, given: &Given, mut result: ErasedMut<'_>) -> Result<()> {
        let Some(ops) = DynamicOps::for_type(result.type_id()) else { return Ok(()) };
        let mut wanted = given.tracked().any(|operand| self.wants_gradient_of(operand));
        ops.each_tensor(result.reborrow(), &mut |_, output| {
            wanted |= self.wants_gradient_of(output);
            Ok(())
        })?;
        if wanted {
            self.barrier(operation, ops, result)?;
        }
        Ok(())
    }
}
