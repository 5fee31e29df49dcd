//! The sizes and choices of a Llama.

use hookpoint::{Error, Result};

use super::rope::RopeScaling;
use crate::activation::Activation;
use crate::weights::check_sizes;

/// The sizes and choices of a model of the Llama family, by the names of Hugging Face's `LlamaConfig`:
/// everything that changes what is computed.
///
/// ```
/// use hookpoint_models::llama::{Config, RopeScaling};
///
/// let config = Config::from_json(r#"{
///     "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
///     "rope_scaling": { "rope_type": "linear", "factor": 2.0 }
/// }"#)?;
/// assert_eq!((config.head_dim, config.num_key_value_heads), (16, 2));
/// assert_eq!(config.rope_scaling, RopeScaling::Linear { factor: 2. });
///
/// let mistake = Config::from_json(r#"{ "model_type": "gemma2" }"#).unwrap_err();
/// assert!(mistake.to_string().contains("a config for `gemma2`"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How many tokens there are.
    pub vocab_size: usize,
    /// The width of the residual stream, d_model.
    pub hidden_size: usize,
    /// The width of the mlp, d_mlp.
    pub intermediate_size: usize,
    /// How many blocks there are.
    pub num_hidden_layers: usize,
    /// How many heads each attention has.
    pub num_attention_heads: usize,
    /// How many heads of keys and values there are; several heads of queries share one.
    pub num_key_value_heads: usize,
    /// The width of a head, d_head.
    pub head_dim: usize,
    /// The function on the gate of the mlp.
    pub hidden_act: Activation,
    /// How many positions a prompt may have.
    pub max_position_embeddings: usize,
    /// What is added to the mean square in a norm.
    pub rms_norm_eps: f64,
    /// The base of the rotary embeddings.
    pub rope_theta: f64,
    /// How the rotary embeddings are changed for long texts.
    pub rope_scaling: RopeScaling,
    /// Are the weights of the head those of the embedding?
    pub tie_word_embeddings: bool,
    /// Have queries, keys and values biases?
    pub qkv_bias: bool,
    /// Has the output of the attention a bias?
    pub o_bias: bool,
    /// Have the layers of the mlp biases?
    pub mlp_bias: bool,
    /// How many positions a query sees, its own included, in the blocks that have such a window.
    pub sliding_window: Option<usize>,
    /// Which blocks have it.
    pub windowed: Windowed,
    /// The token with which a text begins.
    pub bos_token_id: Option<u32>,
    /// The tokens with which a text ends.
    pub eos_token_id: Vec<u32>,
}

/// The blocks whose queries see a window only.
#[derive(Clone, Debug, PartialEq)]
pub enum Windowed {
    /// From this one on.
    From(usize),
    /// Those that say so, in order.
    Each(Vec<bool>),
}

impl Default for Config {
    /// Llama 7B, as `LlamaConfig` has it.
    fn default() -> Self {
        Self {
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: 32,
            head_dim: 128,
            hidden_act: Activation::Silu,
            max_position_embeddings: 2048,
            rms_norm_eps: 1e-6,
            rope_theta: 10000.,
            rope_scaling: RopeScaling::None,
            tie_word_embeddings: false,
            qkv_bias: false,
            o_bias: false,
            mlp_bias: false,
            sliding_window: None,
            windowed: Windowed::From(0),
            bos_token_id: Some(1),
            eos_token_id: vec![2],
        }
    }
}

impl Config {
    /// How many positions a query of this block sees, its own included; none where it sees all.
    pub fn window(&self, layer: usize) -> Option<usize> {
        let windowed = match &self.windowed {
            Windowed::From(first) => layer >= *first,
            Windowed::Each(layers) => layers.get(layer).copied().unwrap_or(false),
        };
        self.sliding_window.filter(|_| windowed)
    }

    /// How far from zero weights that write to the residual stream are before training: less, the more
    /// of them there are.
    pub(super) fn residual_spread(&self, spread: f64) -> f64 {
        spread / (2. * self.num_hidden_layers.max(1) as f64).sqrt()
    }

    /// Can there be such a model?
    pub fn check(&self) -> Result<()> {
        check_sizes(&[
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_position_embeddings),
            ("sliding_window", self.sliding_window.unwrap_or(1)),
        ])?;
        let (heads, shared) = (self.num_attention_heads, self.num_key_value_heads);
        if heads % shared != 0 {
            return Err(Error::msg(format!(
                "num_attention_heads ({heads}) is not a multiple of num_key_value_heads ({shared})"
            )));
        }
        if !self.head_dim.is_multiple_of(2) {
            let width = self.head_dim;
            return Err(Error::msg(format!(
                "rotary embeddings turn pairs of numbers, and head_dim ({width}) is odd"
            )));
        }
        let numbers = [("rms_norm_eps", self.rms_norm_eps, 0.), ("rope_theta", self.rope_theta, 1.)];
        for (name, number, least) in numbers {
            if !(number.is_finite() && number >= least) {
                return Err(Error::msg(format!("the config says that {name} is {number}")));
            }
        }
        if let Windowed::Each(layers) = &self.windowed {
            if layers.len() != self.num_hidden_layers {
                return Err(Error::msg(format!(
                    "layer_types speaks of {} blocks, and num_hidden_layers of {}",
                    layers.len(),
                    self.num_hidden_layers
                )));
            }
        }
        self.rope_scaling.check(self.head_dim)
    }
}
