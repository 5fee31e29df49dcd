//! The gelu with `tanh`.

use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::exp::exp;
use super::numbers::{contiguous, on_cpu};

/// The square root of 2/π, and how much the third power counts.
const A: f32 = 0.797_884_6;
const B: f32 = 0.044_715;

/// So many numbers are computed by one core at a time.
const PIECE: usize = 16 * 1024;

/// [`Tensor::gelu`]: `x (1 + tanh(u)) / 2` with `u = √(2/π) (x + 0.044715 x³)`.
///
/// ```
/// use candle_core::{Device, Tensor};
///
/// let x = Tensor::new(&[-1f32, 0., 2.], &Device::Cpu)?;
/// let y = hookpoint_kernels::gelu(&x)?;
/// let difference = (y - x.gelu()?)?.abs()?.max(0)?.to_scalar::<f32>()?;
/// assert!(difference < 1e-6);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    match on_cpu(&[x]) {
        true => x.contiguous()?.apply_op1(Gelu),
        false => hookpoint_grad::gelu(x),
    }
}

/// One half of `1 + tanh(u)` is `1 / (1 + exp(-2 u))`, which is exact on both sides of zero.
#[inline(always)]
fn share<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let constant = |number: f32| simd.splat_f32s(number);
    let square = simd.mul_f32s(x, x);
    let u = simd.mul_f32s(x, simd.mul_add_e_f32s(square, constant(-2. * A * B), constant(-2. * A)));
    simd.div_f32s(constant(1.), simd.add_f32s(constant(1.), exp(simd, u)))
}

struct Gelu;

impl CustomOp1 for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = contiguous(x, layout)?;
        let mut out = vec![0.; x.len()];
        let arch = Arch::new();
        let pieces = out.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE));
        pieces.for_each(|(out, x)| arch.dispatch(Forward { out, x }));
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        x.detach().apply_op2(&grad.contiguous()?, Slope).map(Some)
    }
}

struct Forward<'f> {
    out: &'f mut [f32],
    x: &'f [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (out, out_rest) = S::as_mut_simd_f32s(self.out);
        let (x, x_rest) = S::as_simd_f32s(self.x);
        for (out, x) in out.iter_mut().zip(x) {
            *out = simd.mul_f32s(*x, share(simd, *x));
        }
        let x = simd.partial_load_f32s(x_rest);
        simd.partial_store_f32s(out_rest, simd.mul_f32s(x, share(simd, x)));
    }
}

/// The gradient: what comes times the slope at `x`.
struct Slope;

impl CustomOp2 for Slope {
    fn name(&self) -> &'static str {
        "gelu backward"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        l: &Layout,
        grad: &CpuStorage,
        m: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, grad) = (contiguous(x, l)?, contiguous(grad, m)?);
        let mut out = grad.to_vec();
        let arch = Arch::new();
        let pieces = out.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE));
        pieces.for_each(|(grad, x)| arch.dispatch(Backward { grad, x }));
        Ok((CpuStorage::F32(out), l.shape().clone()))
    }
}

struct Backward<'b> {
    grad: &'b mut [f32],
    x: &'b [f32],
}

/// With the share s of x: s + x s (1 - s) 2 u'.
#[inline(always)]
fn slope<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let constant = |number: f32| simd.splat_f32s(number);
    let s = share(simd, x);
    let square = simd.mul_f32s(x, x);
    let steep = simd.mul_add_e_f32s(square, constant(6. * A * B), constant(2. * A));
    let change = simd.mul_f32s(simd.mul_f32s(x, s), simd.sub_f32s(constant(1.), s));
    simd.mul_add_e_f32s(change, steep, s)
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (grad, grad_rest) = S::as_mut_simd_f32s(self.grad);
        let (x, x_rest) = S::as_simd_f32s(self.x);
        for (grad, x) in grad.iter_mut().zip(x) {
            *grad = simd.mul_f32s(*grad, slope(simd, *x));
        }
        let (last, x) = (simd.partial_load_f32s(grad_rest), simd.partial_load_f32s(x_rest));
        simd.partial_store_f32s(grad_rest, simd.mul_f32s(last, slope(simd, x)));
    }
}
