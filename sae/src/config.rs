//! What determines a sparse autoencoder, besides its weights.

use hookpoint::{Error, Result};
use hookpoint_models::weights::check_sizes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How feature activations are made of pre-activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Architecture {
    /// `relu(pre)`: what SAELens calls "standard".
    Relu,
    /// The `k` largest of each row, without what is negative.
    TopK {
        /// How many features a row may have.
        k: usize,
    },
    /// `pre` where it is above the feature's own threshold, and 0 elsewhere.
    JumpRelu,
}

impl Architecture {
    /// The name that SAELens has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Relu => "standard",
            Self::TopK { .. } => "topk",
            Self::JumpRelu => "jumprelu",
        }
    }
}

/// What is done to activations before they are encoded, and undone after they are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Normalization {
    /// Nothing.
    #[default]
    None,
    /// Every row gets the length `sqrt(d_in)`.
    ConstantNormRescale,
    /// Every row gets mean 0 and standard deviation 1.
    LayerNorm,
}

/// The sizes and choices of a sparse autoencoder.
///
/// ```
/// use hookpoint_sae::{Architecture, Config};
///
/// let config = Config::new(64, 512, Architecture::TopK { k: 16 });
/// assert!(config.apply_b_dec_to_input);
/// assert!(config.check().is_ok());
/// let mistake = Config::new(64, 8, Architecture::TopK { k: 16 }).check().unwrap_err();
/// assert!(mistake.to_string().contains("k is 16, and there are 8 features"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How wide activations are.
    pub d_in: usize,
    /// How many features there are.
    pub d_sae: usize,
    /// How feature activations are made.
    pub architecture: Architecture,
    /// Is the decoder's bias taken off before activations are encoded?
    pub apply_b_dec_to_input: bool,
    /// What is done to activations first.
    pub normalization: Normalization,
    /// Are the last two dimensions, heads and d_head, one to the autoencoder? So for SAELens' `hook_z`.
    pub flatten_heads: bool,
    /// For TopK: is every feature as large as what it adds, whatever the length of its direction?
    pub rescale_by_decoder_norm: bool,
    /// What else is known: `model_name`, `hook_name` and so on, by SAELens' names.
    pub metadata: Map<String, Value>,
}

impl Config {
    /// With the decoder's bias taken off the input, and nothing special.
    pub fn new(d_in: usize, d_sae: usize, architecture: Architecture) -> Self {
        Self {
            d_in,
            d_sae,
            architecture,
            apply_b_dec_to_input: true,
            normalization: Normalization::None,
            flatten_heads: false,
            rescale_by_decoder_norm: false,
            metadata: Map::new(),
        }
    }

    /// Notes the point whose activations it is for.
    pub fn for_point(mut self, point: impl Into<String>) -> Self {
        self.metadata.insert("hook_name".to_string(), Value::String(point.into()));
        self
    }

    /// The point whose activations it is for, if that is known. SAELens' names select points of the models of
    /// this crate as they are.
    pub fn point(&self) -> Option<&str> {
        self.metadata.get("hook_name").and_then(Value::as_str)
    }

    /// An error if there is no such autoencoder.
    pub fn check(&self) -> Result<()> {
        check_sizes(&[("d_in", self.d_in), ("d_sae", self.d_sae)])?;
        match self.architecture {
            Architecture::TopK { k } if k == 0 || k > self.d_sae => Err(Error::msg(format!(
                "the config says that k is {k}, and there are {} features\n  k is how many features a row may \
                 have: at least 1, at most all",
                self.d_sae
            ))),
            architecture if self.rescale_by_decoder_norm && !matches!(architecture, Architecture::TopK { .. }) => {
                Err(Error::msg(format!(
                    "rescale_acts_by_decoder_norm is for the architecture topk, not for {}",
                    architecture.name()
                )))
            }
            _ => Ok(()),
        }
    }
}
