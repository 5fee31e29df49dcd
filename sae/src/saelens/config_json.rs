//! SAELens' `cfg.json`, as version 6 writes it and as earlier ones did.

use candle_core::DType;
use hookpoint::{Error, Result};
use serde_json::{json, Map, Value};

use crate::config::{Architecture, Config, Normalization};

/// Where earlier versions had everything on one level: what belongs to `metadata` now, with its new name.
const FORMERLY: [(&str, &str); 9] = [
    ("model_name", "model_name"),
    ("hook_name", "hook_name"),
    ("hook_point", "hook_name"),
    ("hook_layer", "hook_layer"),
    ("hook_head_index", "hook_head_index"),
    ("hook_point_head_index", "hook_head_index"),
    ("context_size", "context_size"),
    ("dataset_path", "dataset_path"),
    ("prepend_bos", "prepend_bos"),
];
/// From this version on there is `metadata`.
const VERSION: &str = "6.0.0";

impl Config {
    /// Reads the text of a `cfg.json`.
    ///
    /// ```
    /// use hookpoint_sae::{Architecture, Config};
    ///
    /// let text = r#"{ "architecture": "topk", "d_in": 8, "d_sae": 32, "k": 4,
    ///                 "metadata": { "hook_name": "blocks.1.hook_resid_post" } }"#;
    /// let config = Config::from_json(text)?;
    /// assert_eq!(config.architecture, Architecture::TopK { k: 4 });
    /// assert_eq!(config.point(), Some("blocks.1.hook_resid_post"));
    ///
    /// let mistake = Config::from_json(r#"{ "architecture": "gated", "d_in": 8, "d_sae": 32 }"#).unwrap_err();
    /// assert!(mistake.to_string().contains("standard, topk and jumprelu"));
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let fields: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| Error::msg(format!("this is no config of an autoencoder: {error}")))?;
        let read = Fields(&fields);
        let metadata = read.metadata()?;
        let mut config = Self::new(read.size("d_in")?, read.size("d_sae")?, read.architecture()?);
        config.apply_b_dec_to_input = read.flag("apply_b_dec_to_input", true)?;
        config.rescale_by_decoder_norm = read.flag("rescale_acts_by_decoder_norm", false)?;
        config.normalization = read.normalization()?;
        let hook_name = metadata.get("hook_name").and_then(Value::as_str).unwrap_or_default();
        config.flatten_heads = match read.text("reshape_activations")? {
            Some("none") => false,
            Some("hook_z") => true,
            // What it meant before there was the field.
            None => hook_name.contains("hook_z"),
            Some(other) => return Err(unknown("reshape_activations", other, "none and hook_z")),
        };
        config.metadata = metadata;
        config.check()?;
        Ok(config)
    }

    /// The text of a `cfg.json` for weights of this type, as SAELens reads it.
    pub fn to_json(&self, dtype: DType) -> Result<String> {
        let dtype = match dtype {
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            other => return Err(Error::msg(format!("SAELens has no autoencoders in {}", other.as_str()))),
        };
        let mut metadata = self.metadata.clone();
        metadata.entry("sae_lens_version").or_insert_with(|| VERSION.into());
        let mut fields = json!({
            "d_in": self.d_in,
            "d_sae": self.d_sae,
            "dtype": dtype,
            "device": "cpu",
            "apply_b_dec_to_input": self.apply_b_dec_to_input,
            "normalize_activations": match self.normalization {
                Normalization::None => "none",
                Normalization::ConstantNormRescale => "constant_norm_rescale",
                Normalization::LayerNorm => "layer_norm",
            },
            "reshape_activations": if self.flatten_heads { "hook_z" } else { "none" },
            "metadata": metadata,
            "architecture": self.architecture.name(),
        });
        if let (Architecture::TopK { k }, Some(fields)) = (self.architecture, fields.as_object_mut()) {
            fields.insert("k".to_string(), k.into());
            fields.insert("rescale_acts_by_decoder_norm".to_string(), self.rescale_by_decoder_norm.into());
        }
        serde_json::to_string_pretty(&fields)
            .map_err(|error| Error::msg(format!("the config cannot be written: {error}")))
    }
}

/// The fields of a file, any of which may be missing or of the wrong type.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// What is there, if it is not null.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn size(&self, name: &str) -> Result<usize> {
        let value =
            self.get(name).ok_or_else(|| Error::msg(format!("the config does not say what {name} is")))?;
        count(name, value)
    }

    fn flag(&self, name: &str, or: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(or),
            Some(value) => value.as_bool().ok_or_else(|| wrong(name, value, "true or false")),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let text = |value: &'a Value| value.as_str().ok_or_else(|| wrong(name, value, "a text"));
        self.get(name).map(text).transpose()
    }

    fn architecture(&self) -> Result<Architecture> {
        let function = match self.text("activation_fn_str")? {
            Some(function) => function,
            None => self.text("activation_fn")?.unwrap_or("relu"),
        };
        let architecture = match (self.text("architecture")?.unwrap_or("standard"), function) {
            // Before it was an architecture.
            ("standard", "topk") => "topk",
            (architecture, "relu") => architecture,
            ("topk", "topk") => "topk",
            (_, other) => return Err(unknown("activation_fn", other, "relu and topk")),
        };
        match architecture {
            "standard" => Ok(Architecture::Relu),
            "jumprelu" => Ok(Architecture::JumpRelu),
            "topk" => {
                let earlier = || self.get("activation_fn_kwargs").and_then(|kwargs| kwargs.get("k"));
                let k = self.get("k").or_else(earlier);
                let k =
                    k.ok_or_else(|| Error::msg("the config of a topk autoencoder does not say what k is"))?;
                Ok(Architecture::TopK { k: count("k", k)? })
            }
            other => Err(unknown("architecture", other, "standard, topk and jumprelu")),
        }
    }

    fn normalization(&self) -> Result<Normalization> {
        match self.get("normalize_activations") {
            // Once it was a flag, for a factor that SAELens folds into the weights.
            None | Some(Value::Bool(_)) => Ok(Normalization::None),
            Some(Value::String(name)) => match name.as_str() {
                // The last two say how it was trained; the weights have it in them.
                "none" | "expected_average_only_in" | "covariance_whitening" => Ok(Normalization::None),
                "constant_norm_rescale" => Ok(Normalization::ConstantNormRescale),
                "layer_norm" => Ok(Normalization::LayerNorm),
                other => {
                    Err(unknown("normalize_activations", other, "none, constant_norm_rescale and layer_norm"))
                }
            },
            Some(other) => Err(wrong("normalize_activations", other, "a text")),
        }
    }

    fn metadata(&self) -> Result<Map<String, Value>> {
        let mut metadata = match self.get("metadata") {
            None => Map::new(),
            Some(Value::Object(metadata)) => metadata.clone(),
            Some(other) => return Err(wrong("metadata", other, "an object")),
        };
        for (formerly, now) in FORMERLY {
            if let Some(value) = self.get(formerly) {
                metadata.entry(now).or_insert_with(|| value.clone());
            }
        }
        Ok(metadata)
    }
}

fn count(name: &str, value: &Value) -> Result<usize> {
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| wrong(name, value, "a whole number"))
}

fn wrong(name: &str, value: &Value, expected: &str) -> Error {
    let found: String = value.to_string().chars().take(60).collect();
    Error::msg(format!("the config says that {name} is {found}; it has to be {expected}"))
}

fn unknown(name: &str, found: &str, known: &str) -> Error {
    let found: String = found.chars().take(60).collect();
    Error::msg(format!("the config says that {name} is `{found}`, which is not known here; {known} are"))
}
