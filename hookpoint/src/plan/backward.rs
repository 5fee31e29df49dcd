//! Running a plan and differentiating what comes of it.

use std::rc::Rc;
use std::sync::Arc;

use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor, TensorId};
use candle_nn::Optimizer;

use super::certify::Certificate;
use super::finish::finished_run;
use super::spent::spent;
use super::{Plan, Run};
use crate::access::{Access, Lent};
use crate::cache::ActivationCache;
use crate::erased::ErasedMut;
use crate::error::{BoxedError, ErrorKind, Result};
use crate::lookup::FastMap;
use crate::run::{
    current, Action, Allows, BackwardCall, BackwardPass, Finished, HookCtx, IntoCaches, Listens, Nudge,
    Order, Request,
};
use crate::select::IntoPatterns;
use crate::tree::AutoHook;
use crate::value::DynamicOps;

/// What a run with a backward pass gives. Nothing in it keeps the graph of the run alive: the tensors are
/// detached, and the loss refuses to be differentiated again.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let run = model.plan().cache("up")?.cache_grad(["up", ":hidden"])?.backward(|m| m.forward(&x)?.sum_all())?;
/// assert_eq!(run.loss.to_scalar::<f32>()?, 1.);
/// assert_eq!(run.grads[":hidden"].to_vec2::<f32>()?, [[1., 1.]]);
/// assert_eq!(run.grads["up"].to_vec2::<f32>()?, [[1., 0.]]); // relu
/// assert_eq!(run.cache.grad("up")?.to_vec2::<f32>()?, [[1., 0.]]); // the same
/// assert_eq!(run.cache["up"].to_vec2::<f32>()?, [[1., -2.]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GradRun<T> {
    /// What the closure returned: with [`Plan::backward`] the loss.
    pub output: T,
    /// What was differentiated, to be read. Its own `backward`, and so an optimizer's `backward_step`, is an error:
    /// the gradients are here. To train with them, see [`step`](Self::step).
    pub loss: Tensor,
    /// What the plan's caches have kept. It has the gradients, too: see [`ActivationCache::grad`].
    pub cache: ActivationCache,
    /// The gradients that were asked for, by the names of their points, in the order of the forward pass.
    /// Points that are reached several times have a gradient for each call.
    pub grads: ActivationCache,
    variables: FastMap<TensorId, Tensor>,
    pub(super) certificate: Option<Certificate>,
    requests: Arc<[String]>,
    fired: Vec<usize>,
    skipped: Vec<Arc<str>>,
}

impl<T> GradRun<T> {
    /// The gradient of a variable that the loss was computed from: a weight of the model that is a
    /// [`Var`](candle_core::Var), or one that the closure has brought with it. None for other tensors.
    ///
    /// The point of a parameter is the *result* of the operation that uses it, and so is the gradient there.
    /// For the gradient of the parameter itself, make it a `Var` and ask for it here.
    pub fn grad_of(&self, variable: &Tensor) -> Option<&Tensor> {
        self.variables.get(&variable.id())
    }

    /// The gradients of all variables that the loss was computed from, as candle's optimizers take them.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// use candle_core::Var;
    ///
    /// let weight = Var::new(&[[3f32, 0.]], &Device::Cpu)?;
    /// let run = model.plan().backward(|m| (m.forward(&x)? * weight.as_tensor())?.sum_all())?;
    /// let mut grads = run.grad_store();
    /// // Clipped, for example, before `optimizer.step(&grads)`.
    /// let clipped = grads.get(&weight).map(|grad| grad.clamp(-0.5, 0.5)).transpose()?;
    /// grads.insert(&weight, clipped.unwrap());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn grad_store(&self) -> GradStore {
        let mut store = GradStore::default();
        for (id, grad) in &self.variables {
            store.insert_id(*id, grad.clone());
        }
        store
    }

    /// Has an optimizer of candle take its step with the gradients of this run.
    ///
    /// ```
    /// use candle_core::{DType, Device, Module, Result, Tensor};
    /// use candle_nn::{linear, Linear, Optimizer, VarBuilder, VarMap, SGD};
    /// use hookpoint::prelude::*;
    ///
    /// #[derive(AutoHook)]
    /// struct Line { layer: Linear }
    ///
    /// #[auto_hook]
    /// impl Module for Line {
    ///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
    ///         self.layer.forward(x)
    ///     }
    /// }
    ///
    /// let weights = VarMap::new();
    /// let layer = linear(2, 1, VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu))?;
    /// let model = Hooked::new(Line { layer });
    /// let mut optimizer = SGD::new(weights.all_vars(), 0.1)?;
    /// let x = Tensor::new(&[[1f32, -2.], [0.5, 1.]], &Device::Cpu)?;
    ///
    /// let plan = model.plan().cache_grad("layer")?;
    /// let mut losses = Vec::new();
    /// for _ in 0..10 {
    ///     let run = plan.backward(|m| (m.forward(&x)? - 1.)?.sqr()?.mean_all())?;
    ///     run.step(&mut optimizer)?;
    ///     losses.push(run.loss.to_scalar::<f32>()?);
    /// }
    /// assert!(losses[9] < 0.5 * losses[0]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the loss was computed from no variable, since the optimizer would then change nothing without a word, or if
    /// the optimizer fails.
    pub fn step(&self, optimizer: &mut impl Optimizer) -> Result<()> {
        if self.variables.is_empty() {
            return Err(ErrorKind::NothingToTrain.into());
        }
        Ok(optimizer.step(&self.grad_store())?)
    }

    /// How well the gradients agree with differences, where the plan was to [certify](Plan::certify) them.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// The plan's requests in order, as in `cache_grad("blocks.*")`, with how often each has fired in the
    /// forward pass.
    pub fn fired(&self) -> impl Iterator<Item = (&str, usize)> {
        self.requests.iter().map(String::as_str).zip(self.fired.iter().copied())
    }

    /// The modules that did not run, because their whole output was patched and nothing inside them was
    /// wanted.
    pub fn skipped(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().map(|name| &**name)
    }
}

/// # Gradients
///
/// Nothing in the model has to be a variable. Where a gradient is wanted, what the model goes on with
/// becomes the beginning of a graph; nothing is recorded for what comes before, and a run without a
/// backward pass records nothing at all. Values are what they are in any other run, bit for bit.
impl<'a, M: AutoHook, H: Access<M>> Plan<'a, M, H> {
    /// Keeps the gradients at the points that the patterns select, for [`backward`](Self::backward). With an
    /// index, only that part is kept. [`CacheOptions::at`](crate::CacheOptions::at) keeps them on another device or in another
    /// dtype.
    ///
    /// The gradient is that of the value with which the model went on, after hooks and patches. At an
    /// input it is what comes back through this module alone; at a parameter it is that of the result of
    /// the operation that uses the parameter, as the point is: for the gradient of the parameter itself,
    /// see [`GradRun::grad_of`].
    pub fn cache_grad(mut self, points: impl IntoCaches) -> Result<Self> {
        let (patterns, options) = points.into_caches()?;
        for pattern in patterns {
            self.request(pattern, Action::CacheGrad(options.clone()))?;
        }
        Ok(self)
    }

    /// Calls `hook` with the gradients at the selected points as the backward pass comes by. It may
    /// return a tensor of the same shape, with which the pass then goes on upstream.
    ///
    /// At one point hooks act in the order in which they were added, and what is kept by
    /// [`cache_grad`](Self::cache_grad) is what they leave. With an index the hook sees that part, and what it
    /// returns is put into its place.
    ///
    /// | in PyTorch | here |
    /// | --- | --- |
    /// | `register_full_backward_pre_hook` | `hook_grad("path", ..)`: the gradient of the output |
    /// | `register_full_backward_hook` | `hook_grad("path:in", ..)`: the gradient of the input |
    /// | the same, to look at inputs and outputs together | [`hook_backward`](Self::hook_backward) |
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let plan = model
    ///     .plan()
    ///     .cache_grad("up:in")?
    ///     .hook_grad("down[:, 0]", |ctx, grad| {
    ///         assert_eq!(ctx.path(), "down[:, 0]");
    ///         Ok(Some((grad * 5.)?))
    ///     })?;
    /// let run = plan.backward(|m| m.forward(&x)?.sum_all())?;
    /// assert_eq!(run.grads["up:in"].to_vec2::<f32>()?, [[5., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn hook_grad<F>(mut self, patterns: impl IntoPatterns, hook: F) -> Result<Self>
    where
        F: Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + 'a,
    {
        let hook: crate::run::HookFn<'a> = Rc::new(hook);
        for pattern in patterns.into_patterns()? {
            self.request(pattern, Action::HookGrad(hook.clone()))?;
        }
        Ok(self)
    }

    /// Calls `hook` once for each call of the selected modules, when the gradients of all its inputs and
    /// outputs are there. It sees them in the order of the inputs and outputs, and the inputs and outputs
    /// themselves. To change gradients, use [`hook_grad`](Self::hook_grad).
    ///
    /// See [`BackwardCall`] for an example.
    pub fn hook_backward<F>(mut self, patterns: impl IntoPatterns, hook: F) -> Result<Self>
    where
        F: Fn(&HookCtx<'_>, &BackwardCall<'_>) -> Result<()> + 'a,
    {
        let hook: crate::run::BackwardHookFn<'a> = Rc::new(hook);
        for pattern in patterns.into_patterns()? {
            self.request(pattern, Action::HookBackward(hook.clone()))?;
        }
        Ok(self)
    }

    /// Lets gradients end where they cannot pass: at a layer or an operation without a backward, at a `detach`
    /// in the model, and where the model reads numbers out of a tensor. Without this they are an error where a
    /// gradient is wanted of what comes before, since that gradient lacks what would have come this way.
    ///
    /// A model that means its `detach` so, as a straight-through estimator does, needs this leave, too: the
    /// gradient is then what the model says, and not what finite differences say. A gradient that is lost
    /// altogether is still an error.
    pub fn allow_barriers(mut self) -> Self {
        self.allows.barriers = true;
        self
    }

    /// Runs the model and differentiates what the closure returns: one number, computed from what the
    /// model gives.
    ///
    /// A gradient that was asked for and is not there is an error, which says where it was lost if that
    /// can be seen; [`allow_unfired`](Self::allow_unfired) lets points pass that the loss does not depend on. A
    /// foreign layer that has no backward is an error wherever a gradient would have to pass it.
    ///
    /// A model that keeps tensors of this run in itself, such as a KV cache, keeps its graph alive with
    /// them. Reset such state afterwards.
    pub fn backward<E, F>(&self, f: F) -> Result<GradRun<Tensor>>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<Tensor, E>,
        E: Into<BoxedError>,
    {
        self.differentiate(f, |output, _| Ok::<_, E>(output.clone()))
    }

    /// As [`backward`](Self::backward), where the loss is computed from the output of the model and from
    /// what the plan has cached.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let plan = model.plan().cache(":hidden")?.cache_grad("up")?;
    /// let run = plan.differentiate(|m| m.forward(&x), |_, cache| cache[":hidden"].sqr()?.sum_all())?;
    /// assert_eq!(run.output.dims(), [1, 2]);
    /// assert_eq!(run.grads["up"].to_vec2::<f32>()?, [[2., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn differentiate<T, E, F, L>(&self, f: F, loss: L) -> Result<GradRun<T>>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        L: FnOnce(&T, &ActivationCache) -> std::result::Result<Tensor, E>,
        E: Into<BoxedError>,
    {
        let (prepared, finished) = self.go(Listens::GRADIENT, |model| with_loss(f(model), loss))?;
        Ok(differentiated(&self.asked(&prepared), self.allows, finished)?.0)
    }

    /// As [`differentiate`](Self::differentiate), where a certificate notes what comes; and the first point where a hook
    /// has changed a gradient.
    pub(super) fn differentiate_noted<T, E, F, L>(
        &self,
        nudge: &Rc<Nudge>,
        is_heard: bool,
        f: F,
        loss: L,
    ) -> Result<(GradRun<T>, Option<Arc<str>>)>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        L: FnOnce(&T, &ActivationCache) -> std::result::Result<Tensor, E>,
        E: Into<BoxedError>,
    {
        let (prepared, finished) = self.go_nudged(nudge, is_heard, |model| with_loss(f(model), loss))?;
        let asked = Order { nudge: Some(nudge), ..self.asked(&prepared) };
        differentiated(&asked, self.allows, finished)
    }

    /// The loss alone, where a certificate moves values.
    pub(super) fn loss_moved<T, E, F, L>(&self, nudge: &Rc<Nudge>, f: F, loss: L) -> Result<f64>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        L: FnOnce(&T, &ActivationCache) -> std::result::Result<Tensor, E>,
        E: Into<BoxedError>,
    {
        let (prepared, finished) = self.go_nudged(nudge, false, |model| with_loss(f(model), loss))?;
        let (_, loss) = finished_run(&self.asked(&prepared), true, finished)?.output;
        Ok(loss.to_dtype(DType::F64)?.flatten_all()?.get(0)?.to_scalar()?)
    }
}

/// Computes the loss while the run goes on: it may call what is annotated.
fn with_loss<T, E, L>(output: std::result::Result<T, E>, loss: L) -> std::result::Result<(T, Tensor), E>
where
    L: FnOnce(&T, &ActivationCache) -> std::result::Result<Tensor, E>,
{
    let output = output?;
    let kept = current(|state| state.kept()).unwrap_or_default();
    let loss = loss(&output, &ActivationCache::of(kept))?;
    Ok((output, loss))
}

fn differentiated<T>(
    asked: &Order<'_>,
    allows: Allows,
    (result, mut finished): (Option<(T, Tensor)>, Finished),
) -> Result<(GradRun<T>, Option<Arc<str>>)> {
    let taps = finished.gradient.take().unwrap_or_default().taps;
    taps.check_floats(asked.registered, &finished.fired)?;
    let run = finished_run(asked, allows.unreached, (result, finished))?;
    let Run { output: (mut output, loss), cache, requests, fired, skipped, .. } = run;
    let found =
        BackwardPass::new(asked.requests, asked.registered, taps, asked.audience).run(&loss, allows)?;
    let spent = (loss.id(), spent(&loss)?);
    detach_inside(&mut output, &spent)?;
    let (grads, variables) = (ActivationCache::of_calls(found.grads), found.variables);
    let cache = cache.detached().with_grads(grads.clone());
    let certificate = None;
    let run =
        GradRun { output, loss: spent.1, cache, grads, variables, certificate, requests, fired, skipped };
    Ok((run, found.changed))
}

/// Detaches the tensors inside a value, where its type is known to hold some. The loss, and any other number that
/// might be taken for one, refuses to be differentiated again.
fn detach_inside<T>(output: &mut T, (id, loss): &(TensorId, Tensor)) -> Result<()> {
    let value = ErasedMut::of(output);
    let Some(ops) = DynamicOps::for_type(value.type_id()) else { return Ok(()) };
    ops.each_tensor(value, &mut |_, tensor| {
        *tensor = match tensor.id() == *id {
            true => loss.clone(),
            false if tensor.track_op() && tensor.elem_count() == 1 => spent(tensor)?,
            false => tensor.detach(),
        };
        Ok(())
    })
}

/// A plan that asks for gradients is run by `backward` and by nothing else.
pub(super) fn check_wants_no_gradient(requests: &[Request<'_>], method: &str) -> Result<()> {
    let asking = requests.iter().filter(|request| request.action.wants_gradient());
    let requests: Vec<String> = asking.map(Request::describe).collect();
    if requests.is_empty() {
        return Ok(());
    }
    Err(ErrorKind::NeedsBackward { method: method.to_string(), requests }.into())
}
