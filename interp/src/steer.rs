//! Steering: a direction in which a model is pushed.

use candle_core::{DType, Tensor};
use hookpoint::{
    track::{Over, Tracker},
    AutoHook, BoxedError, ErrorKind, HookCtx, Hooked, IntoPatterns, Result,
};

/// A direction at a point: what differs there, on average, between two sets of inputs.
///
/// It is a vector of the size of the last dimension, the features. All rows and positions count the same;
/// an index says which of them are meant, as in `blocks.3:resid_post[:, -1]`.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint_interp::SteeringVector;
///
/// let inputs = |numbers: [[f32; 2]; 2]| numbers.map(|row| Tensor::new(&[row], &Device::Cpu).unwrap());
/// let more = inputs([[1., 4.], [1., 6.]]);
/// let less = inputs([[1., 1.], [1., 3.]]);
/// let steering = SteeringVector::between(&model, "up", more, less, |m, x| m.forward(&x))?;
/// assert_eq!(steering.vector().to_vec1::<f32>()?, [0., 3.]);
///
/// let plan = model.plan().hook("up", steering.hook(2.))?;
/// assert_eq!(plan.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[1., 4.]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SteeringVector {
    point: String,
    /// `[features]`, in f32.
    vector: Tensor,
}

impl SteeringVector {
    /// The mean at `point` over `towards`, less that over `away_from`. `run` runs the model with one input.
    pub fn between<M, B, T, E>(
        model: &Hooked<M>,
        point: impl IntoPatterns,
        towards: impl IntoIterator<Item = B>,
        away_from: impl IntoIterator<Item = B>,
        mut run: impl FnMut(&M, B) -> std::result::Result<T, E>,
    ) -> Result<Self>
    where
        M: AutoHook,
        E: Into<BoxedError>,
    {
        let point = point.into_patterns()?;
        let (name, towards) = mean_at(model, &point, "towards", towards, &mut run)?;
        let (_, away_from) = mean_at(model, &point, "away from", away_from, &mut run)?;
        if towards.dims() != away_from.dims() {
            return Err(ErrorKind::Shape {
                point: name,
                what: "the mean of the inputs to steer away from".to_string(),
                expected: towards.dims().to_vec(),
                found: away_from.dims().to_vec(),
                remedy: "steer at a point whose last dimension is always the same".to_string(),
            }
            .into());
        }
        let vector = (towards - away_from)?.to_dtype(DType::F32)?;
        Ok(Self { point: name, vector })
    }

    /// A direction that was found otherwise: `[features]`, for this point.
    pub fn new(point: impl Into<String>, vector: &Tensor) -> Result<Self> {
        if vector.rank() != 1 {
            return Err(ErrorKind::InvalidArgument {
                argument: "a steering vector".to_string(),
                got: format!("a tensor of shape {:?}", vector.dims()),
                remedy: "give one dimension, the features".to_string(),
            }
            .into());
        }
        Ok(Self { point: point.into(), vector: vector.to_dtype(DType::F32)? })
    }

    /// The point where it was found.
    pub fn point(&self) -> &str {
        &self.point
    }

    /// The direction, `[features]` in f32.
    pub fn vector(&self) -> &Tensor {
        &self.vector
    }

    /// Its length.
    pub fn norm(&self) -> Result<f64> {
        Ok(f64::from(self.vector.sqr()?.sum_all()?.sqrt()?.to_scalar::<f32>()?))
    }

    /// The same direction with length 1. An error where it has none, because both sets gave the same.
    pub fn normalized(&self) -> Result<Self> {
        let norm = self.norm()?;
        if !(norm.is_finite() && norm > 0.) {
            return Err(ErrorKind::InvalidArgument {
                argument: format!("the steering vector of `{}`", self.point),
                got: format!("normalized: its length is {norm}, so it has no direction"),
                remedy: "steer between inputs that differ there".to_string(),
            }
            .into());
        }
        Ok(Self { point: self.point.clone(), vector: (&self.vector / norm)? })
    }

    /// A hook that adds the direction, so many times, to all that it is given. In a generation this is
    /// every step; [`Steps::limit`](hookpoint::Steps::limit) takes some of them.
    pub fn hook(
        &self,
        strength: f64,
    ) -> impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + Clone + Send + Sync + 'static {
        let vector = self.vector.clone();
        move |ctx, value| {
            if value.dims().last() != vector.dims().last() {
                return Err(ErrorKind::Shape {
                    point: ctx.path().to_string(),
                    what: "the steering vector".to_string(),
                    expected: value.dims().to_vec(),
                    found: vector.dims().to_vec(),
                    remedy: "steer where the last dimension has as many features".to_string(),
                }
                .into());
            }
            let push = ctx.converted("the steering vector", &(&vector * strength)?, value.dtype())?;
            let push = push.to_device(value.device())?;
            Ok(Some(value.broadcast_add(&push)?))
        }
    }
}

fn mean_at<M: AutoHook, B, T, E: Into<BoxedError>>(
    model: &Hooked<M>,
    point: &[hookpoint::Pattern],
    which: &str,
    inputs: impl IntoIterator<Item = B>,
    run: impl FnMut(&M, B) -> std::result::Result<T, E>,
) -> Result<(String, Tensor)> {
    let mut tracker = Tracker::new().reduce(point, Over::AllButLast)?;
    tracker.run_all(model, inputs, run)?;
    let names: Vec<&str> = tracker.reduced().collect();
    match names.as_slice() {
        [name] => Ok((name.to_string(), tracker.stats(name)?.mean().clone())),
        [] => Err(ErrorKind::NoInputs { purpose: format!("to steer {which}") }.into()),
        several => Err(ErrorKind::Ambiguous {
            key: point.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            candidates: several.iter().map(ToString::to_string).collect(),
        }
        .into()),
    }
}
