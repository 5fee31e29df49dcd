//! The model: an encoder to many features, of which few are active, and a decoder back.

use candle_core::{DType, Device, Module, Result, Tensor, D};
use hookpoint::prelude::*;
use hookpoint_models::bundle;
use hookpoint_models::init::Init;

use super::config::{Architecture, Config};
use super::top_k::positive_top_k;

/// What thresholds are before training.
pub(super) const THRESHOLD: f32 = 0.01;

/// A sparse autoencoder: `activation((x - b_dec) W_enc + b_enc) W_dec + b_dec`.
///
/// Its points have SAELens' names: `hook_sae_input`, `hook_sae_acts_pre`, `hook_sae_acts_post`,
/// `hook_sae_recons`, and with the error term `hook_sae_error`.
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint_sae::{Architecture, Config, Sae};
///
/// let config = Config::new(4, 16, Architecture::TopK { k: 2 });
/// let sae = Hooked::new(Sae::random(config, 0, &Device::Cpu)?);
/// let x = Tensor::new(&[[1f32, -2., 3., 0.5]], &Device::Cpu)?;
/// let (_, cache) = sae.run_with_cache(["hook_sae_acts_post", "hook_sae_recons"], |m| m.forward(&x))?;
/// let active = cache["hook_sae_acts_post"].gt(0f32)?.to_dtype(candle_core::DType::F32)?;
/// assert_eq!(active.sum_all()?.to_scalar::<f32>()?, 2.);
/// assert_eq!(cache["hook_sae_recons"].dims(), x.dims());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, AutoHook)]
pub struct Sae {
    #[hook(name = "W_enc")]
    w_enc: Tensor,
    b_enc: Tensor,
    #[hook(name = "W_dec")]
    w_dec: Tensor,
    b_dec: Tensor,
    threshold: Option<Tensor>,
    #[hook(skip)]
    config: Config,
}

/// The tensors of an autoencoder, by SAELens' names.
#[derive(Clone, Debug)]
pub struct Weights {
    /// `[d_in, d_sae]`
    pub w_enc: Tensor,
    /// `[d_sae]`
    pub b_enc: Tensor,
    /// `[d_sae, d_in]`: row by row the directions of the features.
    pub w_dec: Tensor,
    /// `[d_in]`
    pub b_dec: Tensor,
    /// `[d_sae]`, for JumpReLU only.
    pub threshold: Option<Tensor>,
}

impl Sae {
    /// From tensors, which have to fit the config.
    pub fn new(config: Config, weights: Weights) -> hookpoint::Result<Self> {
        config.check()?;
        let Weights { w_enc, b_enc, w_dec, b_dec, threshold } = weights;
        let (d_in, d_sae) = (config.d_in, config.d_sae);
        let fits = |name: &str, tensor: &Tensor, shape: &[usize]| match tensor.dims() == shape {
            true if tensor.dtype() == w_enc.dtype() && tensor.dtype().is_float() => Ok(()),
            true => Err(hookpoint::Error::msg(format!(
                "`{name}` has dtype {:?}, and W_enc has {:?}\n  all weights have to be of one float type",
                tensor.dtype(),
                w_enc.dtype()
            ))),
            false => Err(hookpoint::Error::msg(format!(
                "`{name}` has shape {:?}, and the config asks for {shape:?}",
                tensor.dims()
            ))),
        };
        fits("W_enc", &w_enc, &[d_in, d_sae])?;
        fits("b_enc", &b_enc, &[d_sae])?;
        fits("W_dec", &w_dec, &[d_sae, d_in])?;
        fits("b_dec", &b_dec, &[d_in])?;
        match (&threshold, config.architecture) {
            (Some(threshold), Architecture::JumpRelu) => fits("threshold", threshold, &[d_sae])?,
            (None, Architecture::JumpRelu) => {
                return Err(hookpoint::Error::msg(
                    "a JumpReLU autoencoder needs a `threshold` for each feature",
                ))
            }
            (Some(_), other) => {
                return Err(hookpoint::Error::msg(format!(
                    "the architecture {} has no `threshold`; that of jumprelu has",
                    other.name()
                )))
            }
            (None, _) => {}
        }
        Ok(Self { w_enc, b_enc, w_dec, b_dec, threshold, config })
    }

    /// As before training: directions of length 1, an encoder that is the transposed decoder, biases of zero.
    /// Equal seeds give equal weights.
    pub fn random(config: Config, seed: u64, device: &Device) -> hookpoint::Result<Self> {
        config.check()?;
        let (d_in, d_sae) = (config.d_in, config.d_sae);
        let w_dec = Init::new(seed).uniform(d_sae, d_in, 1., device)?;
        let w_dec = w_dec.broadcast_div(&w_dec.sqr()?.sum_keepdim(1)?.sqrt()?)?;
        let threshold = match config.architecture {
            Architecture::JumpRelu => Some(Tensor::full(THRESHOLD, d_sae, device)?),
            _ => None,
        };
        let weights = Weights {
            w_enc: w_dec.t()?.contiguous()?,
            b_enc: Tensor::zeros(d_sae, DType::F32, device)?,
            w_dec,
            b_dec: Tensor::zeros(d_in, DType::F32, device)?,
            threshold,
        };
        Self::new(config, weights)
    }

    /// Sizes and choices.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The same weights with another config, as to note what the autoencoder is for.
    pub fn with_config(self, config: Config) -> hookpoint::Result<Self> {
        Self::new(config, self.weights())
    }

    /// The tensors.
    pub fn weights(&self) -> Weights {
        Weights {
            w_enc: self.w_enc.clone(),
            b_enc: self.b_enc.clone(),
            w_dec: self.w_dec.clone(),
            b_dec: self.b_dec.clone(),
            threshold: self.threshold.clone(),
        }
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        self.w_enc.device()
    }

    /// What it computes in.
    pub fn dtype(&self) -> DType {
        self.w_enc.dtype()
    }

    /// What a feature adds to activations where it is 1: `[d_in]`.
    pub fn direction(&self, feature: usize) -> hookpoint::Result<Tensor> {
        if feature >= self.config.d_sae {
            return Err(hookpoint::Error::msg(format!(
                "there is no feature {feature}: they are numbered from 0 to {}",
                self.config.d_sae - 1
            )));
        }
        Ok(self.w_dec.get(feature)?)
    }

    /// Feature activations `[.., d_sae]` of activations `[.., d_in]`.
    pub fn encode(&self, x: &Tensor) -> Result<Tensor> {
        self.activate(
            &self
                .pre_activations(&self.config.scaled(&self.config.flat(&x.to_dtype(self.dtype())?)?)?.rows)?,
        )
    }

    /// Activations `[.., d_in]` of feature activations `[.., d_sae]`. Where rows are normalized, what is lost by
    /// that cannot come back here, as it does in `forward`.
    pub fn decode(&self, acts: &Tensor) -> Result<Tensor> {
        self.reconstructed(acts)
    }

    /// `[d_sae]`: how long the directions are.
    fn decoder_norms(&self) -> Result<Tensor> {
        self.w_dec.sqr()?.sum(D::Minus1)?.sqrt()
    }
}

#[auto_hook]
impl Sae {
    /// `[.., d_sae]`
    fn pre_activations(&self, x: &Tensor) -> Result<Tensor> {
        let x = match self.config.apply_b_dec_to_input {
            true => x.broadcast_sub(&self.b_dec)?,
            false => x.clone(),
        };
        x.broadcast_matmul(&self.w_enc)?.broadcast_add(&self.b_enc)
    }

    /// `[.., d_sae]` to `[.., d_sae]`
    fn activate(&self, pre: &Tensor) -> Result<Tensor> {
        match (self.config.architecture, &self.threshold) {
            (Architecture::TopK { k }, _) => {
                let pre = match self.config.rescale_by_decoder_norm {
                    true => pre.broadcast_mul(&self.decoder_norms()?)?,
                    false => pre.clone(),
                };
                let mask = top_k_mask(&pre, k)?.to_dtype(pre.dtype())?;
                pre * mask
            }
            (Architecture::JumpRelu, Some(threshold)) => {
                let above = pre.broadcast_sub(threshold)?;
                pre.relu()? * above.gt(0.)?.to_dtype(pre.dtype())?
            }
            _ => pre.relu(),
        }
    }

    /// `[.., d_in]`
    fn reconstructed(&self, acts: &Tensor) -> Result<Tensor> {
        let acts = match self.config.rescale_by_decoder_norm {
            true => acts.broadcast_div(&self.decoder_norms()?)?,
            false => acts.clone(),
        };
        acts.broadcast_matmul(&self.w_dec)?.broadcast_add(&self.b_dec)
    }

    /// Reconstructs `x`, `[.., d_in]`, and adds what `clean`, a reconstruction of it, misses. So where nothing is
    /// changed inside, this is `x`; and what is changed inside acts as it is, whatever is missed.
    ///
    /// `clean` is what `forward` gives without hooks. [`Splice`](super::Splice) takes care of that.
    pub fn forward_with_error(&self, x: &Tensor, clean: &Tensor) -> Result<Tensor> {
        let sae_output = self.forward(x)?;
        let sae_error = (x.to_dtype(clean.dtype())? - clean)?;
        sae_output + sae_error
    }
}

#[auto_hook]
impl Module for Sae {
    /// Reconstructs `x`, `[.., d_in]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let sae_input = self.config.flat(&x.to_dtype(self.dtype())?)?;
        let scaled = self.config.scaled(&sae_input)?;
        // [.., d_sae]
        let sae_acts_pre = self.pre_activations(&scaled.rows)?;
        let sae_acts_post = self.activate(&sae_acts_pre)?;
        // [.., d_in]
        let sae_recons = self.reconstructed(&sae_acts_post)?;
        scaled.undo(sae_recons)?.reshape(x.dims())
    }
}

/// 1 where a number is among the `k` largest of its row and above 0, and 0 elsewhere. It is made on the CPU, and
/// gradients see it as given.
fn top_k_mask(pre: &Tensor, k: usize) -> Result<Tensor> {
    let width = pre.dim(D::Minus1)?;
    let numbers: Vec<f32> = pre.detach().to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
    let mut mask = vec![0u8; numbers.len()];
    let mut kept = Vec::new();
    for (row, mask) in numbers.chunks(width.max(1)).zip(mask.chunks_mut(width.max(1))) {
        positive_top_k(row, k, &mut kept, |place| {
            if let Some(place) = mask.get_mut(place) {
                *place = 1;
            }
        });
    }
    Tensor::from_vec(mask, pre.shape(), &Device::Cpu)?.to_device(pre.device())
}

bundle! {
    "sae (relu)",
    model: |device| Sae::random(Config::new(6, 12, Architecture::Relu), 1, device),
    input: |device| Init::new(2).uniform(4, 6, 1., device),
    run: |m, x| m.forward(x),
}

bundle! {
    "sae (topk)",
    model: |device| Sae::random(Config::new(6, 12, Architecture::TopK { k: 3 }), 1, device),
    input: |device| Init::new(2).uniform(4, 6, 1., device),
    run: |m, x| m.forward(x),
}

bundle! {
    "sae (jumprelu)",
    model: |device| Sae::random(Config::new(6, 12, Architecture::JumpRelu), 1, device),
    input: |device| Init::new(2).uniform(4, 6, 1., device),
    run: |m, x| m.forward_with_error(x, &Tensor::zeros_like(x)?),
}
