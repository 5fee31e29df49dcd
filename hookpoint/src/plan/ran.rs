//! What a run gives.

use std::sync::Arc;

use crate::cache::ActivationCache;

/// What a run gives: the closure's output, and what was cached.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run<T> {
    /// What the closure returned.
    pub output: T,
    /// What the plan's caches have kept.
    pub cache: ActivationCache,
    pub(super) requests: Arc<[String]>,
    pub(super) fired: Vec<usize>,
    pub(super) unreached: Vec<Arc<str>>,
    pub(super) skipped: Vec<Arc<str>>,
    pub(super) replayed: Vec<Arc<str>>,
}

impl<T> Run<T> {
    /// The plan's requests in order, as in `cache("blocks.*")`, with how often each has fired.
    pub fn fired(&self) -> impl Iterator<Item = (&str, usize)> {
        self.requests.iter().map(String::as_str).zip(self.fired.iter().copied())
    }

    /// The points that the plan's patterns select and this run did not reach, request by request.
    ///
    /// A request that reaches none of its points is an error, and so is a name in `{a,b}` that is not reached, and a hook
    /// or a patch that reaches some of its modules. What else a pattern selects may be missing, as some experts of a
    /// mixture are: that is to be seen here.
    ///
    /// ```
    /// use candle_core::{DType, Device, Module, Result, Tensor};
    /// use candle_nn::Linear;
    /// use hookpoint::prelude::*;
    ///
    /// #[derive(AutoHook)]
    /// struct Mixture { experts: Vec<Linear> }
    ///
    /// #[auto_hook]
    /// impl Mixture {
    ///     fn forward(&self, x: &Tensor, chosen: usize) -> Result<Tensor> {
    ///         self.experts[chosen].forward(x)
    ///     }
    /// }
    ///
    /// let expert = || Tensor::eye(2, DType::F32, &Device::Cpu).map(|weight| Linear::new(weight, None));
    /// let model = Hooked::new(Mixture { experts: vec![expert()?, expert()?] });
    /// let x = Tensor::new(&[[1f32, -2.]], &Device::Cpu)?;
    /// let run = model.plan().cache("experts.*")?.run(|m| m.forward(&x, 1))?;
    /// assert_eq!(run.unreached().collect::<Vec<_>>(), ["experts.0"]);
    /// // Names are another matter.
    /// assert!(model.plan().cache("experts.{0,1}")?.run(|m| m.forward(&x, 1)).is_err());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn unreached(&self) -> impl Iterator<Item = &str> {
        self.unreached.iter().map(|name| &**name)
    }

    /// The modules that did not run, because their whole output was patched and nothing inside them was
    /// wanted.
    pub fn skipped(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().map(|name| &**name)
    }

    /// The modules that did not run, because what they give was [recorded](crate::Plan::replay). What is inside
    /// them did not run either.
    pub fn replayed(&self) -> impl Iterator<Item = &str> {
        self.replayed.iter().map(|name| &**name)
    }
}
