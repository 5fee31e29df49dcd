//! Taking a part out of a tensor and putting another one in.
//!
//! Everything here is made of `narrow`, `cat` and `index_select`: they are cheap, differentiable, and
//! work for every dtype on every device.

use candle_core::{Result, Tensor};

/// What is taken of one dimension: the places `start`, `start + step`, .., `len` of them, all of which
/// exist. Taking as many places as there are is taking the whole dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub(super) start: usize,
    /// At least 1.
    pub(super) step: usize,
    pub(super) len: usize,
    /// Whether the dimension goes away, as it does for an int; `len` is 1 then.
    pub(super) dropped: bool,
}

impl Pick {
    /// The whole of a dimension of this size.
    pub(super) fn whole(size: usize) -> Self {
        Self { start: 0, step: 1, len: size, dropped: false }
    }

    /// The places picked along a dimension; a view if they lie side by side.
    fn take(&self, tensor: &Tensor, dim: usize) -> Result<Tensor> {
        if self.step == 1 {
            return tensor.narrow(dim, self.start, self.len);
        }
        let places = (0..self.len).map(|n| (self.start + n * self.step) as i64).collect::<Vec<_>>();
        tensor.contiguous()?.index_select(&Tensor::new(places, tensor.device())?, dim)
    }

    /// `old` (`[outer, size, inner]`) with the places picked replaced by `new` (`[outer, len, inner]`).
    fn put(&self, old: &Tensor, new: &Tensor) -> Result<Tensor> {
        let size = old.dim(1)?;
        if self.step == 1 {
            let end = self.start + self.len;
            let (before, after) = (old.narrow(1, 0, self.start)?, old.narrow(1, end, size - end)?);
            let pieces = [&before, new, &after];
            let pieces: Vec<&Tensor> = pieces.into_iter().filter(|piece| piece.elem_count() > 0).collect();
            return Tensor::cat(&pieces, 1);
        }
        // The new places come behind the old ones, and each is then taken from where it is.
        let mut places: Vec<i64> = (0..size as i64).collect();
        for (n, place) in places.iter_mut().skip(self.start).step_by(self.step).take(self.len).enumerate() {
            *place = (size + n) as i64;
        }
        Tensor::cat(&[old, new], 1)?.index_select(&Tensor::new(places, old.device())?, 1)
    }
}

/// The shape of what the picks select; there is one pick for each dimension.
pub(super) fn selected_shape(picks: &[Pick]) -> Vec<usize> {
    picks.iter().filter(|pick| !pick.dropped).map(|pick| pick.len).collect()
}

/// The part of the tensor that the picks select.
pub(super) fn read(tensor: &Tensor, picks: &[Pick]) -> Result<Tensor> {
    if tensor.elem_count() == 0 {
        // A view of nothing that begins at some offset would make candle panic when it is read.
        return Tensor::zeros(selected_shape(picks), tensor.dtype(), tensor.device());
    }
    let mut part = tensor.clone();
    // Views come first, so that the copies are of less.
    for by_view in [true, false] {
        for (dim, pick) in picks.iter().enumerate().filter(|(_, pick)| (pick.step == 1) == by_view) {
            part = pick.take(&part, dim)?;
        }
    }
    for (dim, _) in picks.iter().enumerate().rev().filter(|(_, pick)| pick.dropped) {
        part = part.squeeze(dim)?;
    }
    Ok(part)
}

/// A new contiguous tensor: `tensor` with what the picks select replaced by `part`, which has the
/// selected shape.
pub(super) fn write(tensor: &Tensor, picks: &[Pick], part: &Tensor) -> Result<Tensor> {
    if part.elem_count() == tensor.elem_count() {
        return part.reshape(tensor.dims())?.force_contiguous();
    }
    replaced(&tensor.contiguous()?, picks, &part.contiguous()?)
}

/// The work of [`write`], with contiguous tensors.
///
/// The first dimension that is not taken whole cuts out the places that it picks, has the following
/// dimensions replace what they pick of those, and puts the result back. So only the first cut copies
/// the whole tensor.
fn replaced(tensor: &Tensor, picks: &[Pick], part: &Tensor) -> Result<Tensor> {
    let cut = picks.iter().zip(tensor.dims()).enumerate().find(|(_, (pick, &size))| pick.len < size);
    let Some((dim, (pick, &size))) = cut else { return part.reshape(tensor.dims()) };
    // As [outer, size, inner] a cut has even strides, and `cat` copies it block by block. Of more
    // dimensions it may copy one element at a time, which takes many times as long.
    let outer: usize = tensor.dims().iter().take(dim).product();
    let inner: usize = tensor.dims().iter().skip(dim + 1).product();
    let old = tensor.reshape((outer, size, inner))?;
    let new = if part.elem_count() == outer * pick.len * inner {
        part.clone()
    } else {
        let mut dims = tensor.dims().to_vec();
        dims.iter_mut().skip(dim).take(1).for_each(|size| *size = pick.len);
        replaced(&pick.take(&old, 1)?.contiguous()?.reshape(dims)?, picks, part)?
    };
    pick.put(&old, &new.reshape((outer, pick.len, inner))?)?.reshape(tensor.dims())
}
