//! Logits as the metric of a sweep, without computing all the others.

use candle_core::{Tensor, D};
use hookpoint::{HookCtx, Result};

use crate::lens::Target;
use crate::sweep::{Sweep, SweepResult};
use crate::{Norm, Output, Transformer};

/// The logits of a [`Target`] at one position, as what a sweep measures: the mean over the rows of the batch.
///
/// A sweep that is given logits pays for those of every token at every position. This reads the residual
/// stream where the final norm does, at its one position, and computes the logits that it is about: the same
/// numbers but for rounding, and runs end before the unembedding.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint_interp::ablate;
/// use hookpoint_models::gpt2::{Config, Gpt2};
/// use hookpoint_interp::lens::Target;
/// use hookpoint_interp::sweep::transformer::{self, Cells, LogitMetric, Part};
///
/// let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
/// let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
/// let clean = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
/// let corrupted = Tensor::new(&[[1u32, 5, 3]], &Device::Cpu)?;
///
/// // How much more likely is 4 than 7, behind the last token?
/// let metric = LogitMetric::of(&*model, Target::token(4).against(7))?;
/// let found = metric.patch(transformer::over(&model, Part::HeadOut, Cells::All)?, &clean, &corrupted)?;
/// let without = metric.edit(transformer::over(&model, Part::MlpOut, Cells::All)?, ablate::zero(), &clean)?;
/// assert_eq!((found.shape(), without.shape()), (vec![2, 2], vec![2]));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LogitMetric {
    target: Target,
    position: isize,
    /// Where the final norm reads.
    resid: String,
    norm: Norm,
    unembedding: Output,
}

impl LogitMetric {
    /// What the model says of these tokens behind the last position.
    pub fn of(model: &impl Transformer, target: Target) -> Result<Self> {
        let (norm, unembedding) = (model.final_norm()?, model.unembedding()?);
        Ok(Self { target, position: -1, resid: model.final_resid(), norm, unembedding })
    }

    /// The same at another position, counted from the start, or with a negative number from the end.
    pub fn at(mut self, position: isize) -> Self {
        self.position = position;
        self
    }

    /// What is measured, for [`Sweep::measure_at`]: the residual stream at the position, `[batch, d_model]`.
    pub fn point(&self) -> String {
        format!("{}[:, {}]", self.resid, self.position)
    }

    /// The metric of what is at the [point](Self::point).
    pub fn measure(&self, resid: &Tensor) -> Result<f64> {
        let (batch, vocab) = (resid.dim(0)?, self.unembedding.weight.dim(1)?);
        let tokens = self.target.resolve(batch, 1, vocab)?;
        // each [batch, d_model]
        let direction = tokens.rows_of(&self.unembedding.weight.t()?)?.squeeze(1)?;
        let logits = (self.norm.apply(resid)? * direction)?.sum(D::Minus1)?;
        let logits = match &self.unembedding.bias {
            // [batch, 1, 1]
            Some(bias) => (logits + tokens.rows_of(&bias.unsqueeze(1)?)?.reshape(batch)?)?,
            None => logits,
        };
        Ok(f64::from(logits.mean_all()?.to_scalar::<f32>()?))
    }

    /// [`Sweep::patch`] with this metric; inputs are ids of `[batch, pos]`.
    pub fn patch<M: Transformer>(
        &self,
        sweep: Sweep<'_, M>,
        clean: &Tensor,
        corrupted: &Tensor,
    ) -> Result<SweepResult> {
        let sweep = sweep.measure_at(self.point())?;
        sweep.patch(clean, corrupted, |m, ids| m.logits(ids), |resid| self.measure(resid))
    }

    /// [`Sweep::edit`] with this metric; the input is ids of `[batch, pos]`.
    pub fn edit<M: Transformer>(
        &self,
        sweep: Sweep<'_, M>,
        edit: impl Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>>,
        ids: &Tensor,
    ) -> Result<SweepResult> {
        let sweep = sweep.measure_at(self.point())?;
        sweep.edit(edit, ids, |m, ids| m.logits(ids), |resid| self.measure(resid))
    }
}
