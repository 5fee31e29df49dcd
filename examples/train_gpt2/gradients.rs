//! Candle's quick softmax and layer norm with the gradients that they lack.
//!
//! The value is computed by candle's own operation, and put into the graph by an operation that knows the
//! gradient.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Storage, Tensor, D};
use candle_nn::ops;

/// `value`, which was computed from the argument, with a rule for the argument's gradient: it is given the
/// argument, the value, and the gradient of the value.
struct Computed {
    value: Tensor,
    gradient: fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
}

impl CustomOp1 for Computed {
    fn name(&self) -> &'static str {
        "computed"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        let (storage, layout) = self.value.storage_and_layout();
        match (&*storage, layout.contiguous_offsets()) {
            (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) => {
                Ok((CpuStorage::F32(values[start..end].to_vec()), self.value.shape().clone()))
            }
            _ => candle_core::bail!("training is done in f32 on the CPU"),
        }
    }

    fn bwd(&self, argument: &Tensor, value: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        (self.gradient)(argument, value, gradient).map(Some)
    }
}

/// Softmax over the last dimension.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    let value = ops::softmax_last_dim(&x.detach())?;
    x.apply_op1(Computed {
        value,
        gradient: |_, y, g| {
            let gy = (g * y)?;
            gy.sub(&y.broadcast_mul(&gy.sum_keepdim(D::Minus1)?)?)
        },
    })
}

/// A layer norm over the last dimension.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (ones, zeros) = (weight.detach().ones_like()?, bias.detach().zeros_like()?);
    let value = ops::layer_norm(&x.detach(), &ones, &zeros, EPSILON)?;
    let normed = x.apply_op1(Computed {
        value,
        gradient: |x, y, g| {
            let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
            let spread = (centred.sqr()?.mean_keepdim(D::Minus1)? + EPSILON as f64)?.sqrt()?;
            let along = y.broadcast_mul(&(g * y)?.mean_keepdim(D::Minus1)?)?;
            (g.broadcast_sub(&g.mean_keepdim(D::Minus1)?)? - along)?.broadcast_div(&spread)
        },
    })?;
    normed.broadcast_mul(weight)?.broadcast_add(bias)
}

/// As in GPT-2's config.
const EPSILON: f32 = 1e-5;
