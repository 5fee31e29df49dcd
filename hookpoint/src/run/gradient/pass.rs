//! The backward pass of a run: what happens when a gradient arrives at a tap.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use candle_core::{Tensor, TensorId};

use super::taps::{Call, TappedPoint, Tapping, Taps, Wish};
use crate::erased::paused;
use crate::error::{Error, ErrorKind, Result};
use crate::lookup::FastMap;
use crate::pattern::Index;
use crate::point::PointKey;
use crate::run::fire::{hook_failed, At};
use crate::run::keep::shows_a_part;
use crate::run::request::{Action, BackwardHookFn, CacheOptions, Request};
use crate::run::{with_pass, Audience, HookCtx, NamedCall};
use crate::tree::NodeId;

/// The backward pass of one run.
pub(crate) struct BackwardPass<'p> {
    requests: &'p [Request<'p>],
    audience: &'p Audience<'p>,
    /// How many of them are of hooks that stay on the model: the first ones.
    registered: usize,
    gradients: Taps,
    /// Which taps a gradient has come to.
    arrived: Vec<Cell<bool>>,
    captures: RefCell<Vec<(usize, NamedCall)>>,
    /// Where a hook has changed a gradient.
    changed: RefCell<Option<Arc<str>>>,
    /// The modules that had a call seen as a whole.
    seen: RefCell<Vec<Arc<str>>>,
}

/// What a plan lets pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allows {
    /// Points that the loss does not depend on.
    pub unreached: bool,
    /// Operations that no gradient can pass, though it is wanted of what comes before.
    pub barriers: bool,
}

/// What a backward pass has found.
pub(crate) struct Found {
    /// What was wanted, in the order of the forward pass.
    pub grads: Vec<NamedCall>,
    /// The gradients of the variables that the model or the loss has.
    pub variables: FastMap<TensorId, Tensor>,
    /// The first point where a hook has changed the gradient.
    pub changed: Option<Arc<str>>,
}

impl<'p> BackwardPass<'p> {
    pub fn new(
        requests: &'p [Request<'p>],
        registered: usize,
        gradients: Taps,
        audience: &'p Audience<'p>,
    ) -> Self {
        let arrived = gradients.taps.borrow().iter().map(|_| Cell::new(false)).collect();
        Self {
            requests,
            audience,
            registered,
            gradients,
            arrived,
            captures: RefCell::default(),
            changed: RefCell::default(),
            seen: RefCell::default(),
        }
    }

    /// Differentiates the loss.
    pub fn run(self, loss: &Tensor, allows: Allows) -> Result<Found> {
        self.check(loss)?;
        if !allows.barriers {
            super::candle_faults::check(loss)?;
        }
        let mut store = with_pass(&self, || loss.backward()).map_err(no_backward)?;
        let unseen = self.see_incomplete_calls()?;
        if !allows.barriers {
            self.check_barriers()?;
        }
        if !allows.unreached {
            self.check_reached(unseen)?;
        }
        let nodes = loss.sorted_nodes();
        let variables = nodes.iter().filter(|node| node.is_variable() && !self.gradients.is_root(node.id()));
        let variables =
            variables.filter_map(|node| Some((node.id(), store.remove(node)?.detach()))).collect();
        let mut captures = self.captures.into_inner();
        captures.sort_by_key(|(tap, _)| *tap);
        let grads = captures.into_iter().map(|(_, capture)| capture).collect();
        Ok(Found { grads, variables, changed: self.changed.into_inner() })
    }

    fn check(&self, loss: &Tensor) -> Result<()> {
        if loss.elem_count() != 1 {
            return Err(ErrorKind::LossNotScalar { shape: loss.dims().to_vec() }.into());
        }
        let lost = self.gradients.lost.places();
        if !loss.dtype().is_float() {
            let (dtype, lost) = (Some(loss.dtype().as_str().to_string()), lost);
            return Err(ErrorKind::LossUntracked { dtype, lost }.into());
        }
        if !loss.track_op() {
            return Err(ErrorKind::LossUntracked { dtype: None, lost }.into());
        }
        Ok(())
    }

    /// A gradient has come to a tap: what goes on upstream, where it is another one. `None` where the tap is
    /// not of this run.
    pub fn arrive(&self, run: u64, number: usize, grad: &Tensor) -> Option<candle_core::Result<Tensor>> {
        if !self.gradients.is_run(run) {
            return None;
        }
        self.arrived.get(number)?.set(true);
        let taps = self.gradients.taps.borrow();
        match taps.get(number)? {
            Tapping::Point(point) => Some(self.at_point(point, number, grad).map_err(Error::into_candle)),
            Tapping::Barrier(_) => None,
        }
    }

    fn at_point(&self, point: &TappedPoint, number: usize, grad: &Tensor) -> Result<Tensor> {
        let mut grad = grad.clone();
        for wish in &point.wishes {
            let Some(request) = self.requests.get(wish.request as usize) else { continue };
            let Wish { name, label, kind, .. } = wish;
            let (node, type_name, call) = (point.key.node, point.type_name, point.call);
            let at = At { node, name, label: *label, kind: *kind, type_name, call };
            let index = request.pattern.index();
            match &request.action {
                Action::HookGrad(hook) => {
                    let (step, acted) = (point.step.as_ref(), Cell::new(false));
                    if let Some(new) = at.hook(hook, index, &grad, step, &acted)? {
                        grad = new.detach();
                        self.changed.borrow_mut().get_or_insert_with(|| name.clone());
                    }
                }
                Action::CacheGrad(options) => {
                    self.capture(number, &at, index, request.pattern.call().is_some(), options, &grad)?;
                }
                Action::HookBackward(hook) => {
                    self.at_call((wish.request, node, wish.of_call), hook, point.key, &grad)?;
                }
                Action::Hook(_)
                | Action::Call(..)
                | Action::Patch(_)
                | Action::PatchAny(_)
                | Action::Cache(_) => {}
            }
        }
        if let Some(nudge) = &self.gradients.nudge {
            nudge.arrived((point.key, point.visit), &grad)?;
        }
        if let Some((name, kind)) = point.name.as_ref().filter(|_| point.heard != 0) {
            let value = name.rsplit_once(':').map_or("out", |(_, value)| value);
            let at = crate::point::At {
                point: crate::point::Point { name, value, kind: *kind, type_name: point.type_name },
                call: point.call,
                step: point.step.as_ref(),
            };
            self.audience.each(point.heard, |listener| listener.gradient(&at, &grad))?;
        }
        Ok(grad)
    }

    fn capture(
        &self,
        tap: usize,
        at: &At<'_>,
        index: Option<&Index>,
        by_call: bool,
        options: &CacheOptions,
        grad: &Tensor,
    ) -> Result<()> {
        let keep = |name: Arc<str>, taken: Tensor| -> Result<()> {
            let tensor = options.apply(&name, taken)?;
            self.captures.borrow_mut().push((tap, NamedCall { name, call: at.call, by_call, tensor }));
            Ok(())
        };
        let Some(index) = index else {
            let own = if shows_a_part(grad) { grad.force_contiguous()? } else { grad.contiguous()? };
            return keep(at.name.clone(), own);
        };
        for element in index.elements(at.name, grad.dims())? {
            let part = element.read(at.name, grad)?.force_contiguous()?;
            keep(format!("{}[{element}]", at.name).into(), part)?;
        }
        Ok(())
    }

    fn at_call(
        &self,
        key: (u32, NodeId, usize),
        hook: &BackwardHookFn<'_>,
        point: PointKey,
        grad: &Tensor,
    ) -> Result<()> {
        let call = {
            let mut calls = self.gradients.calls.borrow_mut();
            let Some(call) = calls.get_mut(&key) else { return Ok(()) };
            if let Some(part) = call.part(point) {
                part.grad = Some(grad.clone());
            }
            if !call.is_complete() {
                return Ok(());
            }
            calls.remove(&key)
        };
        call.map_or(Ok(()), |call| self.see(hook, &call))
    }

    fn see(&self, hook: &BackwardHookFn<'_>, call: &Call) -> Result<()> {
        self.seen.borrow_mut().push(call.name.clone());
        let Call { name: path, kind, type_name, number, step, .. } = call;
        let (kind, number, step) = (*kind, *number, step.as_ref());
        let ctx = HookCtx { path, kind, call: number, element: None, type_name, step, passed: None };
        let seen = BackwardCall { call };
        paused(|| hook(&ctx, &seen)).map_err(|error| hook_failed(&call.name, error))
    }

    /// Calls some of whose inputs the loss does not depend on are seen when nothing more can come. Gives
    /// the modules none of whose calls it depends on.
    fn see_incomplete_calls(&self) -> Result<Vec<Arc<str>>> {
        let mut rest: Vec<_> = self.gradients.calls.borrow_mut().drain().collect();
        rest.sort_by_key(|(key, call)| std::cmp::Reverse((call.order(), *key)));
        for ((request, ..), call) in rest.iter().filter(|(_, call)| call.has_any()) {
            if let Some(Action::HookBackward(hook)) =
                self.requests.get(*request as usize).map(|request| &request.action)
            {
                self.see(hook, call)?;
            }
        }
        let seen = self.seen.borrow();
        let own = rest.into_iter().filter(|((request, ..), _)| !self.is_registered(*request));
        Ok(own.map(|(_, call)| call.name).filter(|name| !seen.contains(name)).collect())
    }

    fn is_registered(&self, request: u32) -> bool {
        (request as usize) < self.registered
    }

    /// The gradient has come to the result of something that it cannot pass, and beyond which it is wanted.
    fn check_barriers(&self) -> Result<()> {
        let taps = self.gradients.taps.borrow();
        let reached = taps.iter().zip(&self.arrived).filter(|(_, arrived)| arrived.get());
        let barriers = reached.filter_map(|(tap, _)| match tap {
            Tapping::Barrier(operation) => Some(operation.clone()),
            Tapping::Point(_) => None,
        });
        let mut operations: Vec<String> = Vec::new();
        for operation in barriers.chain(self.gradients.reads.borrow().iter().cloned()) {
            if !operations.contains(&operation) {
                operations.push(operation);
            }
        }
        if operations.is_empty() {
            return Ok(());
        }
        Err(ErrorKind::GradientLost { operations }.into())
    }

    fn check_reached(&self, unseen: Vec<Arc<str>>) -> Result<()> {
        let taps = self.gradients.taps.borrow();
        let mut points: Vec<(Arc<str>, bool)> = unseen.into_iter().map(|name| (name, false)).collect();
        for (tap, arrived) in taps.iter().zip(&self.arrived) {
            let Tapping::Point(point) = tap else { continue };
            for wish in &point.wishes {
                let action = self.requests.get(wish.request as usize).map(|request| &request.action);
                // A call is seen as a whole: some of its values may not matter. And a hook that stays on
                // the model need not have something to see in every run.
                if matches!(action, Some(Action::HookBackward(_))) || self.is_registered(wish.request) {
                    continue;
                }
                match points.iter_mut().find(|(name, _)| *name == wish.name) {
                    Some((_, reached)) => *reached |= arrived.get(),
                    None => points.push((wish.name.clone(), arrived.get())),
                }
            }
        }
        let unreached = points.into_iter().filter(|(_, reached)| !reached);
        let points: Vec<String> = unreached.map(|(name, _)| name.to_string()).collect();
        if points.is_empty() {
            return Ok(());
        }
        Err(ErrorKind::NoGradient { points, lost: self.gradients.lost.places() }.into())
    }
}

impl Taps {
    /// A request that met only values of which there is no gradient.
    pub(crate) fn check_floats(&self, registered: usize, fired: &[usize]) -> Result<()> {
        let not_floats = self.not_floats.borrow();
        let mut own = not_floats.iter().filter(|(request, ..)| *request as usize >= registered);
        match own.find(|(request, ..)| fired.get(*request as usize) == Some(&0)) {
            Some((_, name, dtype)) => {
                let (point, dtype) = (name.to_string(), dtype.as_str().to_string());
                Err(ErrorKind::NotDifferentiable { point, dtype }.into())
            }
            None => Ok(()),
        }
    }
}

/// Candle has no backward for an operation: what it is called is all that is known.
fn no_backward(error: candle_core::Error) -> Error {
    let mut inner = &error;
    while let candle_core::Error::WithBacktrace { inner: next, .. } = inner {
        inner = next;
    }
    match inner {
        candle_core::Error::BackwardNotSupported { op } => {
            ErrorKind::GradientLost { operations: vec![format!("the operation `{op}`")] }.into()
        }
        _ => Error::recover(error),
    }
}

/// One call of a module as the backward pass sees it: the gradients of all its inputs and outputs, in
/// the order of the inputs and outputs.
///
/// ```
#[doc = include_str!("../../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let plan = model.plan().hook_backward("down", |ctx, call| {
///     assert_eq!((ctx.path(), ctx.call()), ("down", 0));
///     assert_eq!((call.input_names(), call.output_names()), (vec!["in"], vec!["out"]));
///     let [Some(input)] = call.grad_inputs()[..] else { unreachable!() };
///     let [Some(output)] = call.grad_outputs()[..] else { unreachable!() };
///     assert_eq!(input.to_vec2::<f32>()?, [[1., 1.]]);
///     assert_eq!(output.to_vec2::<f32>()?, [[1., 1.]]);
///     assert_eq!(call.inputs()[0].to_vec2::<f32>()?, [[1., 0.]]);
///     Ok(())
/// })?;
/// plan.backward(|m| m.forward(&x)?.sum_all())?;
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct BackwardCall<'a> {
    call: &'a Call,
}

impl<'a> BackwardCall<'a> {
    /// The gradients of the inputs; none where the loss does not depend on one, or it is not a float.
    pub fn grad_inputs(&self) -> Vec<Option<&'a Tensor>> {
        self.call.inputs.iter().map(|part| part.grad.as_ref()).collect()
    }

    /// The gradients of the outputs; none where the loss does not depend on one, or it is not a float.
    pub fn grad_outputs(&self) -> Vec<Option<&'a Tensor>> {
        self.call.outputs.iter().map(|part| part.grad.as_ref()).collect()
    }

    /// What the inputs are called: `in`, `in.1`.
    pub fn input_names(&self) -> Vec<&'a str> {
        self.call.inputs.iter().map(|part| part.name.as_str()).collect()
    }

    /// What the outputs are called: `out`, `out.1`.
    pub fn output_names(&self) -> Vec<&'a str> {
        self.call.outputs.iter().map(|part| part.name.as_str()).collect()
    }

    /// What the module was given. Keeping it costs nothing: the backward pass needs it anyway.
    pub fn inputs(&self) -> Vec<&'a Tensor> {
        self.call.inputs.iter().map(|part| &part.value).collect()
    }

    /// What the module gave.
    pub fn outputs(&self) -> Vec<&'a Tensor> {
        self.call.outputs.iter().map(|part| &part.value).collect()
    }
}

impl std::fmt::Debug for BackwardCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackwardCall")
            .field("path", &self.call.name)
            .field("call", &self.call.number)
            .finish_non_exhaustive()
    }
}
