//! The folder of a checkpoint, as Hugging Face's `save_pretrained` writes it.

use std::path::{Path, PathBuf};

use candle_core::DType;
use hookpoint::{Error, ErrorKind, Result};

use super::checkpoint::Checkpoint;
use crate::language::Tokenizer;

/// A folder with `config.json`, weights, and perhaps a tokenizer.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A folder that is there. `model` is who asks, for messages, as in "a GPT-2".
    pub fn open(path: &Path, model: &str, dtype: DType) -> Result<Self> {
        check_dtype(model, dtype)?;
        if !path.is_dir() {
            return Err(Error::msg(format!(
                "{}: there is no such folder\n  give the folder of a checkpoint, with config.json and model.safetensors",
                path.display()
            )));
        }
        Ok(Self { path: path.to_path_buf() })
    }

    /// Where a file of the folder is, if it is there.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.path.join(name)).filter(|path| path.exists())
    }

    /// What `parse` makes of the text of `config.json`.
    pub fn config<C>(&self, parse: impl Fn(&str) -> Result<C>) -> Result<C> {
        let path = self.path.join("config.json");
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ErrorKind::Io { path: path.display().to_string(), source })?;
        parse(&text).map_err(|error| Error::msg(format!("{}: {error}", path.display())))
    }

    /// The weights. The names of all that belong to a block begin with one of `prefixes` and its number;
    /// blocks that the config does not speak of would be left out without a word.
    pub fn weights(&self, prefixes: &[&str], blocks: usize) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::open(&self.path)?;
        let number = |name: &str| -> Option<usize> {
            let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))?;
            rest.split('.').next()?.parse().ok()
        };
        let found = checkpoint.names().filter_map(number).max().map_or(0, |last| last.saturating_add(1));
        if found == blocks {
            return Ok(checkpoint);
        }
        Err(Error::msg(format!(
            "{}: config.json says that there are {blocks} blocks, and the weights have {found}\n  config.json \
             and weights have to belong together",
            self.path.display()
        )))
    }

    /// The tokenizer of `tokenizer.json`, if it is there.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>> {
        self.file("tokenizer.json").map(Tokenizer::from_file).transpose()
    }
}

/// Can a model compute in this?
pub fn check_dtype(model: &str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    let name = dtype.as_str();
    Err(Error::msg(format!("{model} cannot compute in {name}: use F32, F16 or BF16")))
}

/// Sizes of a config, each with its name: none is 0, and none so large that products of them overflow.
pub fn check_sizes(sizes: &[(&str, usize)]) -> Result<()> {
    const MOST: usize = 1 << 28;
    match sizes.iter().find(|(_, size)| *size == 0 || *size > MOST) {
        None => Ok(()),
        Some((name, size)) => Err(Error::msg(format!("the config says that {name} is {size}"))),
    }
}
