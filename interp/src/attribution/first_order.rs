//! One backward pass for all points.

use candle_core::Tensor;
use hookpoint::{
    ActivationCache, AutoHook, BoxedError, Error, ErrorKind, Hooked, IntoPatterns, Pattern, Result,
};

use super::result::{number, Attribution};

/// What patching each point of the corrupted run with its value in the clean run would change in the
/// metric, to first order: the gradient in the corrupted run times the difference of the values.
///
/// Both runs must reach the points equally often and with equal shapes. Where the metric is linear in a
/// point, the sum there is what patching it would show; [`integrated_gradients`](super::integrated_gradients)
/// is closer where it is not.
///
/// See the [module](super) for an example.
pub fn patching<M, T, E>(
    model: &Hooked<M>,
    clean: impl FnOnce(&M) -> std::result::Result<T, E>,
    corrupted: impl FnOnce(&M) -> std::result::Result<T, E>,
    metric: impl Fn(&T) -> std::result::Result<Tensor, E>,
    points: impl IntoPatterns,
) -> Result<Attribution>
where
    M: AutoHook,
    E: Into<BoxedError>,
{
    let points = points.into_patterns()?;
    let clean = Clean::of(model, clean, &metric, &points)?;
    let plan = model.plan().cache(&points)?.cache_grad(&points)?;
    let run = plan.differentiate(corrupted, |output, _| metric(output))?;
    let difference = clean.minus(&run.cache, &run.grads)?;
    let tensors = run.grads.combine(&difference, |grad, difference| grad.mul(difference))?;
    Attribution::new(tensors, number(&run.loss)?, Some(clean.metric))
}

/// The gradient of the metric at each point times the value there: to first order, what setting it to
/// zero would take away.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint_interp::attribution;
///
/// let metric = |output: &Tensor| (output.sum_all()? * 3.);
/// let found = attribution::gradient_x_activation(&model, |m| m.forward(&x), metric, ["up", "down"])?;
/// assert_eq!(found.tensors["up"].to_vec2::<f32>()?, [[3., 0.]]);
/// assert_eq!(found.ranked(), [("up", 3.), ("down", 3.)]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn gradient_x_activation<M, T, E>(
    model: &Hooked<M>,
    run: impl FnOnce(&M) -> std::result::Result<T, E>,
    metric: impl Fn(&T) -> std::result::Result<Tensor, E>,
    points: impl IntoPatterns,
) -> Result<Attribution>
where
    M: AutoHook,
    E: Into<BoxedError>,
{
    let points = points.into_patterns()?;
    let plan = model.plan().cache(&points)?.cache_grad(&points)?;
    let run = plan.differentiate(run, |output, _| metric(output))?;
    let tensors = run.grads.combine(&run.cache, |grad, value| grad.mul(value))?;
    Attribution::new(tensors, number(&run.loss)?, None)
}

/// The run whose values would be patched in.
pub(super) struct Clean {
    cache: ActivationCache,
    pub metric: f64,
}

impl Clean {
    pub fn of<M, T, E>(
        model: &Hooked<M>,
        run: impl FnOnce(&M) -> std::result::Result<T, E>,
        metric: impl Fn(&T) -> std::result::Result<Tensor, E>,
        points: &[Pattern],
    ) -> Result<Self>
    where
        M: AutoHook,
        E: Into<BoxedError>,
    {
        let run = model.plan().cache(points)?.run(run)?;
        let metric = metric(&run.output).map_err(|error| Error::other(error))?;
        Ok(Self { cache: run.cache, metric: number(&metric)? })
    }

    /// How the values differ from those of another run, at the points of `at`.
    pub fn minus(&self, corrupted: &ActivationCache, at: &ActivationCache) -> Result<ActivationCache> {
        for name in at.keys() {
            let (ours, theirs) = (self.cache.calls(name).len(), corrupted.calls(name).len());
            if ours != theirs {
                let point = name.to_string();
                return Err(ErrorKind::CallsDiffer { point, clean: ours, corrupted: theirs }.into());
            }
        }
        self.cache.combine(corrupted, |clean, corrupted| match clean.dtype().is_float() {
            true => clean.sub(corrupted),
            false => Ok(clean.clone()),
        })
    }
}
