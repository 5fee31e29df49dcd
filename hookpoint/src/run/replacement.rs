//! What may take the place of a value: of its shape, and brought to its dtype, device and layout.

use candle_core::{DType, Device, Tensor};

use crate::convert::converted;
use crate::error::{ErrorKind, Result};

/// What a replacement has to be like.
pub(super) struct Like<'a> {
    pub dims: &'a [usize],
    pub dtype: DType,
    pub device: &'a Device,
}

impl<'a> Like<'a> {
    pub fn of(tensor: &'a Tensor) -> Self {
        Self { dims: tensor.dims(), dtype: tensor.dtype(), device: tensor.device() }
    }
}

/// May a replacement be smaller than what it replaces, and be repeated?
#[derive(PartialEq, Clone, Copy)]
pub(super) enum Broadcast {
    Yes,
    No,
}

/// Makes `new` a replacement, or says why it cannot be one. `what` is what the user calls it.
pub(super) fn fit(
    what: &str,
    point: &str,
    new: &Tensor,
    like: &Like<'_>,
    broadcast: Broadcast,
) -> Result<Tensor> {
    check_shape(what, point, new.dims(), like.dims, broadcast)?;
    if new.dtype() != like.dtype && !(new.dtype().is_float() && like.dtype.is_float()) {
        return Err(ErrorKind::DType {
            point: point.to_string(),
            what: what.to_string(),
            expected: like.dtype.as_str().to_string(),
            found: new.dtype().as_str().to_string(),
        }
        .into());
    }
    let new = converted(what, point, &new.to_device(like.device)?, like.dtype)?;
    Ok(if new.dims() == like.dims { new } else { new.broadcast_as(like.dims)? })
}

fn check_shape(
    what: &str,
    point: &str,
    found: &[usize],
    expected: &[usize],
    broadcast: Broadcast,
) -> Result<()> {
    let broadcasts = || {
        let mut pairs = found.iter().rev().zip(expected.iter().rev());
        found.len() <= expected.len() && pairs.all(|(found, expected)| found == expected || *found == 1)
    };
    if found == expected || (broadcast == Broadcast::Yes && broadcasts()) {
        return Ok(());
    }
    let remedy = match broadcast {
        Broadcast::Yes => "give a tensor of that shape, or one that broadcasts to it",
        Broadcast::No => {
            "give a tensor of exactly that shape; to change a part of the value, add an index, as in `path[:, -1]`"
        }
    };
    Err(ErrorKind::Shape {
        point: point.to_string(),
        what: what.to_string(),
        expected: expected.to_vec(),
        found: found.to_vec(),
        remedy: remedy.to_string(),
    }
    .into())
}

/// `new` in the memory layout that the value it replaces has.
///
/// Candle takes other paths for contiguous tensors than for others, and they differ in the last bits.
/// With the layout kept, a patch with the value that was there anyway changes nothing at all.
pub(super) fn laid_out(new: Tensor, stride: &[usize]) -> Result<Tensor> {
    if new.elem_count() == 0 || same_layout(&new, stride) {
        return Ok(new);
    }
    let dims = new.dims().to_vec();
    let of = |list: &[usize], dim: usize| list.get(dim).copied().unwrap_or(1);
    let (order, back) = memory_order(&dims, stride);
    let mut laid = new.permute(order.as_slice())?;
    // A dimension that in memory goes on behind what the value shows of it is padded to that size.
    let mut unit = 1;
    for (place, dim) in order.iter().enumerate().rev().filter(|(_, dim)| of(&dims, **dim) > 1) {
        let outside = place.checked_sub(1).and_then(|place| order.get(place)).copied();
        let outside = outside.filter(|outside| of(&dims, *outside) > 1);
        let whole = outside.map_or(of(&dims, *dim), |outside| of(stride, outside) / unit);
        if of(stride, *dim) != unit || whole < of(&dims, *dim) {
            // Repeated or stepped over: no layout that a copy could have.
            return Ok(new.contiguous()?);
        }
        laid = laid.pad_with_zeros(place, 0, whole - of(&dims, *dim))?;
        unit *= whole;
    }
    laid = laid.contiguous()?;
    for (place, dim) in order.iter().enumerate() {
        laid = laid.narrow(place, 0, of(&dims, *dim))?;
    }
    Ok(laid.permute(back)?)
}

/// The dimensions from the outermost in memory to the innermost, those of size 1 first: they are nowhere.
/// And the order that undoes this one.
pub(super) fn memory_order(dims: &[usize], stride: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let of = |list: &[usize], dim: usize| list.get(dim).copied().unwrap_or(1);
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|dim| (of(dims, *dim) > 1, std::cmp::Reverse(of(stride, *dim))));
    let mut back = vec![0; order.len()];
    for (place, dim) in order.iter().enumerate() {
        if let Some(back) = back.get_mut(*dim) {
            *back = place;
        }
    }
    (order, back)
}

/// Do the strides agree in every dimension in which there is a step to take?
fn same_layout(tensor: &Tensor, stride: &[usize]) -> bool {
    let strides = tensor.stride().iter().zip(stride);
    tensor.dims().iter().zip(strides).all(|(dim, (own, other))| *dim < 2 || own == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(dims: &[usize]) -> Tensor {
        let count = dims.iter().product::<usize>() as f32;
        Tensor::arange(0., count, &Device::Cpu).unwrap().reshape(dims).unwrap()
    }

    fn assert_laid_out_like(view: &Tensor) {
        let copy = view.force_contiguous().unwrap();
        let laid = laid_out(copy.clone(), view.stride()).unwrap();
        assert!(same_layout(&laid, view.stride()), "{:?} is not {:?}", laid.stride(), view.stride());
        assert_eq!(laid.is_contiguous(), view.is_contiguous());
        assert_eq!(laid.flatten_all().unwrap().to_vec1::<f32>().unwrap(), {
            copy.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        });
    }

    #[test]
    fn layouts_of_views_are_restored() {
        let x = numbers(&[2, 3, 8]);
        assert_laid_out_like(&x);
        assert_laid_out_like(&x.transpose(1, 2).unwrap());
        assert_laid_out_like(&x.permute((2, 0, 1)).unwrap());
        assert_laid_out_like(&x.narrow(2, 4, 4).unwrap());
        assert_laid_out_like(&x.narrow(1, 1, 2).unwrap());
        assert_laid_out_like(&x.narrow(1, 2, 1).unwrap());
        assert_laid_out_like(&x.narrow(1, 1, 2).unwrap().narrow(2, 0, 3).unwrap().transpose(0, 2).unwrap());
        assert_laid_out_like(&numbers(&[4, 1, 6]).transpose(0, 1).unwrap().narrow(2, 1, 2).unwrap());
    }

    #[test]
    fn a_repeated_value_is_replaced_by_a_contiguous_one() {
        let repeated = numbers(&[1, 4]).broadcast_as((3, 4)).unwrap();
        let laid = laid_out(numbers(&[3, 4]), repeated.stride()).unwrap();
        assert!(laid.is_contiguous());
    }
}
