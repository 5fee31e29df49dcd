//! Sums, products and choices of which one side has no gradient: candle computes and keeps one for it.

use candle_core::{Result, Tensor};

use super::node::attach;
use super::shape::sum_to;

/// What is done with two tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
}

/// The value of an operation, with a gradient for the side that has one; none where both sides have
/// one, and candle's own result does what is needed.
pub(crate) fn binary_rule(op: Binary, a: &Tensor, b: &Tensor, value: Tensor) -> Result<Option<Tensor>> {
    let (left, right) = (a.detach(), b.detach());
    match (a.track_op(), b.track_op()) {
        (true, false) => attach("arithmetic", value, [a], move |step| {
            let grad = match op {
                Binary::Add | Binary::Sub => step.grad.clone(),
                Binary::Mul => step.grad.broadcast_mul(&right)?,
                Binary::Div => step.grad.broadcast_div(&right)?,
            };
            Ok([Some(sum_to(&grad, left.shape())?)])
        })
        .map(Some),
        (false, true) => attach("arithmetic", value, [b], move |step| {
            let grad = match op {
                Binary::Add => step.grad.clone(),
                Binary::Sub => step.grad.neg()?,
                Binary::Mul => step.grad.broadcast_mul(&left)?,
                // d(a / b) = - (a / b) / b
                Binary::Div => step.grad.broadcast_mul(&step.value)?.broadcast_div(&right)?.neg()?,
            };
            Ok([Some(sum_to(&grad, right.shape())?)])
        })
        .map(Some),
        _ => Ok(None),
    }
}

/// `condition.where_cond(on_true, on_false)`, likewise.
pub(crate) fn where_rule(
    condition: &Tensor,
    on_true: &Tensor,
    on_false: &Tensor,
    value: Tensor,
) -> Result<Option<Tensor>> {
    let condition = condition.detach();
    match (on_true.track_op(), on_false.track_op()) {
        (true, false) => attach("where_cond", value, [on_true], move |step| {
            Ok([Some(condition.where_cond(step.grad, &step.grad.zeros_like()?)?)])
        })
        .map(Some),
        (false, true) => attach("where_cond", value, [on_false], move |step| {
            Ok([Some(condition.where_cond(&step.grad.zeros_like()?, step.grad)?)])
        })
        .map(Some),
        _ => Ok(None),
    }
}
