//! What is looked into: a model with its tokenizer.

use std::path::PathBuf;

use anyhow::{bail, Result};
use hookpoint::Hooked;
use hookpoint_models::gpt2::{Gpt2, Tokenizer};

/// Where a model comes from.
#[derive(Debug, PartialEq)]
pub enum Source {
    Embedded,
    Folder(PathBuf),
    #[cfg(feature = "hub")]
    Hub(String),
}

impl Source {
    /// A folder if there is one of this name, or else a name on the hub.
    pub fn of(model: Option<&str>) -> Result<Self> {
        let Some(name) = model else { return Ok(Self::Embedded) };
        let path = PathBuf::from(name);
        if path.is_dir() {
            return Ok(Self::Folder(path));
        }
        if path.exists() {
            bail!(
                "{name} is a file\n  give the folder that it is in, with config.json and model.safetensors"
            );
        }
        #[cfg(feature = "hub")]
        return Ok(Self::Hub(name.to_string()));
        #[cfg(not(feature = "hub"))]
        bail!(
            "there is no folder {name}\n  give the folder of a checkpoint, with config.json, model.safetensors and \
             tokenizer.json; for a name on the hub, build with `--features hub`"
        )
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

impl Subject<Gpt2> {
    pub fn gpt2(name: &str, model: Gpt2) -> Result<Self> {
        let (tokenizer, context) = (model.tokenizer()?.clone(), model.config().n_positions);
        Ok(Self { name: name.to_string(), model: Hooked::new(model), tokenizer, context })
    }
}

impl<M> Subject<M> {
    /// The text of a token; a model may have more of them than its tokenizer.
    pub fn text(&self, id: u32) -> String {
        self.tokenizer.token(id).unwrap_or_else(|| format!("<{id}>"))
    }
}
