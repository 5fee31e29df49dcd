//! The numbers of tensors on the CPU, to be read and changed where they are.

use std::cell::RefCell;

use candle_core::{CpuStorage, Error, InplaceOp1, Layout, Result, Storage, Tensor};

/// Gives `f` the numbers of a contiguous tensor in f32.
pub fn read<T>(tensor: &Tensor, f: impl FnOnce(&[f32]) -> T) -> Result<T> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else { return Err(elsewhere()) };
    let all = storage.as_slice::<f32>()?;
    let (start, end) = layout.contiguous_offsets().ok_or_else(scattered)?;
    Ok(f(all.get(start..end).ok_or_else(scattered)?))
}

/// Lets `f` change the numbers of a contiguous tensor in f32. Whoever shares the tensor sees it.
pub fn change<T>(tensor: &Tensor, f: impl FnOnce(&mut [f32]) -> T) -> Result<T> {
    let change = Change { f: RefCell::new(Some(f)), result: RefCell::new(None) };
    tensor.inplace_op1(&change)?;
    change.result.into_inner().ok_or_else(elsewhere)
}

struct Change<F, T> {
    f: RefCell<Option<F>>,
    result: RefCell<Option<T>>,
}

impl<T, F: FnOnce(&mut [f32]) -> T> InplaceOp1 for Change<F, T> {
    fn name(&self) -> &'static str {
        "change"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let CpuStorage::F32(all) = storage else { return Err(Error::Msg("not in f32".to_string())) };
        let (start, end) = layout.contiguous_offsets().ok_or_else(scattered)?;
        let numbers = all.get_mut(start..end).ok_or_else(scattered)?;
        if let Some(f) = self.f.take() {
            self.result.replace(Some(f(numbers)));
        }
        Ok(())
    }
}

fn elsewhere() -> Error {
    Error::Msg("training computes on the CPU".to_string())
}

fn scattered() -> Error {
    Error::Msg("training computes with contiguous tensors".to_string())
}

/// `a · b`, in sixteen sums, which a compiler can keep in vector registers.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let (a_blocks, b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_blocks.remainder().iter().zip(b_blocks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_blocks.zip(b_blocks) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// `to += factor * from`
#[inline(always)]
pub fn add_scaled(to: &mut [f32], factor: f32, from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}
