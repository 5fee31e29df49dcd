//! The `config.json` of Hugging Face's folders.

use hookpoint::{Error, Result};
use serde::{Deserialize, Deserializer};

use super::config::{Config, Windowed};
use super::rope::RopeScaling;
use crate::activation::Activation;

/// The kinds of models that are computed in the same way.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Llama,
    Qwen2,
    Mistral,
}

/// What may stand in a file. What is not there has a value that depends on the kind of model; where that is
/// another one than for `null`, there are two options.
#[derive(Deserialize)]
struct File {
    model_type: Option<String>,
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    #[serde(default, deserialize_with = "given")]
    num_key_value_heads: Option<Option<usize>>,
    head_dim: Option<usize>,
    hidden_act: Option<Activation>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    /// As transformers writes it from version 5 on.
    rope_parameters: Option<Rope>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    sliding_window: Option<Option<usize>>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    bos_token_id: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given")]
    eos_token_id: Option<Option<Tokens>>,
    /// Also of other models, which are not computed here.
    partial_rotary_factor: Option<f64>,
}

#[derive(Deserialize, Default)]
struct Rope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Tokens {
    One(u32),
    Several(Vec<u32>),
}

/// Something that is there, be it `null`.
fn given<'d, T: Deserialize<'d>, D: Deserializer<'d>>(from: D) -> std::result::Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl Config {
    /// Reads the text of a `config.json` of Llama, Qwen2 or Mistral, and checks it.
    pub fn from_json(text: &str) -> Result<Self> {
        let file: File = serde_json::from_str(text).map_err(|error| Error::msg(error.to_string()))?;
        let kind = kind(file.model_type.as_deref())?;
        let config = file.config(kind)?;
        config.check()?;
        Ok(config)
    }
}

fn kind(model_type: Option<&str>) -> Result<Kind> {
    match model_type {
        Some("llama") => Ok(Kind::Llama),
        Some("qwen2") => Ok(Kind::Qwen2),
        Some("mistral") => Ok(Kind::Mistral),
        None => Err(Error::msg("the config has no model_type\n  it has to be `llama`, `qwen2` or `mistral`")),
        Some(other) => Err(Error::msg(format!(
            "this is a config for `{other}`, not for `llama`, `qwen2` or `mistral`\n  other models are annotated \
             with `hookpoint annotate`"
        ))),
    }
}

impl File {
    fn config(self, kind: Kind) -> Result<Config> {
        let default = Config::default();
        let hidden_size = self.hidden_size.unwrap_or(default.hidden_size);
        let heads = self.num_attention_heads.unwrap_or(default.num_attention_heads);
        if self.head_dim.is_none() && (heads == 0 || !hidden_size.is_multiple_of(heads)) {
            return Err(Error::msg(format!(
                "hidden_size ({hidden_size}) is not a multiple of num_attention_heads ({heads})"
            )));
        }
        // The others do not ask for these.
        let attention_bias = kind == Kind::Llama && self.attention_bias.unwrap_or(false);
        let rope_scaling = self.rope()?;
        let windowed = self.windowed(kind)?;
        let rope_theta = self.rope_parameters.as_ref().and_then(|rope| rope.rope_theta).or(self.rope_theta);
        Ok(Config {
            vocab_size: self.vocab_size.unwrap_or(match kind {
                Kind::Qwen2 => 151_936,
                Kind::Llama | Kind::Mistral => default.vocab_size,
            }),
            hidden_size,
            intermediate_size: self.intermediate_size.unwrap_or(match kind {
                Kind::Llama => default.intermediate_size,
                Kind::Qwen2 => 22016,
                Kind::Mistral => 14336,
            }),
            num_hidden_layers: self.num_hidden_layers.unwrap_or(default.num_hidden_layers),
            num_attention_heads: heads,
            num_key_value_heads: match (self.num_key_value_heads, kind) {
                (Some(given), _) => given.unwrap_or(heads),
                (None, Kind::Llama) => heads,
                (None, Kind::Qwen2) => 32,
                (None, Kind::Mistral) => 8,
            },
            head_dim: self.head_dim.unwrap_or(hidden_size / heads.max(1)),
            hidden_act: self.hidden_act.unwrap_or(default.hidden_act),
            max_position_embeddings: self.max_position_embeddings.unwrap_or(match kind {
                Kind::Llama => default.max_position_embeddings,
                Kind::Qwen2 => 32768,
                Kind::Mistral => 4096 * 32,
            }),
            rms_norm_eps: self.rms_norm_eps.unwrap_or(default.rms_norm_eps),
            rope_theta: rope_theta.unwrap_or(default.rope_theta),
            rope_scaling,
            tie_word_embeddings: self.tie_word_embeddings.unwrap_or(default.tie_word_embeddings),
            qkv_bias: kind == Kind::Qwen2 || attention_bias,
            o_bias: attention_bias,
            mlp_bias: kind == Kind::Llama && self.mlp_bias.unwrap_or(false),
            sliding_window: self.window(kind)?,
            windowed,
            bos_token_id: match (self.bos_token_id, kind) {
                (Some(given), _) => given,
                (None, Kind::Qwen2) => None,
                (None, Kind::Llama | Kind::Mistral) => default.bos_token_id,
            },
            eos_token_id: match (self.eos_token_id, kind) {
                (Some(Some(Tokens::One(token))), _) => vec![token],
                (Some(Some(Tokens::Several(tokens))), _) => tokens,
                (Some(None), _) | (None, Kind::Qwen2) => Vec::new(),
                (None, Kind::Llama | Kind::Mistral) => default.eos_token_id,
            },
        })
    }

    fn window(&self, kind: Kind) -> Result<Option<usize>> {
        match kind {
            Kind::Mistral => Ok(self.sliding_window.unwrap_or(Some(4096))),
            Kind::Qwen2 if self.use_sliding_window == Some(true) => {
                Ok(self.sliding_window.unwrap_or(Some(4096)))
            }
            Kind::Qwen2 => Ok(None),
            Kind::Llama => match self.sliding_window.flatten() {
                None => Ok(None),
                Some(size) => Err(Error::msg(format!(
                    "the config says that sliding_window is {size}, which a `llama` does not have\n  use \
                     `mistral` as the model_type for a model that was trained with it, or take it out"
                ))),
            },
        }
    }

    fn windowed(&self, kind: Kind) -> Result<Windowed> {
        if let Some(types) = &self.layer_types {
            if kind != Kind::Qwen2 {
                return Err(Error::msg(
                    "the config has layer_types, which only a `qwen2` has here\n  take it out",
                ));
            }
            let windowed = types.iter().map(|name| match name.as_str() {
                "full_attention" => Ok(false),
                "sliding_attention" => Ok(true),
                other => Err(Error::msg(format!(
                    "unknown kind of attention `{other}` in layer_types\n  known are full_attention and \
                     sliding_attention"
                ))),
            });
            return Ok(Windowed::Each(windowed.collect::<Result<_>>()?));
        }
        Ok(Windowed::From(match kind {
            Kind::Qwen2 => self.max_window_layers.unwrap_or(28),
            Kind::Llama | Kind::Mistral => 0,
        }))
    }

    fn rope(&self) -> Result<RopeScaling> {
        let none = Rope::default();
        let rope = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref()).unwrap_or(&none);
        let partial = rope.partial_rotary_factor.or(self.partial_rotary_factor);
        if let Some(part) = partial.filter(|part| *part != 1.) {
            return Err(Error::msg(format!(
                "the config says that partial_rotary_factor is {part}: heads that are turned in part are not \
                 supported"
            )));
        }
        let kind = rope.rope_type.as_deref().unwrap_or("default");
        let number = |name: &str, number: Option<f64>| {
            number.ok_or_else(|| {
                Error::msg(format!("the config has rope_type `{kind}`, which needs `{name}` beside it"))
            })
        };
        match kind {
            "default" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: number("factor", rope.factor)? }),
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: number("factor", rope.factor)?,
                low_freq_factor: number("low_freq_factor", rope.low_freq_factor)?,
                high_freq_factor: number("high_freq_factor", rope.high_freq_factor)?,
                original_max_position_embeddings: number(
                    "original_max_position_embeddings",
                    rope.original_max_position_embeddings,
                )?,
            }),
            other => Err(Error::msg(format!(
                "rotary embeddings of the type `{other}` are not supported\n  supported are default, linear and \
                 llama3"
            ))),
        }
    }
}
