//! What a cache of keys and values gives: copies of what it was given, now and before.
//!
//! A cache copies in place, which candle knows no gradient of. Where the copies went is found by value. Most
//! caches put what is new behind what they have. One of a fixed size goes round in a ring: what is new comes where
//! the oldest was.

use candle_core::{DType, Result, Tensor};

use super::node::attach;

/// Keys and values.
type Both<'t> = [&'t Tensor; 2];

/// What a cache of keys and values gave, with a gradient.
///
/// `whole` is what the cache gave, as `[keys, values]`. It comes back with the gradients of `new`, which is a part of it along one dimension, and of the rest. That is what
/// the cache gave before, or where there is none, something constant. None where `whole` is not made of them, or
/// might be in several ways.
///
/// ```
/// use candle_core::{Device, Var};
/// use candle_nn::kv_cache::Cache;
///
/// let x = Var::new(&[[1f32, 2.]], &Device::Cpu)?;
/// let key = x.affine(2., 0.)?;
/// let mut cache = Cache::new(0, 4);
/// cache.append(&key)?;
/// let all = cache.current_data()?.unwrap();
/// assert!(!all.track_op());
///
/// let [all, _] = hookpoint_grad::cached(None, [&key, &key], [&all, &all])?.unwrap();
/// assert_eq!(all.sum_all()?.backward()?.get(&x).unwrap().to_vec2::<f32>()?, [[2., 2.]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn cached(before: Option<Both<'_>>, new: Both<'_>, whole: Both<'_>) -> Result<Option<[Tensor; 2]>> {
    let Some(ring) = Ring::of(new[0], whole[0]).filter(|ring| Some(*ring) == Ring::of(new[1], whole[1]))
    else {
        return Ok(None);
    };
    let fits = |start: usize| {
        for i in 0..2 {
            if !ring.fits(start, before.map(|before| before[i]), new[i], whole[i])? {
                return Ok(false);
            }
        }
        Ok::<_, candle_core::Error>(true)
    };
    let last = ring.length - ring.size;
    let start = if fits(last)? {
        last
    } else {
        let mut starts = Vec::new();
        for start in ring.like_the_first(new[0], whole[0])? {
            if start != last && fits(start)? {
                starts.push(start);
            }
        }
        match starts.as_slice() {
            [start] => *start,
            _ => return Ok(None),
        }
    };
    let [keys, values] = [0, 1].map(|i| ring.attach(start, before.map(|before| before[i]), new[i], whole[i]));
    Ok(Some([keys?, values?]))
}

/// So much is put among so many slots along a dimension.
#[derive(Clone, Copy, PartialEq)]
struct Ring {
    dim: usize,
    size: usize,
    length: usize,
}

impl Ring {
    fn of(new: &Tensor, whole: &Tensor) -> Option<Self> {
        if new.rank() != whole.rank() || new.dtype() != whole.dtype() {
            return None;
        }
        let sizes = new.dims().iter().zip(whole.dims()).map(|(size, length)| (*size, *length));
        let mut differ = sizes.clone().enumerate().filter(|(_, (size, length))| size != length);
        let (dim, (size, length)) = match (differ.next(), differ.next()) {
            (Some(one), None) => one,
            (None, _) => (0, sizes.clone().next()?),
            _ => return None,
        };
        (0 < size && size <= length).then_some(Self { dim, size, length })
    }

    /// The slots that are written from `start` on.
    fn slots(self, start: usize) -> impl Iterator<Item = usize> {
        (start..start + self.size).map(move |slot| slot % self.length)
    }

    /// Where each slot of `before` is in the whole, if it is there still: of more than there is room for, the
    /// last are.
    fn remaining(self, start: usize, before: usize) -> Vec<Option<usize>> {
        let written: Vec<usize> = self.slots(start).collect();
        let left_out = before.saturating_sub(self.length);
        let slots = (0..before).map(|slot| slot.checked_sub(left_out));
        slots.map(|slot| slot.filter(|slot| !written.contains(slot))).collect()
    }

    /// Slots of the whole in which the first slot of `new` may be.
    fn like_the_first(self, new: &Tensor, whole: &Tensor) -> Result<Vec<usize>> {
        let first = new.detach().narrow(self.dim, 0, 1)?;
        let equal = whole.detach().broadcast_eq(&first)?.transpose(0, self.dim)?.contiguous()?;
        let equal = equal.reshape((self.length, ()))?.to_dtype(DType::F32)?.min(1)?.to_vec1::<f32>()?;
        Ok((0..self.length).filter(|slot| equal[*slot] == 1.).collect())
    }

    /// Is the whole made of `new` from `start` on, and `before`?
    fn fits(self, start: usize, before: Option<&Tensor>, new: &Tensor, whole: &Tensor) -> Result<bool> {
        if !is_equal(&self.select(whole, self.slots(start))?, new)? {
            return Ok(false);
        }
        let Some(before) = before.filter(|_| self.size < self.length) else { return Ok(true) };
        let same = |dim: usize| dim == self.dim || before.dims()[dim] == whole.dims()[dim];
        if before.rank() != whole.rank() || !(0..whole.rank()).all(same) {
            return Ok(false);
        }
        let remaining = self.remaining(start, before.dim(self.dim)?);
        let kept = remaining.iter().enumerate().filter_map(|(slot, place)| place.map(|place| (slot, place)));
        let (slots, places): (Vec<usize>, Vec<usize>) = kept.unzip();
        if places.len() != self.length - self.size {
            return Ok(false);
        }
        is_equal(&self.select(before, slots)?, &self.select(whole, places)?)
    }

    fn select(self, of: &Tensor, slots: impl IntoIterator<Item = usize>) -> Result<Tensor> {
        let slots: Vec<u32> = slots.into_iter().map(|slot| slot as u32).collect();
        let slots = Tensor::new(slots, of.device())?;
        of.detach().contiguous()?.index_select(&slots, self.dim)
    }

    fn attach(self, start: usize, before: Option<&Tensor>, new: &Tensor, whole: &Tensor) -> Result<Tensor> {
        let value = whole.force_contiguous()?;
        let new_grad = move |grad: &Tensor| self.select(grad, self.slots(start));
        let Some(before) = before.filter(|_| self.size < self.length) else {
            return attach("cache", value, [new], move |step| Ok([Some(new_grad(step.grad)?)]));
        };
        let remaining = self.remaining(start, before.dim(self.dim)?);
        attach("cache", value, [before, new], move |step| {
            let before = step.when(0, || {
                // What is not there any more gets nothing.
                let nothing = step.grad.narrow(self.dim, 0, 1)?.zeros_like()?;
                let grad = Tensor::cat(&[step.grad, &nothing], self.dim)?;
                self.select(&grad, remaining.iter().map(|place| place.unwrap_or(self.length)))
            })?;
            Ok([before, step.when(1, || new_grad(step.grad))?])
        })
    }
}

fn is_equal(a: &Tensor, b: &Tensor) -> Result<bool> {
    if a.dims() != b.dims() || a.dtype() != b.dtype() {
        return Ok(false);
    }
    let equal = a.detach().eq(&b.detach())?.to_dtype(DType::F32)?;
    Ok(equal.min_all()?.to_scalar::<f32>()? == 1.)
}
