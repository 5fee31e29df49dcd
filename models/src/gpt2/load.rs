//! A GPT-2 from a folder, as Hugging Face's `save_pretrained` writes it.

use std::path::Path;

use candle_core::{DType, Device};
use candle_nn::VarBuilder;
use hookpoint::{Error, ErrorKind, Result};

use super::checkpoint::Checkpoint;
use super::config::Config;
use super::model::Gpt2;
use super::tokenizer::Tokenizer;

impl Gpt2 {
    /// Loads `config.json`, `model.safetensors` (or the files that `model.safetensors.index.json` names)
    /// and, if it is there, `tokenizer.json`. The weights, F32, F16 or BF16, are converted to `dtype`.
    pub fn from_dir(path: impl AsRef<Path>, dtype: DType, device: &Device) -> Result<Self> {
        let folder = path.as_ref();
        if !dtype.is_float() {
            let name = dtype.as_str();
            return Err(Error::msg(format!("a GPT-2 cannot compute in {name}: use F32, F16 or BF16")));
        }
        let config = config(folder)?;
        let checkpoint = Checkpoint::open(folder)?;
        check_blocks(folder, &checkpoint, &config)?;
        let vb = VarBuilder::from_backend(Box::new(checkpoint), dtype, device.clone());
        let mut model = Self::load(vb, &config)?;
        let tokenizer = folder.join("tokenizer.json");
        if tokenizer.exists() {
            model.tokenizer = Some(Tokenizer::from_file(tokenizer)?);
        }
        Ok(model)
    }

    /// The tokenizer that came with the model.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        let missing =
            "this model came without a tokenizer\n  put its `tokenizer.json` into the folder that it \
                       is loaded from, or give one to `with_tokenizer`";
        self.tokenizer.as_ref().ok_or_else(|| Error::msg(missing))
    }

    /// The same model with this tokenizer.
    pub fn with_tokenizer(mut self, tokenizer: Tokenizer) -> Self {
        self.tokenizer = Some(tokenizer);
        self
    }
}

fn config(folder: &Path) -> Result<Config> {
    let path = folder.join("config.json");
    if !folder.is_dir() {
        return Err(Error::msg(format!(
            "{}: there is no such folder\n  give the folder of a checkpoint, with config.json and model.safetensors",
            folder.display()
        )));
    }
    let text = std::fs::read_to_string(&path)
        .map_err(|source| ErrorKind::Io { path: path.display().to_string(), source })?;
    Config::from_json(&text).map_err(|error| Error::msg(format!("{}: {error}", path.display())))
}

/// Blocks that the config does not speak of would be left out without a word.
fn check_blocks(folder: &Path, checkpoint: &Checkpoint, config: &Config) -> Result<()> {
    let number = |name: &str| -> Option<usize> {
        let name = name.strip_prefix("transformer.").unwrap_or(name);
        name.strip_prefix("h.")?.split('.').next()?.parse().ok()
    };
    let blocks = checkpoint.names().filter_map(number).max().map_or(0, |last| last.saturating_add(1));
    if blocks == config.n_layer {
        return Ok(());
    }
    Err(Error::msg(format!(
        "{}: config.json says that there are {} blocks, and the weights have {blocks}\n  config.json and weights \
         have to belong together",
        folder.display(),
        config.n_layer
    )))
}
