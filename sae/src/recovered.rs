//! Losses of a model with and without an autoencoder in it.

use candle_core::Tensor;
use hookpoint::{
    track::{Over, Tracker},
    AutoHook, Error, ErrorKind, Hooked, Result,
};
use hookpoint_interp::ablate;

use super::metrics::LossRecovered;
use super::model::Sae;
use super::splice::Splice;

/// Any error that converts.
type BoxedError = Box<dyn std::error::Error + Send + Sync>;

impl LossRecovered {
    /// Measures the loss of `model` for each of `inputs`, which `loss` computes: as it is, with zeros and with the
    /// mean at `point`, and with `sae` there, without the error term.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    /// use hookpoint::Hooked;
    /// use hookpoint_models::gpt2::Gpt2;
    /// use hookpoint_sae::{next_token_loss, Architecture, Config, LossRecovered, Sae};
    ///
    /// let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
    /// let width = model.config().n_embd;
    /// let sae = Hooked::new(Sae::random(Config::new(width, 2 * width, Architecture::Relu), 0, &Device::Cpu)?);
    /// let texts = ["The capital of France is Paris.", "Monday Tuesday Wednesday Thursday"];
    /// let inputs: Vec<Tensor> = texts
    ///     .iter()
    ///     .map(|text| Ok(Tensor::new(model.tokenizer()?.encode(text)?, &Device::Cpu)?.unsqueeze(0)?))
    ///     .collect::<hookpoint::Result<_>>()?;
    /// let losses = LossRecovered::measure(&model, "blocks.1.hook_resid_post", &sae, &inputs, |m, ids| {
    ///     next_token_loss(&m.forward(ids)?, ids)
    /// })?;
    /// assert!(losses.clean < losses.zeroed);
    /// assert!(losses.from_zero() < 1.);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn measure<M, B, E>(
        model: &Hooked<M>,
        point: &str,
        sae: &Hooked<Sae>,
        inputs: &[B],
        loss: impl Fn(&M, &B) -> std::result::Result<f64, E>,
    ) -> Result<Self>
    where
        M: AutoHook,
        E: Into<BoxedError>,
    {
        let mut means = Tracker::new().reduce(point, Over::AllButLast)?;
        means.run_all(model, inputs, &loss)?;
        let splice = Splice::new(sae);
        let (zeroed, averaged, spliced) = (
            model.plan().hook(point, ablate::zero())?,
            model.plan().hook(point, ablate::mean(&means))?,
            model.plan().hook(point, splice.hook())?,
        );
        let all = inputs.iter().map(|input| {
            Ok(Self {
                clean: model.run(|m| loss(m, input))?,
                zeroed: zeroed.run(|m| loss(m, input))?.output,
                averaged: averaged.run(|m| loss(m, input))?.output,
                spliced: spliced.run(|m| loss(m, input))?.output,
            })
        });
        Self::mean(&all.collect::<Result<Vec<_>>>()?)
    }
}

/// How far off logits `[batch, pos, vocab]` are from what comes next in `ids`, `[batch, pos]`: the mean of
/// -log p over all tokens but the first.
pub fn next_token_loss(logits: &Tensor, ids: &Tensor) -> Result<f64> {
    let (_, pos, vocab) = logits.dims3()?;
    if pos < 2 || logits.dims().get(..2) != Some(ids.dims()) {
        return Err(ErrorKind::Shape {
            point: "ids".to_string(),
            what: "logits".to_string(),
            expected: ids.dims().to_vec(),
            found: logits.dims().to_vec(),
            remedy: "logits are [batch, pos, vocab] for ids of [batch, pos], with at least two positions"
                .to_string(),
        }
        .into());
    }
    let said = logits.narrow(1, 0, pos - 1)?.reshape(((), vocab))?;
    let next = ids.narrow(1, 1, pos - 1)?.flatten_all()?;
    let loss = candle_nn::loss::cross_entropy(&said, &next).map_err(Error::from)?;
    Ok(f64::from(loss.to_dtype(candle_core::DType::F32)?.to_scalar::<f32>()?))
}
