//! Matrix products. A factor without a gradient costs none: candle computes and keeps one.

use candle_core::quantized::QMatMul;
use candle_core::{bail, Module, Result, Tensor};
use candle_nn::Linear;

use super::node::{attach, Step};
use super::shape::{rows, sum_to};

/// [`Tensor::matmul`], with gradients for the factors that have one.
///
/// ```
/// use candle_core::{DType, Device, Tensor, Var};
///
/// let (cpu, f32) = (&Device::Cpu, DType::F32);
/// let (x, frozen) = (Var::ones((2, 3), f32, cpu)?, Tensor::ones((3, 4), f32, cpu)?);
/// let grads = hookpoint_grad::matmul(&x, &frozen)?.sum_all()?.backward()?;
/// assert_eq!(grads.get(&x).unwrap().to_vec2::<f32>()?, [[4.; 3]; 2]);
/// assert!(grads.get(&frozen).is_none());
/// assert!(x.matmul(&frozen)?.sum_all()?.backward()?.get(&frozen).is_some());
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    matmul_rule(a, b, a.detach().matmul(&b.detach())?)
}

/// [`Tensor::broadcast_matmul`], with gradients for the factors that have one.
pub fn broadcast_matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    matmul_rule(a, b, a.detach().broadcast_matmul(&b.detach())?)
}

pub(crate) fn matmul_rule(a: &Tensor, b: &Tensor, value: Tensor) -> Result<Tensor> {
    let (left, right) = (a.detach(), b.detach());
    attach("matmul", value, [a, b], move |step| {
        let da = step.when(0, || sum_to(&product(step.grad, &right.t()?)?, left.shape()))?;
        let db = step.when(1, || match right.rank() {
            // One matrix for all batches: a single product sums over them.
            2 => rows(&left)?.t()?.matmul(&rows(step.grad)?),
            _ => sum_to(&product(&left.t()?, step.grad)?, right.shape()),
        })?;
        Ok([da, db])
    })
}

fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match (a.rank(), b.rank()) {
        // One matrix for all batches is one product.
        (many, 2) if many > 2 && a.is_contiguous() => {
            let dims: Vec<usize> = a.dims().iter().take(many - 1).copied().chain([b.dim(1)?]).collect();
            rows(a)?.matmul(b)?.reshape(dims)
        }
        // Candle 0.11 multiplies wrongly where the first factor is transposed and the second broadcast.
        _ if a.dims().iter().rev().skip(2).ne(b.dims().iter().rev().skip(2)) => {
            a.contiguous()?.broadcast_matmul(b)
        }
        _ => a.matmul(b),
    }
}

/// A linear layer, `[.., in]` to `[.., out]`, with gradients for what has one. `weight` is `[out, in]`.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let layer = Linear::new(weight.detach(), bias.map(Tensor::detach));
    // Candle 0.11 multiplies wrongly what is transposed.
    linear_rule(x, weight, bias, layer.forward(&x.detach().contiguous()?)?)
}

pub(crate) fn linear_rule(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    value: Tensor,
) -> Result<Tensor> {
    let (input, matrix) = (x.detach(), weight.detach());
    let bias_shape = bias.map(|bias| bias.shape().clone());
    let backward = move |step: &Step<'_>| -> Result<[Option<Tensor>; 3]> {
        let grad = rows(step.grad)?;
        let dx = step.when(0, || grad.matmul(&matrix)?.reshape(input.shape()))?;
        let dw = step.when(1, || grad.t()?.matmul(&rows(&input)?))?;
        let db = step.when(2, || match &bias_shape {
            Some(shape) => sum_to(step.grad, shape),
            None => bail!("a linear layer without a bias has no gradient for one"),
        })?;
        Ok([dx, dw, db])
    };
    match bias {
        Some(bias) => attach("linear", value, [x, weight, bias], backward),
        None => attach("linear", value, [x, weight], move |step| {
            let [dx, dw, _] = backward(step)?;
            Ok([dx, dw])
        }),
    }
}

/// A product with quantized weights. Its gradient is that of the product with the weights as they are
/// stored; that candle also rounds the input on the way is not differentiated.
pub fn quantized_matmul(x: &Tensor, weight: &QMatMul) -> Result<Tensor> {
    quantized_rule(x, weight, weight.forward(&x.detach())?)
}

pub(crate) fn quantized_rule(x: &Tensor, weight: &QMatMul, value: Tensor) -> Result<Tensor> {
    let matrix = match weight {
        QMatMul::Tensor(matrix) => return linear_rule(x, matrix, None, value),
        weight => weight.clone(),
    };
    let input = x.detach();
    attach("quantized matmul", value, [x], move |step| {
        let weight = match &matrix {
            QMatMul::QTensor(weight) => weight.dequantize(input.device())?,
            QMatMul::Tensor(weight) | QMatMul::TensorF16(weight) => weight.clone(),
        };
        let grad = rows(step.grad)?.to_dtype(weight.dtype())?;
        Ok([Some(grad.matmul(&weight)?.reshape(input.shape())?.to_dtype(input.dtype())?)])
    })
}
