//! A copy that comes last in something longer.

use candle_core::{Result, Tensor};

use super::node::attach;

/// `whole` with the gradient of `part`, which is at its end along one dimension; none where it is not.
pub(crate) fn tail_rule(part: &Tensor, whole: &Tensor) -> Result<Option<Tensor>> {
    let differ = |(_, (part, whole)): &(usize, (&usize, &usize))| part != whole;
    let mut dims = part.dims().iter().zip(whole.dims()).enumerate().filter(differ);
    let (dim, start) = match (dims.next(), dims.next()) {
        _ if part.rank() != whole.rank() => return Ok(None),
        (None, _) => (0, 0),
        (Some((dim, (part, whole))), None) if part < whole => (dim, whole - part),
        _ => return Ok(None),
    };
    let Some(size) = part.dims().get(dim).copied() else { return Ok(None) };
    let end = whole.narrow(dim, start, size)?;
    let same =
        end.eq(&part.detach())?.to_dtype(candle_core::DType::F32)?.min_all()?.to_scalar::<f32>()? == 1.;
    if !same {
        return Ok(None);
    }
    let value = whole.force_contiguous()?;
    let new = attach("cache", value, [part], move |step| {
        Ok([Some(step.grad.narrow(dim, start, size)?.contiguous()?)])
    })?;
    Ok(Some(new))
}
