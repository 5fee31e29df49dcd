//! Operations, which may use a parameter.

use candle_core::Tensor;

use super::current;
use super::fire::Replace;
use super::gradient::Operation;
use super::observe::Over;
use super::{OpKind, OpSite, RunState};
use crate::erased::{Erased, ErasedMut};
use crate::point::PointKey;
use crate::tree::NodeId;
use crate::value::DynamicOps;

/// What is watched of an operation that is about to be done. Mostly one parameter: `ONE`, its
/// node, and how often it was used before. Else which of the uses that the run keeps a list of, from where
/// on (the upper half) and how many (the lower).
#[derive(Clone, Copy)]
pub struct Uses(u64);

pub(super) enum Use {
    /// A parameter among the operands, and how often it was used before.
    Parameter(NodeId, u32),
    /// The operation itself, where there is to be a backward pass. It comes first.
    Operation(Box<Operation>),
    /// An operand that is yet to be computed, and may turn out to be a parameter.
    Computed,
    /// The result may be a buffer that is written to later.
    Buffer,
    /// What has been seen to.
    Done,
}

/// An operand that is referred to.
pub struct Behind<T>(pub T);

impl Uses {
    /// None, or nobody listens.
    pub const NONE: Self = Uses(0);

    const ONE: u64 = 1 << 63;

    fn one(node: NodeId, before: u32) -> Self {
        Uses(Self::ONE | u64::from(node) << 32 | u64::from(before))
    }

    /// The parameter, where it is but one.
    fn parameter(self) -> Option<(NodeId, u32)> {
        (self.0 & Self::ONE != 0).then_some((((self.0 & !Self::ONE) >> 32) as NodeId, self.0 as u32))
    }

    fn range(self) -> std::ops::Range<usize> {
        let (from, many) = ((self.0 >> 32) as usize, (self.0 & 0xffff_ffff) as usize);
        from..from + many
    }

    /// An operand that is not a place: what the operation is done with.
    #[inline(always)]
    pub fn operand<T>(self, number: u8, value: T) -> T {
        if self.0 != 0 {
            self.computed(number, Erased::of(&value));
        }
        value
    }

    /// The same, where a reference to it is what the operation is done with. In a field, so that what is expected of the
    /// reference says nothing about the value: it may be a `Box` of what is wanted.
    #[inline(always)]
    pub fn behind<T>(self, number: u8, value: T) -> Behind<T> {
        Behind(self.operand(number, value))
    }

    /// The function that is called.
    #[inline(always)]
    pub fn function<F>(self, function: F) -> F {
        if self.0 != 0 {
            self.with_operation(|operation| operation.function(typeid::of::<F>()));
        }
        function
    }

    #[cold]
    #[inline(never)]
    fn computed(self, number: u8, value: Erased<'_>) {
        self.with_operation(|operation| operation.operand(number, value));
        current(|state| state.computed(self, value));
    }

    #[cold]
    #[inline(never)]
    fn with_operation(self, f: impl FnOnce(&Operation)) {
        if self.parameter().is_some() {
            return;
        }
        current(|state| {
            if let Some(Use::Operation(operation)) = state.stack.uses.borrow().get(self.range().start) {
                f(operation);
            }
        });
    }

    /// The operation's result: what the code goes on with.
    #[inline(always)]
    pub fn result<R>(self, mut result: R) -> R {
        if self.0 != 0 {
            self.used(ErasedMut::of(&mut result));
        }
        result
    }

    #[cold]
    #[inline(never)]
    fn used(self, mut result: ErasedMut<'_>) {
        current(|state| {
            if let Some((node, before)) = self.parameter() {
                return state.used(node, before, result);
            }
            let range = self.range();
            for at in range.clone() {
                let found = state
                    .stack
                    .uses
                    .borrow_mut()
                    .get_mut(at)
                    .map(|found| std::mem::replace(found, Use::Done));
                match found {
                    Some(Use::Parameter(node, before)) => state.used(node, before, result.reborrow()),
                    Some(Use::Operation(operation)) => state.operated(&operation, result.reborrow()),
                    Some(Use::Buffer) => state.note_buffers(result.reborrow()),
                    Some(Use::Computed | Use::Done) | None => {}
                }
            }
            state.stack.uses.borrow_mut().truncate(range.start);
        });
    }
}

/// What is to be watched of an operation? Its operands come with their numbers, and with the names of
/// the fields that they are read from.
#[cold]
#[inline(never)]
pub fn uses(site: &'static OpSite, operands: &[(u8, &'static str, Erased<'_>)]) -> Uses {
    current(|state| state.watch_operation(site, operands)).unwrap_or(Uses::NONE)
}

/// How many of two operands are yet to be computed, and are then shown: see `Uses::operand`.
#[inline]
fn yet_to_come(site: &OpSite, operands: &[(u8, &'static str, Erased<'_>)]) -> usize {
    let is_there = |number: u8| operands.iter().any(|(other, _, _)| *other == number);
    match usize::from(!is_there(0)) + usize::from(!is_there(1)) {
        0 => 0,
        missing if has_two_operands(site) => missing,
        _ => 0,
    }
}

fn has_two_operands(site: &OpSite) -> bool {
    match site.kind {
        OpKind::Operator | OpKind::Function | OpKind::Associated => true,
        OpKind::Method => matches!(
            site.name,
            "add"
                | "broadcast_add"
                | "broadcast_div"
                | "broadcast_matmul"
                | "broadcast_mul"
                | "broadcast_sub"
                | "conv1d"
                | "conv2d"
                | "conv_transpose1d"
                | "conv_transpose2d"
                | "div"
                | "matmul"
                | "mul"
                | "sub"
                | "where_cond"
        ),
    }
}

impl RunState<'_> {
    fn watch_operation(&self, site: &'static OpSite, operands: &[(u8, &'static str, Erased<'_>)]) -> Uses {
        let may_be = |tensor: &Tensor| self.tree.may_be_parameter(tensor.id());
        let found = operands.iter().any(|(_, _, operand)| operand.tensor().is_some_and(may_be));
        let fills = site.fills_a_cache();
        if site.writes_in_place() {
            self.note_write(
                operands.iter().find_map(|(number, _, operand)| (*number == 0).then_some(*operand)),
            );
        }
        // Nearly all operations of nearly all runs.
        let watched = self.watches_operations();
        if !found && !watched && yet_to_come(site, operands) == 0 && !fills {
            return Uses::NONE;
        }
        self.watch_uses(site, operands)
    }

    /// Does anybody want to know of operations as such?
    fn watches_operations(&self) -> bool {
        self.gradient().is_some() || self.hears_operations() != 0
    }

    #[inline(never)]
    fn watch_uses(&self, site: &'static OpSite, operands: &[(u8, &'static str, Erased<'_>)]) -> Uses {
        let operation = self.watches_operations().then(|| Box::new(self.operation(site, operands)));
        let parameter = |(_, hint, operand): &(u8, &'static str, Erased<'_>)| {
            let node = self.tree.parameter_of(operand.tensor()?.id(), || self.caller(), hint)?;
            Some((node, self.counts.so_far(node)))
        };
        let mut parameters = operands.iter().filter_map(parameter);
        let fills = site.fills_a_cache();
        match (parameters.next(), parameters.next(), operation, yet_to_come(site, operands)) {
            (None, _, None, 0) if !fills => Uses::NONE,
            (Some((node, before)), None, None, 0) if !fills => Uses::one(node, before),
            (first, second, operation, computed) => {
                let found = [first, second].into_iter().flatten().chain(parameters);
                self.watch_all(operation, found, computed, fills)
            }
        }
    }

    /// Puts what is watched into the list of the run.
    #[cold]
    fn watch_all(
        &self,
        operation: Option<Box<Operation>>,
        parameters: impl Iterator<Item = (NodeId, u32)>,
        computed: usize,
        fills: bool,
    ) -> Uses {
        let mut uses = self.stack.uses.borrow_mut();
        let from = uses.len();
        uses.extend(operation.map(Use::Operation));
        uses.extend(parameters.map(|(node, before)| Use::Parameter(node, before)));
        uses.extend((0..computed).map(|_| Use::Computed));
        uses.extend(fills.then_some(Use::Buffer));
        Uses((from as u64) << 32 | (uses.len() - from) as u64)
    }

    /// An operand was computed, and may be a parameter: `self.weight()`, or a `narrow` with nothing to do.
    fn computed(&self, of: Uses, value: Erased<'_>) {
        let Some(tensor) = value.tensor() else { return };
        let Some(node) = self.tree.parameter_of(tensor.id(), || self.caller(), "") else { return };
        let before = self.counts.so_far(node);
        let mut uses = self.stack.uses.borrow_mut();
        let Some(own) = uses.get_mut(of.range()) else { return };
        // `self.w.to_dtype(d)?` was seen before, as `self.w`.
        if own.iter().any(|seen| matches!(seen, Use::Parameter(other, _) if *other == node)) {
            return;
        }
        if let Some(free) = own.iter_mut().find(|seen| matches!(seen, Use::Computed)) {
            *free = Use::Parameter(node, before);
        }
    }

    fn used(&self, node: NodeId, before: u32, mut result: ErasedMut<'_>) {
        // Where the parameter was handed to an annotated method, the use inside it has fired.
        if self.counts.so_far(node) != before {
            return;
        }
        // A clone, or a `contiguous` that had nothing to do, is the parameter itself.
        let is_parameter = |tensor: &Tensor| self.tree.is_parameter(tensor.id());
        if let Some(Ok(tensor)) = result.get_mut::<candle_core::Result<Tensor>>() {
            if !is_parameter(tensor) && matches!(self.keeps(PointKey::output(node), tensor), Ok(true)) {
                return;
            }
        }
        let Some(ops) = DynamicOps::for_type(result.type_id()) else { return };
        let mut first = true;
        let fired = ops.each_tensor(result.reborrow(), &mut |_, tensor| {
            let is_first = std::mem::replace(&mut first, false);
            if !is_first || is_parameter(tensor) {
                return Ok(());
            }
            let names = || vec!["out".to_string()];
            if let Some(new) = self.fire(PointKey::output(node), &names, tensor, Replace::Yes)? {
                *tensor = new;
            }
            Ok(())
        });
        if let Err(error) = fired {
            self.fail(error);
        }
        self.over(node, Over::Values);
        self.hand_on(ops, result);
    }
}
