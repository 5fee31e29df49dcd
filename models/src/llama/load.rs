//! A Llama from a folder, as Hugging Face's `save_pretrained` writes it; from the hub; from a seed.

use std::path::Path;

use candle_core::{DType, Device};
use candle_nn::VarBuilder;
use hookpoint::{Error, Result};

use super::config::Config;
use super::model::Llama;
use crate::language::{no_tokenizer, Tokenizer};
use crate::weights::{seeded, Folder};

impl Llama {
    /// Loads `config.json`, `model.safetensors` (or the files that `model.safetensors.index.json` names)
    /// and, if it is there, `tokenizer.json`. The weights, F32, F16 or BF16, are converted to `dtype`.
    pub fn from_dir(path: impl AsRef<Path>, dtype: DType, device: &Device) -> Result<Self> {
        let folder = Folder::open(path.as_ref(), "a Llama", dtype)?;
        let config = folder.config(Config::from_json)?;
        let weights = folder.weights(&["model.layers.", "layers."], config.num_hidden_layers)?;
        let vb = VarBuilder::from_backend(Box::new(&weights), dtype, device.clone());
        let mut model = Self::load(vb, &config)?;
        // Tables that old checkpoints carry, and a head that is the embedding once more.
        weights.check_all_asked(|name| {
            name.ends_with("rotary_emb.inv_freq") || config.tie_word_embeddings && name == "lm_head.weight"
        })?;
        model.tokenizer = folder.tokenizer()?;
        Ok(model)
    }

    /// Loads a folder as [`from_dir`](Self::from_dir) does, or a file as [`from_gguf`](Self::from_gguf) does.
    pub fn from_path(path: impl AsRef<Path>, dtype: DType, device: &Device) -> Result<Self> {
        match path.as_ref().is_file() {
            true => Self::from_gguf(path, dtype, device),
            false => Self::from_dir(path, dtype, device),
        }
    }

    /// Loads a model of the hub by its name, such as `HuggingFaceTB/SmolLM2-135M`. Files that are not in the
    /// hub's cache yet are downloaded, with a progress bar. `HF_HOME` says where the cache is.
    #[cfg(feature = "hub")]
    pub fn from_hub(name: &str, dtype: DType, device: &Device) -> Result<Self> {
        Self::from_dir(crate::weights::hub::fetch(name)?, dtype, device)
    }

    /// A model as it is before training. Equal seeds give equal weights, on every machine.
    pub fn random(config: &Config, seed: u64, device: &Device) -> Result<Self> {
        Ok(Self::load(seeded(seed, device), config)?)
    }

    /// The tokenizer that came with the model.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        let why = || {
            match &self.no_tokenizer {
            Some(why) => Error::msg(format!(
                "this model came without a tokenizer that can be used: {why}\n  give one to `with_tokenizer`, such \
                 as that of its `tokenizer.json`"
            )),
            None => no_tokenizer(),
        }
        };
        self.tokenizer.as_ref().ok_or_else(why)
    }

    /// The same model with this tokenizer.
    pub fn with_tokenizer(mut self, tokenizer: Tokenizer) -> Self {
        self.tokenizer = Some(tokenizer);
        self
    }
}
