//! Layer norm.

use candle_core::{bail, CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, Var, D};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::numbers::{contiguous, on_cpu};

/// Rows, the last dimension of `x`, with mean 0 and variance 1, times `weight`, plus `bias`.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    if !on_cpu(&[x, weight, bias]) || x.elem_count() == 0 {
        return hookpoint_grad::layer_norm(x, weight, Some(bias), eps);
    }
    let width = x.dim(D::Minus1)?;
    if weight.dims() != [width] || bias.dims() != [width] {
        let (weight, bias) = (weight.shape(), bias.shape());
        bail!("a layer norm with weight {weight:?} and bias {bias:?} was given rows of {width} numbers");
    }
    x.contiguous()?.apply_op3(&weight.contiguous()?, &bias.contiguous()?, Norm { eps })
}

struct Norm {
    eps: f64,
}

impl CustomOp3 for Norm {
    fn name(&self) -> &'static str {
        "layer norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        l: &Layout,
        weight: &CpuStorage,
        m: &Layout,
        bias: &CpuStorage,
        n: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, weight, bias) = (contiguous(x, l)?, contiguous(weight, m)?, contiguous(bias, n)?);
        let (width, eps) = (weight.len(), self.eps as f32);
        let mut out = vec![0.; x.len()];
        let arch = Arch::new();
        let rows = out.par_chunks_exact_mut(width).zip(x.par_chunks_exact(width));
        let rows = rows.with_min_len((8192 / width).max(1));
        rows.for_each(|(out, x)| arch.dispatch(Row { out, x, weight, bias, eps }));
        Ok((CpuStorage::F32(out), l.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let leaf = |tensor: &Tensor| -> Result<Tensor> {
            match tensor.track_op() {
                true => Ok(Var::from_tensor(&tensor.detach())?.into_inner()),
                false => Ok(tensor.clone()),
            }
        };
        let (x, weight, bias) = (leaf(x)?, leaf(weight)?, leaf(bias)?);
        let y = hookpoint_grad::layer_norm(&x, &weight, Some(&bias), self.eps)?;
        let grads = (y * grad)?.sum_all()?.backward()?;
        Ok((grads.get(&x).cloned(), grads.get(&weight).cloned(), grads.get(&bias).cloned()))
    }
}

struct Row<'r> {
    out: &'r mut [f32],
    x: &'r [f32],
    weight: &'r [f32],
    bias: &'r [f32],
    eps: f32,
}

impl WithSimd for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { out, x, weight, bias, eps } = self;
        let width = x.len() as f32;
        let (vectors, rest) = S::as_simd_f32s(x);
        let mut sum = simd.splat_f32s(0.);
        for x in vectors {
            sum = simd.add_f32s(sum, *x);
        }
        let mean = (simd.reduce_sum_f32s(sum) + rest.iter().sum::<f32>()) / width;
        let means = simd.splat_f32s(mean);
        let mut squares = simd.splat_f32s(0.);
        for x in vectors {
            let apart = simd.sub_f32s(*x, means);
            squares = simd.mul_add_e_f32s(apart, apart, squares);
        }
        let rest_squares: f32 = rest.iter().map(|x| (x - mean) * (x - mean)).sum();
        let variance = (simd.reduce_sum_f32s(squares) + rest_squares) / width;
        let scale = 1. / (variance + eps).sqrt();
        let scales = simd.splat_f32s(scale);
        let (out, out_rest) = S::as_mut_simd_f32s(out);
        let ((weight, weight_rest), (bias, bias_rest)) = (S::as_simd_f32s(weight), S::as_simd_f32s(bias));
        for (((out, x), weight), bias) in out.iter_mut().zip(vectors).zip(weight).zip(bias) {
            let normal = simd.mul_f32s(simd.sub_f32s(*x, means), scales);
            *out = simd.mul_add_e_f32s(normal, *weight, *bias);
        }
        for (((out, x), weight), bias) in out_rest.iter_mut().zip(rest).zip(weight_rest).zip(bias_rest) {
            *out = (x - mean) * scale * weight + bias;
        }
    }
}
