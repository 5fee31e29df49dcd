//! What a plan asks of a run.

use std::rc::Rc;

use candle_core::{DType, Device, Tensor};

use super::call_hooks::{CallHookFn, When};
use super::{BackwardCall, HookCtx};
use crate::error::Result;
use crate::pattern::Pattern;
use crate::point::Selection;
use crate::select::IntoPatterns;
use crate::value::AnyValue;

/// A hook as it is kept.
pub(crate) type HookFn<'a> = Rc<dyn Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + 'a>;

/// A hook that sees the gradients of a whole call, as it is kept.
pub(crate) type BackwardHookFn<'a> = Rc<dyn Fn(&HookCtx<'_>, &BackwardCall<'_>) -> Result<()> + 'a>;

/// One thing to be done at the points that a pattern selects.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub pattern: Pattern,
    pub action: Action<'a>,
    /// What the pattern selects.
    pub nodes: Selection,
    /// What each name in braces means by itself: all of them have to be reached.
    pub alternatives: Vec<Pattern>,
}

impl<'a> Request<'a> {
    pub fn new(pattern: Pattern, action: Action<'a>, nodes: Selection) -> Self {
        let alternatives = pattern.alternatives();
        Self { pattern, action, nodes, alternatives }
    }
}

#[derive(Clone)]
pub(crate) enum Action<'a> {
    Hook(HookFn<'a>),
    Call(When, CallHookFn<'a>),
    Patch(Tensor),
    PatchAny(AnyValue),
    HookGrad(HookFn<'a>),
    CacheGrad(CacheOptions),
    HookBackward(BackwardHookFn<'a>),
    Cache(CacheOptions),
}

impl Action<'_> {
    /// Hooks come first, then patches, then what wants the gradient, which so is that of what the model
    /// went on with, then the cache. In the backward pass, too, the cache sees what the hooks have left.
    pub fn rank(&self) -> usize {
        match self {
            Action::Hook(_) | Action::Call(..) => 0,
            Action::Patch(_) | Action::PatchAny(_) => 1,
            Action::HookGrad(_) => 2,
            Action::CacheGrad(_) => 3,
            Action::HookBackward(_) => 4,
            Action::Cache(_) => 5,
        }
    }

    /// May it change the value, before anybody looks at what the model goes on with?
    pub fn changes(&self) -> bool {
        matches!(self, Action::Hook(_) | Action::Call(..) | Action::Patch(_) | Action::PatchAny(_))
    }

    /// Is something wanted of the backward pass?
    pub fn wants_gradient(&self) -> bool {
        matches!(self, Action::HookGrad(_) | Action::CacheGrad(_) | Action::HookBackward(_))
    }
}

impl Request<'_> {
    /// Is it to keep whole values, of every call, as they are?
    pub fn keeps_all(&self) -> bool {
        let as_is = |options: &CacheOptions| options.device.is_none() && options.dtype.is_none();
        let whole = self.pattern.index().is_none() && self.pattern.call().is_none();
        matches!(&self.action, Action::Cache(options) if as_is(options) && whole)
    }

    /// The request as the user wrote it.
    pub fn describe(&self) -> String {
        let verb = match self.action {
            Action::Hook(_) => "hook",
            Action::Call(When::Before, _) => "hook_call_inputs",
            Action::Call(When::After, _) => "hook_call",
            Action::Patch(_) => "patch",
            Action::PatchAny(_) => "patch_any",
            Action::HookGrad(_) => "hook_grad",
            Action::CacheGrad(_) => "cache_grad",
            Action::HookBackward(_) => "hook_backward",
            Action::Cache(_) => "cache",
        };
        format!("{verb}(\"{}\")", self.pattern)
    }
}

/// Where and how a cache keeps what it takes. Tensors that are moved or converted are so as the run
/// reaches them, and the model goes on with its own.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::CacheOptions;
///
/// let options = CacheOptions::new().device(&Device::Cpu).dtype(DType::F16);
/// let run = model.plan().cache(options.at("up"))?.cache("down")?.run(|m| m.forward(&x))?;
/// assert_eq!(run.cache["up"].dtype(), DType::F16);
/// assert_eq!(run.cache["down"].dtype(), DType::F32);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CacheOptions {
    pub(crate) device: Option<Device>,
    pub(crate) dtype: Option<DType>,
}

impl CacheOptions {
    /// Keeps tensors as they are.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves each tensor to this device as it is taken.
    pub fn device(mut self, device: &Device) -> Self {
        self.device = Some(device.clone());
        self
    }

    /// Converts each floating-point tensor to this dtype as it is taken.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// What is at these points, kept so: takes the place of patterns where something is cached.
    pub fn at<P: IntoPatterns>(self, points: P) -> CacheAt<P> {
        CacheAt { points, options: self }
    }
}

/// Points, and how a cache keeps what is there. See [`CacheOptions::at`].
#[derive(Clone, Debug)]
pub struct CacheAt<P> {
    points: P,
    options: CacheOptions,
}

/// What is to be cached: patterns, or patterns with [`CacheOptions`].
pub trait IntoCaches {
    /// The patterns, parsed, and how what they select is kept.
    fn into_caches(self) -> Result<(Vec<Pattern>, CacheOptions)>;
}

impl<P: IntoPatterns> IntoCaches for P {
    fn into_caches(self) -> Result<(Vec<Pattern>, CacheOptions)> {
        Ok((self.into_patterns()?, CacheOptions::new()))
    }
}

impl<P: IntoPatterns> IntoCaches for CacheAt<P> {
    fn into_caches(self) -> Result<(Vec<Pattern>, CacheOptions)> {
        Ok((self.points.into_patterns()?, self.options))
    }
}
