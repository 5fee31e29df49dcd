//! Gradients along the way from one value to another.

use candle_core::Tensor;
use hookpoint::{ActivationCache, AutoHook, BoxedError, ErrorKind, Hooked, IntoPatterns, Result};

use super::first_order::Clean;
use super::result::{number, Attribution};

/// What patching each point of the corrupted run with its value in the clean run changes in the metric:
/// the gradient, averaged over `steps` values on the straight way from the corrupted to the clean one, times
/// their difference. The sum at a point comes to what patching it really changes, as `steps` grows.
///
/// Each point has `steps` runs of its own, in which it alone is changed. To attribute to a model's input,
/// as [Sundararajan and others](https://arxiv.org/abs/1703.01365) do, take `:in` as the point and a baseline
/// as the corrupted input.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint_interp::attribution;
///
/// let metric = |output: &Tensor| output.sqr()?.sum_all();
/// let baseline = x.zeros_like()?;
/// let run = |m: &Mlp, x: &Tensor| m.forward(x);
/// let found =
///     attribution::integrated_gradients(&model, |m| run(m, &x), |m| run(m, &baseline), metric, ":in", 8)?;
/// // From the square of 0 to that of 1. The gradient at the baseline alone would say 0.
/// assert!((found.sum(":in")? - 1.).abs() < 1e-6);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn integrated_gradients<M, T, E>(
    model: &Hooked<M>,
    clean: impl FnOnce(&M) -> std::result::Result<T, E>,
    corrupted: impl Fn(&M) -> std::result::Result<T, E>,
    metric: impl Fn(&T) -> std::result::Result<Tensor, E>,
    points: impl IntoPatterns,
    steps: usize,
) -> Result<Attribution>
where
    M: AutoHook,
    E: Into<BoxedError>,
{
    if steps == 0 {
        return Err(ErrorKind::InvalidArgument {
            argument: "the number of steps of integrated gradients".to_string(),
            got: "0".to_string(),
            remedy: "take at least one; 16 to 64 are usual".to_string(),
        }
        .into());
    }
    let points = points.into_patterns()?;
    let clean = Clean::of(model, clean, &metric, &points)?;
    // One run that finds out which of the points are floats, and where they start from.
    let plan = model.plan().cache(&points)?.cache_grad(&points)?;
    let start = plan.differentiate(&corrupted, |output, _| metric(output))?;
    let difference = clean.minus(&start.cache, &start.grads)?;
    let mut tensors = ActivationCache::new();
    for point in start.grads.keys() {
        let way = difference.only(point);
        let from = start.cache.only(point);
        let mut total: Option<ActivationCache> = None;
        for step in 0..steps {
            // The middle of each piece of the way.
            let share = (step as f64 + 0.5) / steps as f64;
            let here = from.combine(&way, |from, way| from.add(&way.affine(share, 0.)?))?;
            let plan = model.plan().patch_all(&here)?;
            let run = plan.cache_grad(point)?.differentiate(&corrupted, |output, _| metric(output))?;
            total = Some(match total {
                Some(total) => (&total + &run.grads)?,
                None => run.grads,
            });
        }
        let Some(total) = total else { continue };
        let mean = |sum: &Tensor, way: &Tensor| sum.affine(1. / steps as f64, 0.)?.mul(way);
        tensors.extend(&total.combine(&way, mean)?);
    }
    Attribution::new(tensors, number(&start.loss)?, Some(clean.metric))
}
