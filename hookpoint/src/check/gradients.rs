//! Gradients against finite differences.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use candle_core::{DType, Device, Tensor};

use crate::access::{Access, Again, Lent};
use crate::cache::ActivationCache;
use crate::error::{BoxedError, Error, ErrorKind, Result};
use crate::pattern::Pattern;
use crate::plan::{judge, Judged, Measured, Plan, Precision};
use crate::run::{HookCtx, Listens};
use crate::select::{no_match, IntoPatterns};
use crate::tree::{AutoHook, HookDict};
use crate::value::{HookValue, Place};

/// Compares the gradients at the points of a model with finite differences.
///
/// What the closure returns is made one number, in which every element of every output plays a part. At each
/// point that a run reaches and whose value is a float, the gradient along a random direction is compared
/// with how that number changes when a hook moves the value in that direction. Where there is no gradient,
/// it must not change. The model is run four times for each call of each point, so a small input is best;
/// in `f64` the differences are exact enough to show any mistake. Candle's fused norms know no `f64`, so that
/// models with them cannot be run in it; here, as in all runs with a backward pass, they can.
///
/// `model` is `&Hooked<M>`, or `&mut Hooked<M>` where forward takes `&mut self`; the closure should then begin with
/// clearing the state that the model keeps from run to run.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let report = hookpoint::check_gradients(&model).run(|m| m.forward(&x))?;
/// assert!(report.passed(), "{report}");
/// assert_eq!(report.points().count(), 7); // `up`, `down`, the root, `:x`, `:hidden`, `up:in` and `down:in`
///
/// let report = hookpoint::check_gradients(&model).points("up")?.run(|m| m.forward(&x))?;
/// assert_eq!(report.points().count(), 1);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn check_gradients<M: AutoHook, H: Access<M>>(model: H) -> GradientCheck<M, H> {
    GradientCheck { model, points: None, of: PhantomData }
}

/// A check of gradients that is to be made: see [`check_gradients`].
#[must_use = "nothing is checked before `run`"]
pub struct GradientCheck<M, H> {
    model: H,
    points: Option<Vec<Pattern>>,
    of: PhantomData<fn() -> M>,
}

impl<M: AutoHook, H: Access<M>> GradientCheck<M, H> {
    /// Only the points that these patterns select, instead of all.
    pub fn points(mut self, patterns: impl IntoPatterns) -> Result<Self> {
        self.points.get_or_insert_default().extend(patterns.into_patterns()?);
        Ok(self)
    }

    /// Makes the check. `f` runs the model, always with the same input.
    pub fn run<T, E, F>(mut self, mut f: F) -> Result<GradientReport>
    where
        T: HookValue,
        E: Into<BoxedError>,
        F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<T, E>,
    {
        let points = match self.points.take() {
            Some(points) => points,
            None => ["**", "**:*"].into_patterns()?,
        };
        compare(&points, &mut |ask| {
            let plan = Plan::of(Again(&mut self.model));
            Ok(match ask {
                Ask::Scan => {
                    let scan = plan.scan_as(Listens::REHEARSAL, |model| sized(f(model)))?;
                    let (loss, size) = scan.output;
                    Answer { loss, size, dict: Some(scan.dict), ..Answer::default() }
                }
                Ask::Gradients(names) => {
                    let run = wanting(plan, names)?.backward(|model| loss(f(model)))?;
                    Answer {
                        loss: number(&run.loss)?,
                        cache: run.cache,
                        grads: run.grads,
                        ..Answer::default()
                    }
                }
                Ask::Moved(name, by) => {
                    let run = moving(plan, name, by)?.run_as(Listens::GRADIENT, |model| loss(f(model)))?;
                    Answer { loss: number(&run.output)?, ..Answer::default() }
                }
            })
        })
    }
}

/// What [`check_gradients`] has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GradientReport {
    compared: Vec<Compared>,
    skipped: Vec<String>,
}

/// One point, in one call of it.
#[derive(Clone, Debug)]
struct Compared {
    name: String,
    slope: f64,
    difference: f64,
    off: f64,
    is_right: bool,
}

impl GradientReport {
    /// Do all gradients agree with finite differences? Of values in `f64` to four digits, of others to
    /// what their precision allows.
    pub fn passed(&self) -> bool {
        !self.compared.is_empty() && self.compared.iter().all(|point| point.is_right)
    }

    /// The points that were compared, as in `blocks.0#1` for the second call of `blocks.0`, and how far the
    /// gradient is off: 0 where it agrees, 1 where it is off by as much as it is long.
    pub fn points(&self) -> impl Iterator<Item = (&str, f64)> {
        self.compared.iter().map(|point| (point.name.as_str(), point.off))
    }

    /// The points whose gradient is wrong.
    pub fn wrong(&self) -> impl Iterator<Item = &str> {
        self.compared.iter().filter(|point| !point.is_right).map(|point| point.name.as_str())
    }

    /// The points whose value cannot be replaced, and so has no gradient of its own.
    pub fn skipped(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().map(String::as_str)
    }
}

impl fmt::Display for GradientReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrong = self.compared.iter().filter(|point| !point.is_right);
        writeln!(f, "{} points compared, {} wrong", self.compared.len(), wrong.clone().count())?;
        for Compared { name, slope, difference, off, .. } in wrong {
            writeln!(
                f,
                "  {name}: the gradient says {slope:.6e}, differences {difference:.6e} (off by {off:.1e})"
            )?;
        }
        Ok(())
    }
}

/// What is to be run.
enum Ask<'a> {
    Scan,
    Gradients(&'a [String]),
    /// With the value of a point moved along its direction by so many times its size.
    Moved(&'a str, f64),
}

#[derive(Default)]
struct Answer {
    loss: f64,
    /// How large the numbers are that the loss is a sum of, which is what rounding errors grow with.
    size: f64,
    dict: Option<HookDict>,
    cache: ActivationCache,
    grads: ActivationCache,
}

fn compare(points: &[Pattern], run: &mut dyn FnMut(Ask<'_>) -> Result<Answer>) -> Result<GradientReport> {
    let scanned = run(Ask::Scan)?;
    let dict = scanned.dict.unwrap_or_default();
    for pattern in points {
        if dict.iter().all(|entry| !means(pattern, entry.name())) {
            return Err(no_match(&pattern.to_string(), dict.keys()));
        }
    }
    let mut names = Vec::new();
    for entry in dict.iter().filter(|entry| points.iter().any(|pattern| means(pattern, entry.name()))) {
        if entry.dtype().is_some_and(|dtype| dtype.is_float()) {
            names.extend((0..entry.calls()).map(|call| format!("{}#{call}", entry.name())));
        }
    }
    let mut skipped = Vec::new();
    if names.is_empty() {
        return Ok(GradientReport { compared: Vec::new(), skipped });
    }
    let found = loop {
        match run(Ask::Gradients(&names)) {
            Ok(found) => break found,
            // The error says which one it is. There are as many rounds as there are such points.
            Err(error) => match error.kind() {
                ErrorKind::NotReplaceable { point, .. }
                    if names.iter().any(|name| is_call_of(name, point)) =>
                {
                    names.retain(|name| !is_call_of(name, point));
                    skipped.push(point.clone());
                }
                _ => return Err(error),
            },
        }
    };
    // A value that was a repetition of a smaller one is laid out, and sums of it may differ in the last bits.
    if (found.loss - scanned.loss).abs() > 1e-5 * (1. + scanned.loss.abs()) {
        return Err(ErrorKind::LossDiffers { plain: scanned.loss, differentiated: found.loss }.into());
    }
    let mut compared = Vec::new();
    for name in names {
        let of = |cache: &ActivationCache| {
            let (own, call) = name.rsplit_once('#')?;
            cache.exact_call(own, call.parse().ok()?).cloned()
        };
        let Some(value) = of(&found.cache).filter(|value| value.elem_count() > 0) else { continue };
        let grad = of(&found.grads);
        let (slope, length) = grad.as_ref().map_or(Ok((0., 0.)), |grad| along(grad, &value))?;
        // The direction may be nearly at right angles to the gradient: what counts is how long that is.
        let size = length.max(slope.abs());
        let base = run(Ask::Moved(&name, 0.))?.loss;
        let precision = Precision::of(value.dtype());
        let measured = Measured { base, size, magnitude: scanned.size, precision };
        // The loss is moved by as much as a step goes, after rounding; what the gradient says of that.
        let judged = judge(&measured, &mut |step| {
            let said = grad.as_ref().map_or(Ok(0.), |grad| said(grad, &value, step))?;
            Ok((run(Ask::Moved(&name, step))?.loss, said))
        })?;
        let (off, difference, is_right) = match judged {
            Judged::Agrees { off } => (off, slope, true),
            Judged::Kink => (0., slope, true),
            Judged::Unsettled { off, difference, agrees, .. } => (off, difference, agrees),
            Judged::Wrong { off, difference } | Judged::Beside { off, difference } => {
                (off, difference, false)
            }
        };
        compared.push(Compared { name, slope, difference, off, is_right });
    }
    Ok(GradientReport { compared, skipped })
}

fn is_call_of(name: &str, point: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(own, _)| own == point)
}

fn means(pattern: &Pattern, name: &str) -> bool {
    let Ok(own) = name.parse::<Pattern>() else { return false };
    let segments = own.literal_path().unwrap_or_default();
    pattern.matches_path(&segments) && pattern.matches_value(own.value().unwrap_or("out"))
}

fn wanting<'a, M: AutoHook, H: Access<M>>(plan: Plan<'a, M, H>, names: &[String]) -> Result<Plan<'a, M, H>> {
    plan.allow_unfired().cache(names)?.cache_grad(names)
}

fn moving<'a, M: AutoHook, H: Access<M>>(
    plan: Plan<'a, M, H>,
    name: &'a str,
    by: f64,
) -> Result<Plan<'a, M, H>> {
    let moved = Cell::new(false);
    plan.allow_unfired().hook(name, move |ctx: &HookCtx<'_>, x: &Tensor| {
        // `:parts` stands for all parts, and the gradient is of the first. Two methods `forward*` of one module
        // may have values of one name, and the cache has the first.
        if !is_call_of(name, ctx.path()) || moved.replace(true) {
            return Ok(None);
        }
        Ok(Some(moved_by(x, by)?))
    })
}

/// The value, moved along its direction.
fn moved_by(value: &Tensor, by: f64) -> Result<Tensor> {
    Ok((value + (direction(value)? * by)?.to_dtype(value.dtype())?)?)
}

/// What the gradient says of a move.
fn said(grad: &Tensor, value: &Tensor, step: f64) -> Result<f64> {
    let way = (moved_by(value, step)?.to_dtype(DType::F64)? - value.to_dtype(DType::F64)?)?;
    // What is infinite, as in a mask, does not move.
    let way = way.eq(&way)?.where_cond(&way, &way.zeros_like()?)?;
    number(&grad.to_dtype(DType::F64)?.mul(&way)?.sum_all()?)
}

/// The slope along the direction, and how long the gradient is there.
fn along(grad: &Tensor, value: &Tensor) -> Result<(f64, f64)> {
    let way = grad.to_dtype(DType::F64)?.mul(&direction(value)?)?;
    Ok((number(&way.sum_all()?)?, number(&way.sqr()?.sum_all()?)?.sqrt()))
}

/// In every place the size that values have here, with one sign or the other.
fn direction(value: &Tensor) -> Result<Tensor> {
    let numbers = value.detach().to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
    // The median, since a mask has numbers that are larger than all others, and a relu leaves zeros.
    let mut sizes: Vec<f64> = numbers.iter().map(|number| number.abs()).filter(|size| *size > 0.).collect();
    sizes.sort_by(f64::total_cmp);
    let size = sizes.get(sizes.len() / 2).map_or(1., |size| size.clamp(1e-3, 10.));
    signs(value.dims(), size, value.device())
}

fn signs(dims: &[usize], size: f64, device: &Device) -> Result<Tensor> {
    let mut state = 7u64;
    let mut next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (state >> 40) & 1 == 0 {
            size
        } else {
            -size
        }
    };
    let signs: Vec<f64> = (0..dims.iter().product::<usize>()).map(&mut next).collect();
    Ok(Tensor::from_vec(signs, dims, device)?)
}

/// One number in which every element of the output plays a part.
pub(super) fn loss<T: HookValue, E: Into<BoxedError>>(output: std::result::Result<T, E>) -> Result<Tensor> {
    Ok(summed(output)?.0)
}

/// The same as a number, and the length of all that it is a sum of, 1 at least.
fn sized<T: HookValue, E: Into<BoxedError>>(output: std::result::Result<T, E>) -> Result<(f64, f64)> {
    let (loss, square) = summed(output)?;
    Ok((number(&loss)?, (1. + number(&square)?).sqrt()))
}

/// The sum of all elements of the output, each with a sign, and of their squares.
fn summed<T: HookValue, E: Into<BoxedError>>(output: std::result::Result<T, E>) -> Result<(Tensor, Tensor)> {
    let mut output = output.map_err(|error| Error::from_boxed(error.into()))?;
    let mut sums: Option<(Tensor, Tensor)> = None;
    output.each_tensor(&mut Place::default(), &mut |_, tensor| {
        if tensor.dtype().is_float() {
            let tensor = tensor.to_dtype(DType::F64)?;
            let sum = tensor.mul(&signs(tensor.dims(), 1., tensor.device())?)?.sum_all()?;
            let square = tensor.detach().sqr()?.sum_all()?;
            sums = Some(match sums.take() {
                Some((sums, squares)) => ((sums + sum)?, (squares + square)?),
                None => (sum, square),
            });
        }
        Ok(())
    })?;
    sums.ok_or_else(|| ErrorKind::NoFloatOutput.into())
}

fn number(loss: &Tensor) -> Result<f64> {
    Ok(loss.to_scalar()?)
}
