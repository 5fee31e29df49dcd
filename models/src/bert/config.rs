//! The sizes and choices of a BERT.

use hookpoint::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::activation::Activation;
use crate::weights::check_sizes;

/// The sizes and choices of a BERT, by the names of Hugging Face's `BertConfig`: everything in it that changes
/// what is computed. What a `config.json` leaves out has the value that it has there.
///
/// ```
/// use hookpoint_models::bert::Config;
///
/// let config = Config::from_json(r#"{ "model_type": "bert", "hidden_size": 64, "num_attention_heads": 4 }"#)?;
/// assert_eq!((config.d_head(), config.type_vocab_size, config.layer_norm_eps), (16, 2, 1e-12));
///
/// let mistake = Config::from_json(r#"{ "position_embedding_type": "relative_key" }"#).unwrap_err();
/// assert!(mistake.to_string().contains("relative_key"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// How many tokens there are.
    pub vocab_size: usize,
    /// The width of the residual stream, d_model.
    pub hidden_size: usize,
    /// How many blocks there are.
    pub num_hidden_layers: usize,
    /// How many heads each attention has.
    pub num_attention_heads: usize,
    /// The width of the mlp, d_mlp.
    pub intermediate_size: usize,
    /// The function between the layers of the mlp.
    pub hidden_act: Activation,
    /// How many positions a text may have.
    pub max_position_embeddings: usize,
    /// How many types of tokens there are, such as those of a first and of a second sentence.
    pub type_vocab_size: usize,
    /// What is added to the variance in a layer norm.
    pub layer_norm_eps: f64,
    /// Has to be "absolute".
    pub position_embedding_type: String,
    /// Has to be "bert".
    pub model_type: String,
    /// Has to be false: a decoder looks at what came before only.
    pub is_decoder: bool,
}

impl Default for Config {
    /// BERT base, 110 million parameters.
    fn default() -> Self {
        Self {
            vocab_size: 30522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: Activation::Gelu,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            layer_norm_eps: 1e-12,
            position_embedding_type: "absolute".to_string(),
            model_type: "bert".to_string(),
            is_decoder: false,
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
        self.hidden_size / self.num_attention_heads.max(1)
    }

    /// Can there be such a model?
    pub fn check(&self) -> Result<()> {
        if self.model_type != "bert" {
            let found = &self.model_type;
            return Err(Error::msg(format!(
                "this is a config for `{found}`, not for `bert`\n  other models are annotated with `hookpoint annotate`"
            )));
        }
        check_sizes(&[
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
        ])?;
        let (width, heads) = (self.hidden_size, self.num_attention_heads);
        if width % heads != 0 {
            return Err(Error::msg(format!(
                "hidden_size ({width}) is not a multiple of num_attention_heads ({heads})"
            )));
        }
        if !(self.layer_norm_eps.is_finite() && self.layer_norm_eps >= 0.) {
            return Err(Error::msg(format!(
                "the config says that layer_norm_eps is {}",
                self.layer_norm_eps
            )));
        }
        if self.position_embedding_type != "absolute" {
            return Err(Error::msg(format!(
                "position_embedding_type is `{}`; only `absolute` is supported",
                self.position_embedding_type
            )));
        }
        if self.is_decoder {
            return Err(Error::msg("a BERT that is a decoder is not supported: is_decoder has to be false"));
        }
        Ok(())
    }
}
