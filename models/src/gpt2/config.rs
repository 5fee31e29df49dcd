//! What Hugging Face's `config.json` says about a GPT-2.

use hookpoint::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::activation::Activation;
use crate::weights::check_sizes;

/// The sizes and choices of a GPT-2, by the names of Hugging Face's `GPT2Config`: everything in it that
/// changes what is computed. What a `config.json` leaves out has the value that it has there.
///
/// ```
/// use hookpoint_models::gpt2::Config;
///
/// let config = Config::from_json(r#"{ "n_layer": 2, "n_embd": 64, "n_head": 4 }"#)?;
/// assert_eq!((config.d_head(), config.d_mlp(), config.n_positions), (16, 256, 1024));
///
/// let mistake = Config::from_json(r#"{ "n_embd": 10, "n_head": 4 }"#).unwrap_err();
/// assert!(mistake.to_string().contains("n_embd (10) is not a multiple of n_head (4)"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// How many tokens there are.
    pub vocab_size: usize,
    /// How many positions a prompt may have.
    #[serde(alias = "max_position_embeddings")]
    pub n_positions: usize,
    /// The width of the residual stream, d_model.
    #[serde(alias = "hidden_size")]
    pub n_embd: usize,
    /// How many blocks there are.
    #[serde(alias = "num_hidden_layers")]
    pub n_layer: usize,
    /// How many heads each attention has.
    #[serde(alias = "num_attention_heads")]
    pub n_head: usize,
    /// The width of the mlp; four times the residual stream where it is not given.
    pub n_inner: Option<usize>,
    /// The function between the layers of the mlp.
    pub activation_function: Activation,
    /// What is added to the variance in a layer norm.
    pub layer_norm_epsilon: f64,
    /// Are attention scores divided by the root of the width of a head?
    pub scale_attn_weights: bool,
    /// Are attention scores divided by the number of the block, from 1?
    pub scale_attn_by_inverse_layer_idx: bool,
    /// Are attention scores and patterns computed in f32, whatever the dtype of the model?
    pub reorder_and_upcast_attn: bool,
    /// Are the weights of the head those of the embedding?
    pub tie_word_embeddings: bool,
    /// The token with which a text begins.
    pub bos_token_id: Option<u32>,
    /// The token with which a text ends.
    pub eos_token_id: Option<u32>,
    /// Has to be "gpt2".
    pub model_type: String,
    /// Has to be false: there is no encoder here to attend to.
    pub add_cross_attention: bool,
}

impl Default for Config {
    /// GPT-2 small, 124 million parameters.
    fn default() -> Self {
        Self {
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: Activation::GeluTanh,
            layer_norm_epsilon: 1e-5,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            reorder_and_upcast_attn: false,
            tie_word_embeddings: true,
            bos_token_id: Some(50256),
            eos_token_id: Some(50256),
            model_type: "gpt2".to_string(),
            add_cross_attention: false,
        }
    }
}

impl Config {
    /// Reads the text of a `config.json`, and checks it.
    pub fn from_json(text: &str) -> Result<Self> {
        let config: Self = serde_json::from_str(text).map_err(|error| Error::msg(error.to_string()))?;
        config.check()?;
        Ok(config)
    }

    /// The width of a head.
    pub fn d_head(&self) -> usize {
        self.n_embd / self.n_head.max(1)
    }

    /// The width of the mlp.
    pub fn d_mlp(&self) -> usize {
        self.n_inner.unwrap_or(4 * self.n_embd)
    }

    /// How far from zero weights that write to the residual stream are before training: less, the more
    /// of them there are.
    pub(super) fn residual_spread(&self, spread: f64) -> f64 {
        spread / (2. * self.n_layer.max(1) as f64).sqrt()
    }

    /// Can there be such a model?
    pub fn check(&self) -> Result<()> {
        check_sizes(&[
            ("vocab_size", self.vocab_size),
            ("n_positions", self.n_positions),
            ("n_embd", self.n_embd),
            ("n_head", self.n_head),
            ("n_inner", self.n_inner.unwrap_or(1)),
        ])?;
        if !self.n_embd.is_multiple_of(self.n_head) {
            let (width, heads) = (self.n_embd, self.n_head);
            return Err(Error::msg(format!("n_embd ({width}) is not a multiple of n_head ({heads})")));
        }
        if !(self.layer_norm_epsilon.is_finite() && self.layer_norm_epsilon >= 0.) {
            let epsilon = self.layer_norm_epsilon;
            return Err(Error::msg(format!("the config says that layer_norm_epsilon is {epsilon}")));
        }
        if self.model_type != "gpt2" {
            let found = &self.model_type;
            return Err(Error::msg(format!(
                "this is a config for `{found}`, not for `gpt2`\n  other models are annotated with \
                 `hookpoint annotate`"
            )));
        }
        if self.add_cross_attention {
            return Err(Error::msg("a GPT-2 with cross-attention cannot be run: there is no encoder"));
        }
        Ok(())
    }
}
