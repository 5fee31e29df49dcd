//! Pooling of images, `[batch, channel, height, width]`.

use candle_core::{Result, Tensor, ToUsize2};

use super::node::{attach, with_right_gradient};

/// [`Tensor::max_pool2d`] with the right gradient: the first largest element of a window gets all of
/// it. Candle's own is too small by the size of the window.
///
/// ```
/// use candle_core::{Device, Var};
///
/// let x = Var::new(&[[[[1f32, 2.], [3., 4.]]]], &Device::Cpu)?;
/// let grads = hookpoint_grad::max_pool2d(&x, 2)?.sum_all()?.backward()?;
/// assert_eq!(grads.get(&x).unwrap().flatten_all()?.to_vec1::<f32>()?, [0., 0., 0., 1.]);
///
/// let wrong = x.max_pool2d(2)?.sum_all()?.backward()?;
/// assert_eq!(wrong.get(&x).unwrap().flatten_all()?.to_vec1::<f32>()?, [0., 0., 0., 0.25]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn max_pool2d(x: &Tensor, kernel: impl ToUsize2) -> Result<Tensor> {
    let kernel = kernel.to_usize2();
    max_pool2d_with_stride(x, kernel, kernel)
}

/// [`Tensor::max_pool2d_with_stride`] with the right gradient, also where windows overlap.
pub fn max_pool2d_with_stride(x: &Tensor, kernel: impl ToUsize2, stride: impl ToUsize2) -> Result<Tensor> {
    let (kernel, stride) = (kernel.to_usize2(), stride.to_usize2());
    pool_rule(Pool::Max, x, kernel, stride, x.detach().max_pool2d_with_stride(kernel, stride)?)
}

/// [`Tensor::avg_pool2d`] with a gradient, also where windows do not cover the image.
pub fn avg_pool2d(x: &Tensor, kernel: impl ToUsize2) -> Result<Tensor> {
    let kernel = kernel.to_usize2();
    avg_pool2d_with_stride(x, kernel, kernel)
}

/// [`Tensor::avg_pool2d_with_stride`] with a gradient, also where windows overlap.
pub fn avg_pool2d_with_stride(x: &Tensor, kernel: impl ToUsize2, stride: impl ToUsize2) -> Result<Tensor> {
    let (kernel, stride) = (kernel.to_usize2(), stride.to_usize2());
    pool_rule(Pool::Average, x, kernel, stride, x.detach().avg_pool2d_with_stride(kernel, stride)?)
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Pool {
    Max,
    Average,
}

pub(crate) fn pool_rule(
    pool: Pool,
    x: &Tensor,
    kernel: (usize, usize),
    stride: (usize, usize),
    value: Tensor,
) -> Result<Tensor> {
    let input = x.detach();
    let attached = attach("pooling", value, [x], move |step| {
        let (_, _, height, width) = step.value.dims4()?;
        let at = |first, steps, stride| positions(first, steps, stride, &input);
        let mut dx = input.zeros_like()?;
        let mut free = step.value.ones_like()?;
        let share = (step.grad / (kernel.0 * kernel.1) as f64)?;
        for row in 0..kernel.0 {
            let rows = at(row, height, stride.0)?;
            let line = input.index_select(&rows, 2)?;
            let mut dline = line.zeros_like()?;
            for column in 0..kernel.1 {
                let columns = at(column, width, stride.1)?;
                let part = match pool {
                    Pool::Average => share.clone(),
                    Pool::Max => {
                        let largest = line.index_select(&columns, 3)?.eq(&step.value)?;
                        let taken = (largest.to_dtype(free.dtype())? * &free)?;
                        free = (free - &taken)?;
                        (step.grad * taken)?
                    }
                };
                dline = dline.index_add(&columns, &part, 3)?;
            }
            dx = dx.index_add(&rows, &dline, 2)?;
        }
        Ok([Some(dx)])
    });
    attached.map(with_right_gradient)
}

/// `first`, `first + stride`, ..
fn positions(first: usize, steps: usize, stride: usize, like: &Tensor) -> Result<Tensor> {
    let steps: Vec<u32> = (0..steps).map(|step| (first + step * stride) as u32).collect();
    Tensor::new(steps, like.device())
}
