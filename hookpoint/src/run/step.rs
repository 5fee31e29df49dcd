//! Says where a generation is, and limits hooks to some of its steps.

use std::ops::Range;

use candle_core::Tensor;

use super::{current, HookCtx, RunState};
use crate::error::{ErrorKind, Result};
use crate::point::Step;

/// Runs `f`, usually one forward pass, as a step of a generation. Hooks inside are told; where nobody
/// listens, nothing happens.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::{with_step, Step};
///
/// let plan = model.plan().hook("up", |ctx, _| {
///     let step = ctx.step().unwrap();
///     assert_eq!(step.positions, step.number..step.number + 1);
///     Ok(None)
/// })?;
/// plan.run(|m| {
///     for number in 0..3 {
///         with_step(Step { number, positions: number..number + 1, prompt: 1 }, || m.forward(&x))?;
///     }
///     candle_core::Result::Ok(())
/// })?;
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn with_step<T>(step: Step, f: impl FnOnce() -> T) -> T {
    /// Puts back the step before, on return and panic alike.
    struct Restore(Option<Step>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            current(|state| state.act.step.replace(before));
        }
    }
    let _restore = Restore(current(|state| state.act.step.replace(Some(step))).flatten());
    f()
}

impl RunState<'_> {
    pub(super) fn step(&self) -> Option<Step> {
        self.act.step.borrow().clone()
    }
}

/// Some steps of a generation, by the positions that are new in them. A hook that is limited to them
/// sees and changes these positions only, and does so whenever they are computed: with a KV cache once,
/// without one again at every later step. So the text is the same either way.
///
/// ```
/// use candle_core::{DType, Device, Result, Tensor};
/// use candle_nn::{Linear, Module};
/// use hookpoint::prelude::*;
/// use hookpoint::{with_step, Step, Steps};
///
/// #[derive(AutoHook)]
/// struct Layer { linear: Linear }
///
/// #[auto_hook]
/// impl Layer {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         self.linear.forward(x)
///     }
/// }
///
/// let layer = Layer { linear: Linear::new(Tensor::eye(1, DType::F32, &Device::Cpu)?, None) };
/// let model = Hooked::new(layer);
/// let plan = model.plan().hook("linear", Steps::only(1).limit(|_, x| Ok(Some((x + 10.)?))))?;
///
/// // [batch, pos, 1]: a prompt of two positions and one that was generated, all in one pass.
/// let x = Tensor::zeros((1, 3, 1), DType::F32, &Device::Cpu)?;
/// let step = Step { number: 1, positions: 0..3, prompt: 2 };
/// let run = plan.run(|m| with_step(step, || m.forward(&x)))?;
/// assert_eq!(run.output.to_vec3::<f32>()?, [[[0.], [0.], [10.]]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    which: Which,
    dim: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    Numbers(Range<usize>),
    Every,
}

impl Steps {
    /// The prompt alone.
    pub fn prompt() -> Self {
        Self::only(0)
    }

    /// The one step of this number; 0 is the prompt.
    pub fn only(number: usize) -> Self {
        Self::between(number..number.saturating_add(1))
    }

    /// The steps of these numbers: `1..usize::MAX` is all that is generated.
    pub fn between(numbers: Range<usize>) -> Self {
        Self { which: Which::Numbers(numbers), dim: 1 }
    }

    /// Every step.
    pub fn every() -> Self {
        Self { which: Which::Every, dim: 1 }
    }

    /// Which dimension of the value counts positions, where it is not the second: 2 for attention
    /// patterns of `[batch, head, query, key]`.
    pub fn along(mut self, dim: usize) -> Self {
        self.dim = dim;
        self
    }

    /// The hook, limited to these steps. A plan whose hook finds nothing to do in a whole run is an
    /// error, as for every hook that is never reached. A run that is no generation is all prompt.
    pub fn limit<'a, F>(self, hook: F) -> impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + 'a
    where
        F: Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + 'a,
    {
        move |ctx, value| {
            let Some(window) = self.window(ctx, value)? else { return ctx.pass() };
            if window.len() == value.dim(self.dim)? {
                return hook(ctx, value);
            }
            let part = value.narrow(self.dim, window.start, window.len())?.contiguous()?;
            let Some(new) = hook(ctx, &part)? else { return Ok(None) };
            if new.dims() != part.dims() {
                return Err(ErrorKind::Shape {
                    point: ctx.path().to_string(),
                    what: "what the hook returned".to_string(),
                    expected: part.dims().to_vec(),
                    found: new.dims().to_vec(),
                    remedy: "return a tensor of the same shape as the hook was given".to_string(),
                }
                .into());
            }
            let new =
                ctx.converted("what the hook returned", &new, value.dtype())?.to_device(value.device())?;
            let rest = value.dim(self.dim)? - window.end;
            let before = value.narrow(self.dim, 0, window.start)?;
            let after = value.narrow(self.dim, window.end, rest)?;
            let parts: Vec<Tensor> =
                [before, new, after].into_iter().filter(|t| t.elem_count() > 0).collect();
            Ok(Some(Tensor::cat(&parts, self.dim)?))
        }
    }

    /// The positions of `value` that belong to these steps.
    fn window(&self, ctx: &HookCtx<'_>, value: &Tensor) -> Result<Option<Range<usize>>> {
        let Some(&count) = value.dims().get(self.dim) else {
            return Err(ErrorKind::NoDimension {
                point: ctx.path().to_string(),
                dim: self.dim as isize,
                shape: value.dims().to_vec(),
                remedy: "name the dimension that counts positions with `.along(..)`, and remove the index from the \
                         pattern"
                    .to_string(),
            }
            .into());
        };
        let whole = Step { number: 0, positions: 0..count, prompt: count };
        let step = ctx.step().unwrap_or(&whole);
        if step.positions.len() != count {
            return Err(ErrorKind::NotPositions {
                point: ctx.path().to_string(),
                dim: self.dim,
                shape: value.dims().to_vec(),
                positions: step.positions.len(),
            }
            .into());
        }
        let Which::Numbers(numbers) = &self.which else { return Ok(Some(0..count)) };
        // Step 0 brings all of the prompt, every later one a single position.
        let first = |number: usize| match number {
            0 => 0,
            number => step.prompt.saturating_add(number - 1),
        };
        let start = first(numbers.start).clamp(step.positions.start, step.positions.end);
        let end = first(numbers.end).clamp(start, step.positions.end);
        let offset = step.positions.start;
        Ok((start < end).then(|| start - offset..end - offset))
    }
}
