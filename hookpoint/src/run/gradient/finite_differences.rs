//! Modules that nobody can look into, where there is to be a backward pass: closures, trait objects,
//! types that are not annotated.
//!
//! Such a module is called as it is. If it gives no gradient it is called once more with its input laid
//! out with gaps, since candle's fused normalizations take the long way then, which has one. What it
//! gives is then compared with finite differences: candle has wrong gradients, and a path inside may be
//! blocked while another is not. Once for each module of a model, within a few percent.

use std::cell::{Cell, RefCell};

use candle_core::{DType, Result as Candle, Tensor, Var, D};

use super::Gradient;
use crate::erased::paused;
use crate::error::{ErrorKind, Result};
use crate::run::{anew, RunState};
use crate::tree::NodeId;

type Forward<'f> = &'f dyn Fn(&Tensor) -> Option<Candle<Tensor>>;

impl RunState<'_> {
    /// The output of a foreign module, with the right gradient; none where the call is to be made as it
    /// is written. `is_right` says that the module is one of candle's whose gradient is right.
    pub(in crate::run) fn differentiable(
        &self,
        gradient: &Gradient,
        node: NodeId,
        is_right: bool,
        input: &Tensor,
        forward: anew::Forward<'_>,
    ) -> Result<Option<Candle<Tensor>>> {
        if is_right || !gradient.wants_gradient_of(input) {
            return Ok(forward(input));
        }
        // Some calls cannot be made a second time.
        let (forward, refuses) = (RefCell::new(forward), Cell::new(false));
        let forward = |x: &Tensor| {
            let made = forward.borrow_mut()(x);
            refuses.set(made.is_none());
            made
        };
        let forward: Forward<'_> = &forward;
        let Some(output) = forward(input) else { return Ok(None) };
        let passes = |output: &Tensor| !output.dtype().is_float() || output.track_op();
        let long_way = |x: &Tensor| match with_gaps(x) {
            Ok(x) => forward(&x),
            Err(error) => Some(Err(error)),
        };
        let (output, forward): (_, Forward<'_>) = match output {
            Ok(output) if passes(&output) => (output, forward),
            // An error too: candle's fused kernels do not know all dtypes.
            other => match long_way(input) {
                Some(Ok(output)) if passes(&output) => (output, &long_way),
                _ => return Ok(Some(other)),
            },
        };
        if output.dtype().is_float() && self.tree.compare_once(node) && !agrees(input, forward)? {
            let reason = "whose gradient does not agree with finite differences (candle has wrong \
                          gradients for some operations; annotate the type, or use `hookpoint_grad` in it)";
            let operations = vec![format!("{}, {reason}", self.shown(node))];
            return Err(ErrorKind::GradientLost { operations }.into());
        }
        if refuses.get() {
            let reason =
                "which is called in a way that cannot be repeated, so that its gradient cannot be checked \
                          (call it through a reference, as in `let layer = &layer;`, or annotate its type)";
            let operations = vec![format!("{}, {reason}", self.shown(node))];
            return Err(ErrorKind::GradientLost { operations }.into());
        }
        Ok(Some(Ok(output)))
    }
}

/// The same numbers, not contiguous.
fn with_gaps(x: &Tensor) -> Candle<Tensor> {
    if x.rank() == 0 {
        return Ok(x.clone());
    }
    let width = x.dim(D::Minus1)?;
    let twice = Tensor::cat(&[x, &x.detach()], D::Minus1)?;
    twice.narrow(D::Minus1, 0, width)
}

/// Does the gradient agree with finite differences? The difference along a direction is taken as the
/// weight of the output, so that what is compared is never small by chance.
fn agrees(input: &Tensor, forward: Forward<'_>) -> Result<bool> {
    let double = input.dtype() == DType::F64;
    let half = matches!(input.dtype(), DType::F16 | DType::BF16);
    let (step, tolerance) = match (double, half) {
        (true, _) => (1e-6, 1e-3),
        (_, true) => (5e-2, 2e-1),
        _ => (2e-3, 3e-2),
    };
    // A kink in the way of one direction is not in the way of another; what is rounded to half precision
    // inside changes in steps.
    for (seed, step, tolerance) in [(1, step, tolerance), (2, step / 4., tolerance), (3, 5e-2, 1e-1)] {
        match ratio(input, forward, seed, step)? {
            Some(ratio) if (ratio - 1.).abs() <= tolerance => return Ok(true),
            None => return Ok(true),
            Some(_) => {}
        }
    }
    Ok(false)
}

/// What the gradient says of the change along a direction, divided by the change; none where nothing
/// changes.
fn ratio(input: &Tensor, forward: Forward<'_>, seed: u32, step: f64) -> Result<Option<f64>> {
    let wide = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let x = input.detach().contiguous()?;
    let size = x.to_dtype(DType::F64)?.sqr()?.mean_all()?.to_scalar::<f64>()?.sqrt();
    let step = step * if size > 0. { size } else { 1. };
    let along = signs(&x, seed)?;
    let at = |by: f64| paused(|| forward(&(&x + (&along * by)?)?).transpose()).map(|y| y.map(|y| y.detach()));
    let (Some(ahead), Some(behind)) = (at(step)?, at(-step)?) else { return Ok(None) };
    if ahead.dims() != behind.dims() {
        return Ok(None);
    }
    let change = ((ahead.to_dtype(wide)? - behind.to_dtype(wide)?)? / (2. * step))?;
    let square = change.sqr()?.to_dtype(DType::F64)?.sum_all()?.to_scalar::<f64>()?;
    if square == 0. || !square.is_finite() {
        return Ok(None);
    }
    let variable = Var::from_tensor(&x)?;
    let Some(output) = forward(&variable).transpose()? else { return Ok(None) };
    let grads = (output.to_dtype(wide)? * &change)?.sum_all()?.backward()?;
    let Some(grad) = grads.get(&variable) else { return Ok(Some(0.)) };
    let said = (grad.to_dtype(wide)? * along.to_dtype(wide)?)?.sum_all()?.to_dtype(DType::F64)?;
    Ok(Some(said.to_scalar::<f64>()? / square))
}

/// Ones and minus ones, the same in every run.
fn signs(like: &Tensor, seed: u32) -> Candle<Tensor> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        if state & 0x1_0000 == 0 {
            1f32
        } else {
            -1.
        }
    };
    let signs: Vec<f32> = std::iter::repeat_with(next).take(like.elem_count()).collect();
    Tensor::from_vec(signs, like.shape(), like.device())?.to_dtype(like.dtype())
}
