//! A BERT from a folder, as Hugging Face's `save_pretrained` writes it, or from a seed.

use std::path::Path;

use candle_core::{DType, Device};
use candle_nn::VarBuilder;
use hookpoint::{Error, ErrorKind, Result};

use super::config::Config;
use super::model::Bert;
use super::word_piece;
use crate::language::Tokenizer;
use crate::weights::{seeded, Folder};

impl Bert {
    /// Loads `config.json`, `model.safetensors` (or the files that `model.safetensors.index.json` names) and the
    /// tokenizer: `tokenizer.json`, or what `vocab.txt` and `tokenizer_config.json` say. The weights, F32, F16 or
    /// BF16, are converted to `dtype`. Those of heads, such as that of `BertForMaskedLM`, are left out.
    pub fn from_dir(path: impl AsRef<Path>, dtype: DType, device: &Device) -> Result<Self> {
        let folder = Folder::open(path.as_ref(), "a BERT", dtype)?;
        let config = folder.config(Config::from_json)?;
        let prefixes = ["bert.encoder.layer.", "encoder.layer."];
        let weights = folder.weights(&prefixes, config.num_hidden_layers)?;
        let vb = VarBuilder::from_backend(Box::new(&weights), dtype, device.clone());
        let mut model = Self::load(vb, &config)?;
        // Numbers of positions that old checkpoints carry, and heads, which are not part of the encoder.
        let with_head = weights.names().any(|name| name.starts_with("bert."));
        weights.check_all_asked(|name| {
            name.ends_with("position_ids") || with_head && !name.starts_with("bert.")
        })?;
        model.tokenizer = tokenizer(&folder)?;
        if let Some(most) = max_seq_length(&folder)? {
            model.longest = most.min(config.max_position_embeddings);
        }
        Ok(model)
    }

    /// A model as it is before training. Equal seeds give equal weights, on every machine.
    pub fn random(config: &Config, seed: u64, device: &Device) -> Result<Self> {
        Ok(Self::with_pooler(seeded(seed, device), config, true)?)
    }
}

fn tokenizer(folder: &Folder) -> Result<Option<Tokenizer>> {
    match folder.file("vocab.txt") {
        Some(path) if folder.file("tokenizer.json").is_none() => {
            let lower = read::<word_piece::Options>(folder, "tokenizer_config.json")?;
            word_piece::from_file(&path, &lower.unwrap_or_default()).map(Some)
        }
        _ => folder.tokenizer(),
    }
}

/// sentence-transformers cuts texts behind this; here they are an error.
fn max_seq_length(folder: &Folder) -> Result<Option<usize>> {
    #[derive(serde::Deserialize)]
    struct File {
        max_seq_length: Option<usize>,
    }
    Ok(read::<File>(folder, "sentence_bert_config.json")?.and_then(|file| file.max_seq_length))
}

fn read<T: serde::de::DeserializeOwned>(folder: &Folder, name: &str) -> Result<Option<T>> {
    let Some(path) = folder.file(name) else { return Ok(None) };
    let text = std::fs::read_to_string(&path)
        .map_err(|source| ErrorKind::Io { path: path.display().to_string(), source })?;
    serde_json::from_str(&text).map(Some).map_err(|error| Error::msg(format!("{}: {error}", path.display())))
}
