//! An autoencoder in the place of a value of a running model.

use std::cell::RefCell;
use std::rc::Rc;

use candle_core::{Module, Tensor};
use hookpoint::{ActivationCache, ErrorKind, HookCtx, Hooked, Plan, Result};

use super::model::Sae;

/// Puts an autoencoder into a running model: what it makes of a value takes the value's place.
///
/// What is to be done inside the autoencoder meanwhile is a plan of its own: hooks and patches at its points edit
/// features, and what it caches is there afterwards. With the error term, what the autoencoder misses is added
/// again, so that nothing changes but what is edited. The error is that of the reconstruction without edits.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint_models::gpt2::Gpt2;
/// use hookpoint_sae::{Architecture, Config, Sae, Splice};
///
/// let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
/// let ids = Tensor::new(&[[3u32, 14, 15]], &Device::Cpu)?;
/// let width = model.config().n_embd;
/// let sae = Hooked::new(Sae::random(Config::new(width, 2 * width, Architecture::Relu), 0, &Device::Cpu)?);
///
/// // Feature 7 is taken away, and all features are kept to be looked at.
/// let splice = Splice::new(&sae).with_error_term().with_edits(|plan| {
///     plan.hook("hook_sae_acts_post[..., 7]", hookpoint_interp::ablate::zero())?.cache("hook_sae_acts_post")
/// })?;
/// let run = model.plan().hook("blocks.1.hook_resid_post", splice.hook())?.run(|m| m.forward(&ids))?;
/// assert_eq!(run.output.dims()[1], 3);
/// assert_eq!(splice.cache()["hook_sae_acts_post"].dims(), [1, 3, 2 * width]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Splice<'a> {
    sae: &'a Hooked<Sae>,
    edits: Rc<Plan<'a, Sae>>,
    error_term: bool,
    cache: Rc<RefCell<ActivationCache>>,
}

impl<'a> Splice<'a> {
    /// An autoencoder in the place of a value, without edits and without the error term.
    pub fn new(sae: &'a Hooked<Sae>) -> Self {
        Self { sae, edits: Rc::new(sae.plan()), error_term: false, cache: Rc::default() }
    }

    /// What is to be done inside the autoencoder: `edit` is given an empty plan for it.
    pub fn with_edits(mut self, edit: impl FnOnce(Plan<'a, Sae>) -> Result<Plan<'a, Sae>>) -> Result<Self> {
        self.edits = Rc::new(edit(self.sae.plan())?);
        Ok(self)
    }

    /// Adds what the autoencoder misses, without edits, to what it gives.
    pub fn with_error_term(mut self) -> Self {
        self.error_term = true;
        self
    }

    /// What the edits' plan has cached when the value was last reached.
    pub fn cache(&self) -> ActivationCache {
        self.cache.borrow().clone()
    }

    /// The hook for the point, as in `plan.hook("blocks.1.hook_resid_post", splice.hook())`.
    pub fn hook(&self) -> impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + 'a {
        let (sae, edits, cache, error_term) =
            (self.sae, self.edits.clone(), self.cache.clone(), self.error_term);
        move |ctx, value| {
            check_width(ctx, sae, value)?;
            let x = value.to_device(sae.device())?;
            let run = match error_term {
                false => edits.run(|sae| sae.forward(&x))?,
                true => {
                    // Outside of the plan, so no edit sees it.
                    let clean = sae.forward(&x)?.detach();
                    edits.run(|sae| sae.forward_with_error(&x, &clean))?
                }
            };
            cache.replace(run.cache);
            Ok(Some(run.output.to_device(value.device())?.to_dtype(value.dtype())?))
        }
    }
}

fn check_width(ctx: &HookCtx<'_>, sae: &Sae, value: &Tensor) -> Result<()> {
    let config = sae.config();
    let last = value.rank().saturating_sub(if config.flatten_heads { 2 } else { 1 });
    let width: usize = value.dims().get(last..).unwrap_or_default().iter().product();
    if width == config.d_in {
        return Ok(());
    }
    Err(ErrorKind::Shape {
        point: ctx.path().to_string(),
        what: "the input of the autoencoder".to_string(),
        expected: value.dims().to_vec(),
        found: vec![config.d_in],
        remedy: match config.point() {
            Some(point) => format!("this autoencoder is for `{point}`"),
            None => "splice it in where values are as wide as those it was trained on".to_string(),
        },
    }
    .into())
}
