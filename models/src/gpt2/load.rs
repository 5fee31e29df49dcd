//! A GPT-2 from a folder, as Hugging Face's `save_pretrained` writes it; from the hub; from a seed.

use std::path::Path;

use candle_core::{DType, Device};
use candle_nn::VarBuilder;
use hookpoint::Result;

use super::config::Config;
use super::model::Gpt2;
use crate::language::{no_tokenizer, Tokenizer};
use crate::weights::{seeded, Folder};

impl Gpt2 {
    /// Loads `config.json`, `model.safetensors` (or the files that `model.safetensors.index.json` names)
    /// and, if it is there, `tokenizer.json`. The weights, F32, F16 or BF16, are converted to `dtype`.
    pub fn from_dir(path: impl AsRef<Path>, dtype: DType, device: &Device) -> Result<Self> {
        let folder = Folder::open(path.as_ref(), "a GPT-2", dtype)?;
        let config = folder.config(Config::from_json)?;
        let weights = folder.weights(&["transformer.h.", "h."], config.n_layer)?;
        let vb = VarBuilder::from_backend(Box::new(&weights), dtype, device.clone());
        let mut model = Self::load(vb, &config)?;
        model.tokenizer = folder.tokenizer()?;
        Ok(model)
    }

    /// Loads a model of the hub by its name, such as `openai-community/gpt2`. Files that are not in the
    /// hub's cache yet are downloaded, with a progress bar. `HF_HOME` says where the cache is.
    ///
    /// ```no_run
    /// use candle_core::{DType, Device};
    /// use hookpoint_models::gpt2::Gpt2;
    ///
    /// let model = Gpt2::from_hub("openai-community/gpt2", DType::F32, &Device::Cpu)?;
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
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
        self.tokenizer.as_ref().ok_or_else(no_tokenizer)
    }

    /// The same model with this tokenizer.
    pub fn with_tokenizer(mut self, tokenizer: Tokenizer) -> Self {
        self.tokenizer = Some(tokenizer);
        self
    }
}
