//! Linear layers.

use candle_core::{bail, CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, D};

use super::numbers::{contiguous, from_start, on_cpu};
use super::product::{add_to, Matrix, Order};

/// `x · weightᵀ + bias`. `x` is `[.., in]`, `weight` is `[out, in]`, also as a transposed `[in, out]`, and
/// `bias` is `[out]`.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint_kernels as kernels;
///
/// let x = Tensor::new(&[[1f32, 2.]], &Device::Cpu)?;
/// let weight = Tensor::new(&[[3f32, 4.], [5., 6.], [7., 8.]], &Device::Cpu)?;
/// let bias = Tensor::new(&[0f32, 1., 2.], &Device::Cpu)?;
/// assert_eq!(kernels::linear(&x, &weight, Some(&bias))?.to_vec2::<f32>()?, [[11., 18., 25.]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let order = order_of(weight);
    let fits = on_cpu(&[x, weight])
        && bias.is_none_or(|bias| on_cpu(&[bias]))
        && x.rank() > 0
        && x.elem_count() > 0
        && order.is_some()
        // These have matrix products of their own, which are as quick.
        && !cfg!(any(feature = "mkl", feature = "accelerate"));
    let Some(order) = order.filter(|_| fits) else {
        return hookpoint_grad::linear(x, weight, bias);
    };
    let (out, depth) = weight.dims2()?;
    if x.dim(D::Minus1)? != depth {
        bail!("a linear layer for {depth} numbers was given a tensor of shape {:?}", x.shape());
    }
    let x = x.contiguous()?;
    let op = Product { order, out, depth };
    match bias {
        None => x.apply_op2(weight, op),
        Some(bias) if bias.dims() == [out] => x.apply_op3(weight, &bias.contiguous()?, op),
        Some(bias) => bail!("a linear layer to {out} numbers has a bias of shape {:?}", bias.shape()),
    }
}

/// How a weight `[out, in]` lies in memory, seen as `[in, out]`; none if it has gaps.
fn order_of(weight: &Tensor) -> Option<Order> {
    let layout = weight.layout();
    match (layout.is_contiguous(), layout.is_fortran_contiguous()) {
        _ if weight.rank() != 2 => None,
        (true, _) => Some(Order::Columns),
        (_, true) => Some(Order::Rows),
        _ => None,
    }
}

#[derive(Clone, Copy)]
struct Product {
    order: Order,
    out: usize,
    depth: usize,
}

impl Product {
    /// `out` comes with what the product is added to.
    fn fwd(
        self,
        mut out: Vec<f32>,
        (x, x_layout): (&CpuStorage, &Layout),
        (weight, layout): (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let Self { order, out: width, depth } = self;
        let Some(numbers) = from_start(weight, layout)?.get(..depth * width) else {
            bail!("a weight is larger than its memory")
        };
        add_to(&mut out, contiguous(x, x_layout)?, Matrix { numbers, depth, width, order });
        let mut dims = x_layout.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = width;
        }
        Ok((CpuStorage::F32(out), Shape::from(dims)))
    }

    fn count(&self, x: &Layout) -> usize {
        x.shape().elem_count() / self.depth.max(1)
    }
}

/// The gradients of `x` and the weight, where they are wanted.
fn bwd(x: &Tensor, weight: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let dx = x.track_op().then(|| linear(grad, &weight.detach().t()?, None)).transpose()?;
    let rows = |tensor: &Tensor| tensor.flatten_to(tensor.rank().saturating_sub(2))?.contiguous();
    let dw = || rows(grad)?.t()?.matmul(&rows(&x.detach())?);
    Ok((dx, weight.track_op().then(dw).transpose()?))
}

impl CustomOp2 for Product {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, l: &Layout, w: &CpuStorage, m: &Layout) -> Result<(CpuStorage, Shape)> {
        self.fwd(vec![0.; self.count(l) * self.out], (x, l), (w, m))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        bwd(x, weight, grad)
    }
}

impl CustomOp3 for Product {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        l: &Layout,
        w: &CpuStorage,
        m: &Layout,
        b: &CpuStorage,
        n: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.fwd(contiguous(b, n)?.repeat(self.count(l)), (x, l), (w, m))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (dx, dw) = bwd(x, weight, grad)?;
        let sum = || grad.flatten_to(grad.rank().saturating_sub(2))?.sum(0);
        Ok((dx, dw, bias.track_op().then(sum).transpose()?))
    }
}
