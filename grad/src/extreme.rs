//! The largest and the smallest.

use candle_core::{Result, Tensor};

use super::node::attach;
use super::shape::precise;

/// Over what it is taken.
#[derive(Clone, Copy)]
pub(crate) enum Over {
    Everything,
    /// One dimension, which the value has with length 1, or has not.
    Dim(usize),
}

/// Where several are the largest, they share the gradient. Candle gives each of them all of it.
pub(crate) fn extreme_rule(x: &Tensor, over: Over, value: Tensor) -> Result<Tensor> {
    let input = x.detach();
    attach("extreme", value, [x], move |step| {
        let mut dims = input.dims().to_vec();
        match over {
            Over::Everything => dims.fill(1),
            Over::Dim(dim) => dims.iter_mut().skip(dim).take(1).for_each(|length| *length = 1),
        }
        let (value, grad) =
            (step.value.reshape(dims.as_slice())?, precise(step.grad)?.reshape(dims.as_slice())?);
        let among = input.broadcast_eq(&value)?.to_dtype(grad.dtype())?;
        let count = match over {
            Over::Everything => among.sum_all()?.reshape(dims.as_slice())?,
            Over::Dim(dim) => among.sum_keepdim(dim)?,
        };
        // NaN is equal to nothing, and there is nobody to have the gradient.
        let share = (grad / count.maximum(1.)?)?;
        Ok([Some(among.broadcast_mul(&share)?.to_dtype(input.dtype())?)])
    })
}
