//! Activations whose gradients candle computes with constants of six digits and, in half precision, with
//! an overflow. These are exact, and need fewer steps.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

use candle_core::{Result, Tensor};

use super::node::attach;
use super::shape::precise;

/// [`Tensor::gelu`] with an exact gradient.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    gelu_rule(x, x.detach().gelu()?)
}

/// [`Tensor::gelu_erf`] with an exact gradient.
pub fn gelu_erf(x: &Tensor) -> Result<Tensor> {
    gelu_erf_rule(x, x.detach().gelu_erf()?)
}

/// With t = tanh(u) and u = a (x + b x³): dx = dy ((1 + t) / 2 + x (1 - t²) (a + 3 a b x²) / 2).
pub(crate) fn gelu_rule(x: &Tensor, value: Tensor) -> Result<Tensor> {
    let input = x.detach();
    attach("gelu", value, [x], move |step| {
        let (a, b) = ((2. / PI).sqrt(), 0.044_715);
        let x = precise(&input)?;
        let square = x.sqr()?;
        let t = (&x * square.affine(a * b, a)?)?.tanh()?;
        let slope = (t.sqr()?.affine(-1., 1.)? * square.affine(1.5 * a * b, 0.5 * a)?)?;
        let dx = ((x * slope)? + t.affine(0.5, 0.5)?)?;
        Ok([Some((dx * precise(step.grad)?)?.to_dtype(input.dtype())?)])
    })
}

/// dx = dy (Φ(x) + x φ(x)), with the normal distribution and its density.
pub(crate) fn gelu_erf_rule(x: &Tensor, value: Tensor) -> Result<Tensor> {
    let input = x.detach();
    attach("gelu_erf", value, [x], move |step| {
        let x = precise(&input)?;
        let below = (&x * FRAC_1_SQRT_2)?.erf()?.affine(0.5, 0.5)?;
        let density = (x.sqr()? * -0.5)?.exp()?.affine(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2, 0.)?;
        let dx = (below + (x * density)?)?;
        Ok([Some((dx * precise(step.grad)?)?.to_dtype(input.dtype())?)])
    })
}
