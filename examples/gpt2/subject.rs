//! What is looked into: a model with its tokenizer.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use candle_core::{DType, Device};
use hookpoint::Hooked;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_models::language::{LanguageModel, Tokenizer};
use hookpoint_models::llama::Llama;

/// Where a model comes from.
#[derive(Debug, PartialEq)]
pub enum Source {
    Embedded,
    Folder(PathBuf),
    /// A GGUF file.
    File(PathBuf),
    #[cfg(feature = "hub")]
    Hub(String),
}

impl Source {
    /// A file or folder if there is one of this name, or else a name on the hub.
    pub fn of(model: Option<&str>) -> Result<Self> {
        let Some(name) = model else { return Ok(Self::Embedded) };
        let path = PathBuf::from(name);
        if path.is_dir() {
            return Ok(Self::Folder(path));
        }
        if path.exists() && is_gguf(&path) {
            return Ok(Self::File(path));
        }
        if path.exists() {
            bail!(
                "{name} is a file, and no GGUF file\n  give the folder that it is in, with config.json and \
                 model.safetensors"
            );
        }
        #[cfg(feature = "hub")]
        return Ok(Self::Hub(name.to_string()));
        #[cfg(not(feature = "hub"))]
        bail!(
            "there is no file or folder {name}\n  give the folder of a checkpoint, with config.json, model.safetensors \
             and tokenizer.json, or a GGUF file; for a name on the hub, build with `--features hub`"
        )
    }
}

/// By its name, or by how it begins: a file of either kind is meant to be one.
fn is_gguf(path: &Path) -> bool {
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let mut first = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    named || read.is_ok() && first == *b"GGUF"
}

/// The models that can be looked into.
pub enum Model {
    Gpt2(Gpt2),
    Llama(Llama),
}

impl Model {
    pub fn load(source: &Source, device: &Device) -> Result<Self> {
        Ok(match source {
            Source::Embedded => Self::Gpt2(Gpt2::embedded(device)?),
            Source::File(path) => Self::Llama(Llama::from_gguf(path, DType::F32, device)?),
            Source::Folder(path) if kind(path)? == "gpt2" => {
                Self::Gpt2(Gpt2::from_dir(path, DType::F32, device)?)
            }
            // It says itself which models it can be.
            Source::Folder(path) => Self::Llama(Llama::from_dir(path, DType::F32, device)?),
            #[cfg(feature = "hub")]
            Source::Hub(name) => match Gpt2::from_hub(name, DType::F32, device) {
                Ok(model) => Self::Gpt2(model),
                // The files are there now, if they can be had.
                Err(first) => match Llama::from_hub(name, DType::F32, device) {
                    Ok(model) => Self::Llama(model),
                    Err(second) => bail!("{first}\n{second}"),
                },
            },
        })
    }
}

/// The `model_type` of a checkpoint.
fn kind(folder: &Path) -> Result<String> {
    let path = folder.join("config.json");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let config: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?;
    match config.get("model_type").and_then(|kind| kind.as_str()) {
        Some(kind) => Ok(kind.to_string()),
        // Older checkpoints of GPT-2 do not say what they are.
        None => Ok("gpt2".to_string()),
    }
}

/// A model, and what has to be known about it beside what `Transformer` says.
pub struct Subject<M> {
    pub name: String,
    pub model: Hooked<M>,
    pub tokenizer: Tokenizer,
    /// How many tokens it can be given.
    pub context: usize,
}

impl<M: LanguageModel> Subject<M> {
    pub fn new(source: &Source, model: M) -> Result<Self> {
        let name = match source {
            Source::Embedded => "the embedded GPT-2".to_string(),
            Source::Folder(path) | Source::File(path) => path.display().to_string(),
            #[cfg(feature = "hub")]
            Source::Hub(name) => name.clone(),
        };
        let (tokenizer, context) = (model.tokenizer()?.clone(), model.n_positions());
        Ok(Self { name, model: Hooked::new(model), tokenizer, context })
    }
}

impl<M> Subject<M> {
    /// The text of a token; a model may have more of them than its tokenizer.
    pub fn text(&self, id: u32) -> String {
        self.tokenizer.token(id).unwrap_or_else(|| format!("<{id}>"))
    }
}
