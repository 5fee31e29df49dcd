//! A tap: an operation that gives what it is given, and is told when the gradient comes by.
//!
//! Candle lets go of the gradient of every intermediate value as it goes, and does not differentiate at
//! all what no variable is upstream of. A tap has two arguments, the value and a variable of one element:
//! the variable makes what the model goes on with tracked, so that nothing in the model has to be a
//! variable itself, and the backward pass asks the tap for the gradients of its arguments. It answers
//! with what the hooks there made of the gradient. No gradient is computed for what lies upstream unless
//! that is tracked for a reason of its own.

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::{CpuStorage, CudaStorage, CustomOp2, Layout, MetalStorage, Shape, Tensor};

use crate::error::Result;
use crate::run::current_pass;
use crate::run::replacement::{laid_out, memory_order};

/// Which tap of which run. Outside of the backward pass of its own run a tap does nothing.
pub(in crate::run) struct Tap {
    run: u64,
    number: usize,
    /// For a value that is not contiguous: the order of its dimensions in memory, and the way back.
    order: Option<(Vec<usize>, Vec<usize>)>,
}

impl Tap {
    pub fn new(run: u64, number: usize) -> Self {
        Self { run, number, order: None }
    }

    /// What the model goes on with: the value, in the memory layout that it has, since candle computes
    /// other last bits where the layout is another.
    pub fn put(mut self, value: &Tensor, root: &Tensor) -> Result<Tensor> {
        if value.is_contiguous() {
            return Ok(value.apply_op2(root, self)?);
        }
        let (order, back) = memory_order(value.dims(), value.stride());
        let ordered = value.permute(order.as_slice())?;
        self.order = Some((order, back.clone()));
        laid_out(ordered.apply_op2(root, self)?.permute(back)?, value.stride())
    }

    /// What becomes of the gradient here.
    fn seen(&self, grad: &Tensor) -> candle_core::Result<Tensor> {
        let arrive = |grad: &Tensor| current_pass(|pass| pass.arrive(self.run, self.number, grad)).flatten();
        let Some((order, back)) = &self.order else {
            return arrive(grad).unwrap_or_else(|| Ok(grad.clone()));
        };
        match arrive(&grad.permute(back.as_slice())?) {
            Some(new) => new?.permute(order.as_slice()),
            None => Ok(grad.clone()),
        }
    }
}

/// A copy of what the layout shows, bit for bit.
fn copied<S: BackendStorage>(storage: &S, layout: &Layout) -> candle_core::Result<(S, Shape)>
where
    S::Device: BackendDevice<Storage = S>,
{
    let mut copy = storage.device().zeros_impl(layout.shape(), storage.dtype())?;
    storage.copy_strided_src(&mut copy, 0, layout)?;
    Ok((copy, layout.shape().clone()))
}

impl CustomOp2 for Tap {
    fn name(&self) -> &'static str {
        "hookpoint-tap"
    }

    fn cpu_fwd(
        &self,
        value: &CpuStorage,
        layout: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        copied(value, layout)
    }

    fn cuda_fwd(
        &self,
        value: &CudaStorage,
        layout: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> candle_core::Result<(CudaStorage, Shape)> {
        copied(value, layout)
    }

    fn metal_fwd(
        &self,
        value: &MetalStorage,
        layout: &Layout,
        _: &MetalStorage,
        _: &Layout,
    ) -> candle_core::Result<(MetalStorage, Shape)> {
        copied(value, layout)
    }

    fn bwd(
        &self,
        value: &Tensor,
        root: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = self.seen(grad)?;
        Ok((value.track_op().then_some(grad), Some(root.zeros_like()?)))
    }
}
