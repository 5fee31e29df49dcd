//! Convolutions. A kernel without a gradient costs none, and transposed ones have a gradient.

use candle_core::{Result, Tensor};

use super::node::attach;

/// How a kernel moves over its input, in one or two dimensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moves {
    pub padding: usize,
    pub output_padding: usize,
    pub stride: usize,
    pub dilation: usize,
    pub groups: usize,
}

/// [`Tensor::conv1d`], with gradients for what has one.
pub fn conv1d(
    x: &Tensor,
    kernel: &Tensor,
    padding: usize,
    stride: usize,
    dilation: usize,
    groups: usize,
) -> Result<Tensor> {
    let moves = Moves { padding, output_padding: 0, stride, dilation, groups };
    conv_rule(x, kernel, moves, moves.conv(&x.detach(), &kernel.detach())?)
}

/// [`Tensor::conv2d`], with gradients for what has one.
pub fn conv2d(
    x: &Tensor,
    kernel: &Tensor,
    padding: usize,
    stride: usize,
    dilation: usize,
    groups: usize,
) -> Result<Tensor> {
    conv1d(x, kernel, padding, stride, dilation, groups)
}

/// [`Tensor::conv_transpose1d`] with a gradient.
pub fn conv_transpose1d(
    x: &Tensor,
    kernel: &Tensor,
    padding: usize,
    output_padding: usize,
    stride: usize,
    dilation: usize,
    groups: usize,
) -> Result<Tensor> {
    let moves = Moves { padding, output_padding, stride, dilation, groups };
    conv_transpose_rule(x, kernel, moves, moves.transposed(&x.detach(), &kernel.detach())?)
}

/// [`Tensor::conv_transpose2d`], with gradients for what has one.
pub fn conv_transpose2d(
    x: &Tensor,
    kernel: &Tensor,
    padding: usize,
    output_padding: usize,
    stride: usize,
    dilation: usize,
) -> Result<Tensor> {
    conv_transpose1d(x, kernel, padding, output_padding, stride, dilation, 1)
}

impl Moves {
    fn conv(self, x: &Tensor, kernel: &Tensor) -> Result<Tensor> {
        let Moves { padding, stride, dilation, groups, .. } = self;
        match x.rank() {
            3 => x.conv1d(kernel, padding, stride, dilation, groups),
            _ => x.conv2d(kernel, padding, stride, dilation, groups),
        }
    }

    fn transposed(self, x: &Tensor, kernel: &Tensor) -> Result<Tensor> {
        let Moves { padding, output_padding, stride, dilation, groups } = self;
        let shortcut = padding == 0 && output_padding == 0 && dilation == 1;
        if x.rank() == 3 && shortcut && x.dim(0)? > 1 {
            // Candle 0.11 has a shortcut for this case that is wrong for more than one sequence.
            let each = (0..x.dim(0)?).map(|number| self.transposed(&x.narrow(0, number, 1)?, kernel));
            return Tensor::cat(&each.collect::<Result<Vec<_>>>()?, 0);
        }
        match x.rank() {
            3 => x.conv_transpose1d(kernel, padding, output_padding, stride, dilation, groups),
            _ => x.conv_transpose2d(kernel, padding, output_padding, stride, dilation),
        }
    }

    fn one_group(self) -> Self {
        Self { groups: 1, ..self }
    }

    /// The gradient of the input of a convolution, of one group: the kernel moves back. What the kernel
    /// never reached, at the far end, gets none.
    fn input_grad(self, input: &Tensor, kernel: &Tensor, grad: &Tensor) -> Result<Tensor> {
        let bare = Self { padding: 0, output_padding: 0, groups: 1, ..self };
        let mut grad = bare.transposed(&grad.contiguous()?, &kernel.contiguous()?)?;
        for dim in 2..input.rank() {
            let (size, covered) = (input.dim(dim)?, grad.dim(dim)?);
            let beyond = (size + 2 * self.padding).saturating_sub(covered);
            if beyond > 0 {
                grad = grad.pad_with_zeros(dim, 0, beyond)?;
            }
            if self.padding > 0 || beyond > 0 {
                grad = grad.narrow(dim, self.padding, size)?;
            }
        }
        grad.contiguous()
    }

    /// The gradient of the kernel, of one group: `over` moves over `image`, both seen across the batch.
    fn kernel_grad(self, image: &Tensor, over: &Tensor, kernel: &Tensor) -> Result<Tensor> {
        let across = Self { stride: self.dilation, dilation: self.stride, ..self.one_group() };
        let mut grad = across
            .conv(&image.transpose(0, 1)?.contiguous()?, &over.transpose(0, 1)?.contiguous()?)?
            .transpose(0, 1)?;
        for dim in 2..kernel.rank() {
            grad = grad.narrow(dim, 0, kernel.dim(dim)?)?;
        }
        grad.contiguous()
    }

    /// Does `f` for every group, and puts the results together along `dim`.
    fn each_group(
        self,
        (a, a_dim): (&Tensor, usize),
        (b, b_dim): (&Tensor, usize),
        (c, c_dim): (&Tensor, usize),
        dim: usize,
        f: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        if self.groups == 1 {
            return f(a, b, c);
        }
        let (a, b, c) =
            (a.chunk(self.groups, a_dim)?, b.chunk(self.groups, b_dim)?, c.chunk(self.groups, c_dim)?);
        let each = a.iter().zip(&b).zip(&c).map(|((a, b), c)| f(a, b, c)).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&each, dim)
    }
}

/// `kernel` is `[out, in / groups, ..]`.
pub(crate) fn conv_rule(x: &Tensor, kernel: &Tensor, moves: Moves, value: Tensor) -> Result<Tensor> {
    let (input, weight) = (x.detach(), kernel.detach());
    attach("convolution", value, [x, kernel], move |step| {
        let (image, grad, kernel) = ((&input, 1), (step.grad, 1), (&weight, 0));
        let dx = step.when(0, || {
            moves.each_group(image, kernel, grad, 1, |input, kernel, grad| {
                moves.input_grad(input, kernel, grad)
            })
        })?;
        let dkernel = step.when(1, || {
            moves.each_group(image, grad, kernel, 0, |input, grad, kernel| {
                moves.kernel_grad(input, grad, kernel)
            })
        })?;
        Ok([dx, dkernel])
    })
}

/// `kernel` is `[in, out / groups, ..]`.
pub(crate) fn conv_transpose_rule(
    x: &Tensor,
    kernel: &Tensor,
    moves: Moves,
    value: Tensor,
) -> Result<Tensor> {
    let (input, weight) = (x.detach(), kernel.detach());
    attach("transposed convolution", value, [x, kernel], move |step| {
        let (image, grad, kernel) = ((&input, 1), (step.grad, 1), (&weight, 0));
        let dx = step.when(0, || {
            moves.each_group(image, kernel, grad, 1, |input, kernel, grad| {
                let mut dx = moves.one_group().conv(&grad.contiguous()?, &kernel.contiguous()?)?;
                for dim in 2..input.rank() {
                    dx = dx.narrow(dim, 0, input.dim(dim)?)?;
                }
                dx.contiguous()
            })
        })?;
        let dkernel = step.when(1, || {
            moves.each_group(grad, image, kernel, 0, |grad, input, kernel| {
                moves.kernel_grad(grad, input, kernel)
            })
        })?;
        Ok([dx, dkernel])
    })
}
