//! A copy that comes last in something longer.

use candle_core::{DType, Result, Tensor};

use super::node::attach;

/// `whole`, which ends with `part` along one dimension, with the gradients of `part` and of what comes
/// before it. That is `before`, or where there is none, something constant. None where `whole` is not
/// made of them.
pub(crate) fn tail_rule(before: Option<&Tensor>, part: &Tensor, whole: &Tensor) -> Result<Option<Tensor>> {
    let differ = |(_, (part, whole)): &(usize, (&usize, &usize))| part != whole;
    let mut dims = part.dims().iter().zip(whole.dims()).enumerate().filter(differ);
    let (dim, start) = match (dims.next(), dims.next()) {
        _ if part.rank() != whole.rank() => return Ok(None),
        (None, _) => (0, 0),
        (Some((dim, (part, whole))), None) if part < whole => (dim, whole - part),
        _ => return Ok(None),
    };
    let Some(size) = part.dims().get(dim).copied() else { return Ok(None) };
    if !is_equal(&whole.narrow(dim, start, size)?, part)? {
        return Ok(None);
    }
    let value = whole.force_contiguous()?;
    let before = before.filter(|_| start > 0);
    let end = move |grad: &Tensor| grad.narrow(dim, start, size)?.contiguous();
    let Some(before) = before else {
        let new = attach("cache", value, [part], move |step| Ok([Some(end(step.grad)?)]))?;
        return Ok(Some(new));
    };
    if !is_equal(&whole.narrow(dim, 0, start)?, before)? {
        return Ok(None);
    }
    let new = attach("cache", value, [before, part], move |step| {
        let front = step.when(0, || step.grad.narrow(dim, 0, start)?.contiguous())?;
        Ok([front, step.when(1, || end(step.grad))?])
    })?;
    Ok(Some(new))
}

fn is_equal(a: &Tensor, b: &Tensor) -> Result<bool> {
    if a.dims() != b.dims() || a.dtype() != b.dtype() {
        return Ok(false);
    }
    let equal = a.detach().eq(&b.detach())?.to_dtype(DType::F32)?;
    Ok(equal.min_all()?.to_scalar::<f32>()? == 1.)
}
