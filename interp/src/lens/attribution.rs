//! Direct logit attribution: a logit as a sum over the parts that wrote to the residual stream.

use std::fmt;

use candle_core::{DType, Tensor, D};
use hookpoint::{ActivationCache, ErrorKind, Hooked, Result};

use super::breakdown::Breakdown;
use super::place;
use super::target::{Resolved, Target};
use crate::{Norm, Site, Transformer};

/// Which parts a logit is taken apart into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// Embeddings, and what attention and mlp of each block add: `embed`, `pos_embed`, `0_attn_out`,
    /// `0_mlp_out` and so on.
    Layer,
    /// Every head, `L0H0`; then each `0_mlp_out`, the embeddings, and `bias`, the biases of all attentions.
    Head,
    /// Every head, then the neurons of each mlp in groups of so many, `L0N0` or `L0N0-15`; then the
    /// embeddings and `bias`, the biases of all attentions and mlps.
    Neurons {
        /// How many neurons are taken together.
        group: usize,
    },
}

/// How much each part of a model adds to a logit, at every position: direct logit attribution.
///
/// The residual stream is a sum of what the parts write, and a logit is a linear map of it once the scale of
/// the final norm is known. The scale is taken from the run and held fixed. So the parts add up to the logit,
/// within the precision of f32; the last part, `unembed_bias`, is what is there whatever the others do: the
/// biases of the final norm and of the unembedding.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint_models::gpt2::{Config, Gpt2};
/// use hookpoint_interp::lens::{Attribution, By, Target};
///
/// let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2, ..Config::default() };
/// let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
/// let ids = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
///
/// let attribution = Attribution::of(&model, &ids, &Target::token(5), By::Layer)?;
/// assert_eq!(attribution.labels(), ["embed", "pos_embed", "0_attn_out", "0_mlp_out", "unembed_bias"]);
/// assert_eq!(attribution.values().dims(), [5, 1, 3]); // [part, batch, pos]
///
/// let last = attribution.at(0, -1)?;
/// let logit = model.forward(&ids)?.to_vec3::<f32>()?[0][2][5];
/// assert!((last.total() - logit).abs() < 1e-5);
/// println!("{last}");
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Attribution {
    labels: Vec<String>,
    /// `[part, batch, pos]`, in f32.
    values: Tensor,
    /// `[batch, pos]`, in f32.
    logits: Tensor,
}

impl Attribution {
    /// Runs the model with `ids` of `[batch, pos]`, and takes the target's logits apart.
    pub fn of<M: Transformer>(model: &Hooked<M>, ids: &Tensor, target: &Target, by: By) -> Result<Self> {
        if by == (By::Neurons { group: 0 }) {
            return Err(ErrorKind::InvalidArgument {
                argument: "neurons".to_string(),
                got: "taken together in groups of 0".to_string(),
                remedy: "`group: 1` is each neuron by itself".to_string(),
            }
            .into());
        }
        let (logits, cache) = model.run_with_cache(points(&**model, by), |m| m.logits(ids))?;
        let (batch, pos, vocab) = logits.dims3()?;
        let target = target.resolve(batch, pos, vocab)?;
        let projection = Projection::of(&**model, &cache, &target)?;
        let mut parts = Parts { model: &**model, cache: &cache, projection: &projection, found: Vec::new() };
        match by {
            By::Layer => {
                parts.embeddings()?;
                for layer in 0..model.n_layers() {
                    parts.at(format!("{layer}_attn_out"), Site::AttnOut, layer)?;
                    parts.at(format!("{layer}_mlp_out"), Site::MlpOut, layer)?;
                }
            }
            By::Head => {
                parts.heads()?;
                for layer in 0..model.n_layers() {
                    parts.at(format!("{layer}_mlp_out"), Site::MlpOut, layer)?;
                }
                parts.embeddings()?;
                parts.biases(false)?;
            }
            By::Neurons { group } => {
                parts.heads()?;
                parts.neurons(group)?;
                parts.embeddings()?;
                parts.biases(true)?;
            }
        }
        parts.found.push(("unembed_bias".to_string(), projection.bias.clone()));
        let (labels, values): (Vec<String>, Vec<Tensor>) = parts.found.into_iter().unzip();
        Ok(Self { labels, values: Tensor::stack(&values, 0)?, logits: target.pick(&logits)? })
    }

    /// What the parts are called, in order.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// What each part adds: `[part, batch, pos]`, in f32.
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// The logits that the model gave, or their differences: `[batch, pos]`, in f32.
    pub fn logits(&self) -> &Tensor {
        &self.logits
    }

    /// The sum of the parts: `[batch, pos]`. It differs from the [logits](Self::logits) where a hook has
    /// changed the residual stream itself, which no part has written.
    pub fn total(&self) -> Result<Tensor> {
        Ok(self.values.sum(0)?)
    }

    /// What one part adds, by its label: `[batch, pos]`.
    pub fn part(&self, label: &str) -> Result<Tensor> {
        match self.labels.iter().position(|known| known == label) {
            Some(number) => Ok(self.values.get(number)?),
            None => {
                Err(ErrorKind::NoSuchPart { label: label.to_string(), known: self.labels.clone() }.into())
            }
        }
    }

    /// The parts at one position of one row; negative positions count from the end.
    pub fn at(&self, row: usize, pos: isize) -> Result<Breakdown> {
        let (_, batch, positions) = self.values.dims3()?;
        let row = place("row", isize::try_from(row).unwrap_or(isize::MAX), batch)?;
        let pos = place("position", pos, positions)?;
        let values = self.values.narrow(1, row, 1)?.narrow(2, pos, 1)?.flatten_all()?.to_vec1::<f32>()?;
        let logit = self.logits.get(row)?.get(pos)?.to_scalar::<f32>()?;
        Ok(Breakdown::new(logit, self.labels.iter().cloned().zip(values).collect()))
    }
}

impl fmt::Display for Attribution {
    /// The last position of every row.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.values.dims().get(1).copied().unwrap_or(0);
        for row in 0..rows {
            let last = self.at(row, -1).map_err(|_| fmt::Error)?;
            let gap = if row == 0 { "" } else { "\n\n" };
            write!(f, "{gap}row {row}, last position\n{last}")?;
        }
        Ok(())
    }
}

/// The points that have to be cached.
fn points<M: Transformer>(model: &M, by: By) -> Vec<String> {
    let sites: &[Site] = match by {
        By::Layer => &[Site::AttnOut, Site::MlpOut],
        By::Head => &[Site::HeadResult, Site::MlpOut],
        By::Neurons { .. } => &[Site::HeadResult, Site::Neurons],
    };
    let embeddings = model.embeddings().into_iter().map(|(_, point)| point);
    let in_layers = (0..model.n_layers()).flat_map(|layer| sites.iter().map(move |site| (*site, layer)));
    let in_layers = in_layers.map(|(site, layer)| model.point(site, layer));
    embeddings.chain(in_layers).chain([model.final_resid()]).collect()
}

/// From what a part writes to what it adds to the target's logit.
struct Projection {
    /// The direction in the residual stream, `[batch, pos, d_model]`.
    direction: Tensor,
    /// The scale of the final norm, `[batch, pos, 1]`.
    scale: Tensor,
    /// What is there without any part, `[batch, pos]`.
    bias: Tensor,
}

impl Projection {
    fn of<M: Transformer>(model: &M, cache: &ActivationCache, target: &Resolved) -> Result<Self> {
        let norm: Norm = model.final_norm()?;
        let unembedding = model.unembedding()?;
        let behind = target.rows_of(&unembedding.weight.t()?)?;
        let resid = cache.try_get(&model.final_resid())?.to_dtype(DType::F32)?;
        let mut bias = match norm.bias_along(&behind)? {
            Some(bias) => bias,
            None => behind.zeros_like()?.sum(D::Minus1)?,
        };
        if let Some(more) = unembedding.bias {
            bias = (bias + target.rows_of(&more.unsqueeze(1)?)?.squeeze(2)?)?;
        }
        Ok(Self { direction: norm.before(&behind)?, scale: norm.scale(&resid)?, bias })
    }

    /// The rows of a weight, `[row, d_model]`, along the direction: `[batch, pos, row]`, before the scale.
    fn of_rows(&self, weight: &Tensor) -> Result<Tensor> {
        let (batch, pos, width) = self.direction.dims3()?;
        // With one matrix for all rows of the batch the weight is not copied for each of them.
        let flat = self.direction.reshape((batch * pos, width))?;
        Ok(flat.matmul(&weight.t()?)?.reshape((batch, pos, ()))?)
    }

    /// `written` is `[batch, pos, d_model]` or broadcasts to it; the result `[batch, pos]`.
    fn of_written(&self, written: &Tensor) -> Result<Tensor> {
        let along = self.direction.broadcast_mul(&written.to_dtype(DType::F32)?)?.sum_keepdim(D::Minus1)?;
        Ok((along / &self.scale)?.squeeze(D::Minus1)?)
    }
}

/// The parts that were found so far, each `[batch, pos]`.
struct Parts<'a, M> {
    model: &'a M,
    cache: &'a ActivationCache,
    projection: &'a Projection,
    found: Vec<(String, Tensor)>,
}

impl<M: Transformer> Parts<'_, M> {
    fn add(&mut self, label: String, written: &Tensor) -> Result<()> {
        self.found.push((label, self.projection.of_written(written)?));
        Ok(())
    }

    fn at(&mut self, label: String, site: Site, layer: usize) -> Result<()> {
        let written = self.cache.try_get(&self.model.point(site, layer))?;
        self.add(label, written)
    }

    fn embeddings(&mut self) -> Result<()> {
        for (label, point) in self.model.embeddings() {
            let written = self.cache.try_get(&point)?;
            self.add(label.to_string(), written)?;
        }
        Ok(())
    }

    fn heads(&mut self) -> Result<()> {
        for layer in 0..self.model.n_layers() {
            // [batch, pos, head, d_model]
            let results = self.cache.try_get(&self.model.point(Site::HeadResult, layer))?;
            for head in 0..self.model.n_heads() {
                self.add(format!("L{layer}H{head}"), &results.get_on_dim(2, head)?)?;
            }
        }
        Ok(())
    }

    fn neurons(&mut self, group: usize) -> Result<()> {
        for layer in 0..self.model.n_layers() {
            // [batch, pos, d_mlp]
            let neurons =
                self.cache.try_get(&self.model.point(Site::Neurons, layer))?.to_dtype(DType::F32)?;
            let weight = self.model.mlp_output(layer)?.weight.to_dtype(DType::F32)?;
            let per_neuron = self.projection.of_rows(&weight)?;
            let added = (neurons * per_neuron)?.broadcast_div(&self.projection.scale)?;
            let count = added.dim(2)?;
            for first in (0..count).step_by(group) {
                let size = group.min(count - first);
                let label = match size {
                    1 => format!("L{layer}N{first}"),
                    _ => format!("L{layer}N{first}-{}", first + size - 1),
                };
                self.found.push((label, added.narrow(2, first, size)?.sum(2)?));
            }
        }
        Ok(())
    }

    /// The biases of attentions, and where `mlps` is true of mlps, as one part.
    fn biases(&mut self, mlps: bool) -> Result<()> {
        let mut sum: Option<Tensor> = None;
        for layer in 0..self.model.n_layers() {
            let of_mlp = if mlps { self.model.mlp_output(layer)?.bias } else { None };
            for bias in [self.model.attn_bias(layer)?, of_mlp].into_iter().flatten() {
                let bias = bias.to_dtype(DType::F32)?;
                sum = Some(match sum {
                    Some(sum) => (sum + bias)?,
                    None => bias,
                });
            }
        }
        match sum {
            Some(sum) => self.add("bias".to_string(), &sum),
            None => Ok(()),
        }
    }
}
