//! Softmax over rows.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, D};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::exp::exp;
use super::numbers::{contiguous, on_cpu};

/// The softmax over the last dimension.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    match on_cpu(&[x]) && x.elem_count() > 0 && x.rank() > 0 {
        true => x.contiguous()?.apply_op1(Softmax),
        false => hookpoint_grad::softmax_last_dim(x),
    }
}

/// The gradient of what softmax was given.
pub fn softmax_grad(pattern: &Tensor, grad: &Tensor) -> Result<Tensor> {
    let part = (pattern * grad)?;
    let whole = part.sum_keepdim(D::Minus1)?;
    part - pattern.broadcast_mul(&whole)?
}

struct Softmax;

impl CustomOp1 for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let mut out = contiguous(x, layout)?.to_vec();
        let length = layout.dims().last().copied().unwrap_or(1).max(1);
        let arch = Arch::new();
        let rows = out.par_chunks_exact_mut(length).with_min_len((4096 / length).max(1));
        rows.for_each(|row| arch.dispatch(Row(row)));
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, pattern: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        softmax_grad(&pattern.detach(), grad).map(Some)
    }
}

struct Row<'r>(&'r mut [f32]);

impl WithSimd for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        softmax_row(simd, self.0);
    }
}

/// The softmax of one row, in place. Numbers of minus infinity at its end change nothing, bit by bit.
#[inline(always)]
pub fn softmax_row<S: Simd>(simd: S, row: &mut [f32]) {
    let (vectors, rest) = S::as_mut_simd_f32s(row);
    let mut most = simd.splat_f32s(f32::NEG_INFINITY);
    for x in vectors.iter() {
        most = simd.max_f32s(*x, most);
    }
    let most = rest.iter().copied().fold(simd.reduce_max_f32s(most), f32::max);
    let shift = simd.splat_f32s(most);
    let mut sum = simd.splat_f32s(0.);
    for x in vectors.iter_mut() {
        *x = exp(simd, simd.sub_f32s(*x, shift));
        sum = simd.add_f32s(sum, *x);
    }
    if !rest.is_empty() {
        // The lanes that are left over must not count.
        let mut last = simd.splat_f32s(f32::NEG_INFINITY);
        let lanes: &mut [f32] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut last));
        lanes[..rest.len()].copy_from_slice(rest);
        let last = exp(simd, simd.sub_f32s(last, shift));
        sum = simd.add_f32s(sum, last);
        simd.partial_store_f32s(rest, last);
    }
    let share = 1. / simd.reduce_sum_f32s(sum);
    let shares = simd.splat_f32s(share);
    for x in vectors {
        *x = simd.mul_f32s(*x, shares);
    }
    rest.iter_mut().for_each(|x| *x *= share);
}
