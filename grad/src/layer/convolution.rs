//! Four layers in one file, since they share how they move over their input: `Conv1d`, `Conv2d`, `ConvTranspose1d`,
//! `ConvTranspose2d`.

use candle_core::{Module, Result, Tensor};
use candle_nn::{Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d};

use super::{weight_and_bias, KnownLayer, Outline};
use crate::conv::{conv_rule, conv_transpose_rule, Moves};
use crate::elementwise::{binary_rule, Binary};

/// How this layer moves over its input. A macro, since the four configurations are four types.
macro_rules! moves {
    ($config:expr, $output_padding:expr, $groups:expr) => {
        Moves {
            padding: $config.padding,
            output_padding: $output_padding,
            stride: $config.stride,
            dilation: $config.dilation,
            groups: $groups,
        }
    };
}

impl KnownLayer for Conv1d {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        let (out, inner, kernel) = self.weight().dims3().ok()?;
        let moves = moves!(self.config(), 0, self.config().groups);
        outline(input, inner * moves.groups, out, &[kernel], |size, kernel| shrunk(size, kernel, &moves))
    }

    fn with_gradient(&self, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        let moves = moves!(self.config(), 0, self.config().groups);
        let alone = Self::new(self.weight().detach(), None, *self.config());
        let value = alone.forward(&input.detach());
        let value = value.and_then(|value| conv_rule(input, self.weight(), moves, value));
        Some(value.and_then(|value| with_bias(value, self.bias())))
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        weight_and_bias(self.weight(), self.bias())
    }
}

impl KnownLayer for Conv2d {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        let (out, inner, rows, columns) = self.weight().dims4().ok()?;
        let moves = moves!(self.config(), 0, self.config().groups);
        let side = |size, kernel| shrunk(size, kernel, &moves);
        outline(input, inner * moves.groups, out, &[rows, columns], side)
    }

    fn with_gradient(&self, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        let moves = moves!(self.config(), 0, self.config().groups);
        let alone = Self::new(self.weight().detach(), None, *self.config());
        let value = alone.forward(&input.detach());
        let value = value.and_then(|value| conv_rule(input, self.weight(), moves, value));
        Some(value.and_then(|value| with_bias(value, self.bias())))
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        weight_and_bias(self.weight(), self.bias())
    }
}

impl KnownLayer for ConvTranspose1d {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        let (inner, out, kernel) = self.weight().dims3().ok()?;
        let moves = moves!(self.config(), self.config().output_padding, self.config().groups);
        outline(input, inner, out * moves.groups, &[kernel], |size, kernel| grown(size, kernel, &moves))
    }

    fn with_gradient(&self, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        let moves = moves!(self.config(), self.config().output_padding, self.config().groups);
        let alone = Self::new(self.weight().detach(), None, *self.config());
        let value = alone.forward(&input.detach());
        let value = value.and_then(|value| conv_transpose_rule(input, self.weight(), moves, value));
        Some(value.and_then(|value| with_bias(value, self.bias())))
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        weight_and_bias(self.weight(), self.bias())
    }
}

impl KnownLayer for ConvTranspose2d {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        let (inner, out, rows, columns) = self.weight().dims4().ok()?;
        let moves = moves!(self.config(), self.config().output_padding, 1);
        outline(input, inner, out, &[rows, columns], |size, kernel| grown(size, kernel, &moves))
    }

    fn with_gradient(&self, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        let moves = moves!(self.config(), self.config().output_padding, 1);
        let alone = Self::new(self.weight().detach(), None, *self.config());
        let value = alone.forward(&input.detach());
        let value = value.and_then(|value| conv_transpose_rule(input, self.weight(), moves, value));
        Some(value.and_then(|value| with_bias(value, self.bias())))
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        weight_and_bias(self.weight(), self.bias())
    }
}

/// `[batch, channels, sides..]` becomes `[batch, out, sides..]`.
fn outline(
    input: &Tensor,
    channels: usize,
    out: usize,
    kernel: &[usize],
    side: impl Fn(usize, usize) -> Option<usize>,
) -> Option<Outline> {
    let [batch, own, sides @ ..] = input.dims() else { return None };
    if *own != channels || sides.len() != kernel.len() {
        return None;
    }
    let sides = sides.iter().zip(kernel).map(|(size, kernel)| side(*size, *kernel));
    let dims = [Some(*batch), Some(out)].into_iter().chain(sides).collect::<Option<_>>()?;
    Some(Outline { dims, dtype: input.dtype() })
}

/// How long a side is after a convolution.
fn shrunk(size: usize, kernel: usize, moves: &Moves) -> Option<usize> {
    let covered = moves.dilation * kernel.checked_sub(1)? + 1;
    (size + 2 * moves.padding).checked_sub(covered)?.checked_div(moves.stride).map(|steps| steps + 1)
}

/// The same after a transposed one.
fn grown(size: usize, kernel: usize, moves: &Moves) -> Option<usize> {
    let covered = moves.dilation * kernel.checked_sub(1)? + 1;
    let all = size.checked_sub(1)? * moves.stride + covered + moves.output_padding;
    all.checked_sub(2 * moves.padding).filter(|size| *size > 0)
}

/// Adds `[channels]` to `[batch, channels, ..]`.
fn with_bias(x: Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(x) };
    let mut dims = vec![1; x.rank()];
    if let Some(channels) = dims.get_mut(1) {
        *channels = bias.dims1()?;
    }
    let bias = bias.reshape(dims)?;
    match binary_rule(Binary::Add, &x, &bias, x.detach().broadcast_add(&bias.detach())?)? {
        Some(sum) => Ok(sum),
        None => x.broadcast_add(&bias),
    }
}
