//! A language model by its path: the files say which it is.
//!
//! A model of any kind has a type of its own, so what is to be done with one is a [`Task`], generic over the model:
//!
//! ```
//! use candle_core::Device;
//! use hookpoint_interp::Transformer;
//! use hookpoint_models::language::LanguageModel;
//! use hookpoint_models::open::{Source, Subject, Task};
//!
//! /// How many points a model has in its first block.
//! struct Count;
//!
//! impl Task for Count {
//!     type Output = hookpoint::Result<usize>;
//!
//!     fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Self::Output {
//!         Ok(subject.model.hook_dict().select("blocks.0.**")?.len())
//!     }
//! }
//!
//! // A folder or file would be `Source::path("path/to/model.gguf")`.
//! assert!(Source::embedded().open(&Device::Cpu, Count)?? > 5);
//! # Ok::<(), hookpoint::Error>(())
//! ```

use std::io::Read;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use hookpoint::{Error, ErrorKind, Hooked, Result};
use hookpoint_interp::Transformer;

use crate::gpt2::Gpt2;
use crate::language::LanguageModel;
use crate::llama::Llama;

/// What is done with a model, whichever it is.
pub trait Task {
    /// What comes of it: usually a `Result` with an error of the task's own.
    type Output;

    /// Does it.
    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Self::Output;
}

/// A model that was opened, ready to be hooked.
pub struct Subject<M> {
    /// As it was named.
    pub name: String,
    /// The model.
    pub model: Hooked<M>,
}

/// Which model is meant, and how its weights are kept.
///
/// See the [module](self) for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// None for the embedded model.
    name: Option<String>,
    dtype: DType,
    quantized: bool,
}

/// Why a model cannot be opened, or a text cannot be given to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing has this name.
    #[error(
        "there is no file or folder {name}\n  give the folder of a checkpoint, with config.json, model.safetensors and \
         tokenizer.json, or a GGUF file; for a name on the hub, build with `--features hub`"
    )]
    NotThere {
        /// As it was named.
        name: String,
    },
    /// A file that is no model.
    #[error(
        "{name} is a file, and no GGUF file\n  give the folder that it is in, with config.json and model.safetensors"
    )]
    NotGguf {
        /// As it was named.
        name: String,
    },
    /// Only GGUF files hold quantized weights.
    #[error("{name} is no GGUF file, so its weights are not quantized\n  choose a dtype instead")]
    NotQuantized {
        /// As it was named.
        name: String,
    },
    /// The model would compute in numbers that it cannot compute in.
    #[error("a model cannot compute in {dtype}\n  choose f32, bf16 or f16")]
    DType {
        /// What was asked for.
        dtype: &'static str,
    },
    /// A text does not fit into the context.
    #[error(
        "the prompt has {tokens} tokens{}, and the context of this model {most}\n  shorten it",
        still(*more)
    )]
    TooLong {
        /// How many tokens it has.
        tokens: usize,
        /// How many are to be added.
        more: usize,
        /// How many positions the model has.
        most: usize,
    },
}

fn still(more: usize) -> String {
    match more {
        0 => String::new(),
        more => format!(" with {more} more to come"),
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Error::other(error)
    }
}

impl Source {
    /// The small GPT-2 that comes with this crate.
    pub fn embedded() -> Self {
        Self { name: None, dtype: DType::F32, quantized: false }
    }

    /// The folder of a Hugging Face checkpoint (GPT-2, Llama, Qwen2, Mistral) or a GGUF file; with the feature `hub`,
    /// what is no path is a name on the Hugging Face hub.
    pub fn path(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::embedded() }
    }

    /// Computes in f16 or bf16 instead of f32.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Keeps the weights of a GGUF file as they are in it, so that they take less memory.
    pub fn quantized(mut self) -> Self {
        self.quantized = true;
        self
    }

    /// As the user knows it.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("the embedded GPT-2")
    }

    /// Whether it is the model that comes with this crate.
    pub fn is_embedded(&self) -> bool {
        self.name.is_none()
    }

    /// Loads the model and gives it to the task.
    pub fn open<T: Task>(&self, device: &Device, task: T) -> Result<T::Output> {
        if !self.dtype.is_float() || self.dtype == DType::F64 {
            return Err(OpenError::DType { dtype: self.dtype.as_str() }.into());
        }
        let Some(name) = self.name.as_deref() else {
            self.refuse_quantized()?;
            return Ok(task.with(self.subject(Gpt2::embedded_in(self.dtype, device)?)));
        };
        let path = Path::new(name);
        if path.is_file() {
            return Ok(task.with(self.subject(self.open_file(path, device)?)));
        }
        self.refuse_quantized()?;
        if !path.is_dir() {
            return self.open_by_name(name, device, task);
        }
        Ok(match is_gpt2(path) {
            true => task.with(self.subject(Gpt2::from_dir(path, self.dtype, device)?)),
            false => task.with(self.subject(Llama::from_dir(path, self.dtype, device)?)),
        })
    }

    fn open_file(&self, path: &Path, device: &Device) -> Result<Llama> {
        if !is_gguf(path)? {
            return Err(OpenError::NotGguf { name: self.name().to_string() }.into());
        }
        match self.quantized {
            true => Llama::from_gguf_quantized(path, self.dtype, device),
            false => Llama::from_gguf(path, self.dtype, device),
        }
    }

    fn refuse_quantized(&self) -> Result<()> {
        match self.quantized {
            true => Err(OpenError::NotQuantized { name: self.name().to_string() }.into()),
            false => Ok(()),
        }
    }

    #[cfg(feature = "hub")]
    fn open_by_name<T: Task>(&self, name: &str, device: &Device, task: T) -> Result<T::Output> {
        match Gpt2::from_hub(name, self.dtype, device) {
            // Only its config was read, and says that it is something else.
            Err(error) if error.to_string().contains("this is a config for") => {
                Ok(task.with(self.subject(Llama::from_hub(name, self.dtype, device)?)))
            }
            model => Ok(task.with(self.subject(model?))),
        }
    }

    #[cfg(not(feature = "hub"))]
    fn open_by_name<T: Task>(&self, name: &str, _: &Device, _: T) -> Result<T::Output> {
        Err(OpenError::NotThere { name: name.to_string() }.into())
    }

    fn subject<M: LanguageModel>(&self, model: M) -> Subject<M> {
        Subject { name: self.name().to_string(), model: Hooked::new(model) }
    }
}

/// By its name, or by how it begins: a file of either kind is meant to be one.
fn is_gguf(path: &Path) -> Result<bool> {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
        return Ok(true);
    }
    let failed = |source| Error::from(ErrorKind::Io { path: path.display().to_string(), source });
    let (mut first, mut file) = (Vec::new(), std::fs::File::open(path).map_err(failed)?);
    file.by_ref().take(4).read_to_end(&mut first).map_err(failed)?;
    Ok(first == b"GGUF")
}

/// A folder that does not say otherwise is one of GPT-2, which then finds what is wrong with it.
fn is_gpt2(folder: &Path) -> bool {
    let config = std::fs::read_to_string(folder.join("config.json")).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap_or_default();
    config["model_type"].as_str().is_none_or(|kind| kind == "gpt2")
}

impl<M: LanguageModel> Subject<M> {
    /// The tokens of a prompt, which has to leave room for `more` of them.
    pub fn encode(&self, text: &str, more: usize) -> Result<Vec<u32>> {
        let tokens = self.model.tokenizer()?.encode(text)?;
        let (count, most) = (tokens.len(), self.model.n_positions());
        match count + more > most {
            true => Err(OpenError::TooLong { tokens: count, more, most }.into()),
            false => Ok(tokens),
        }
    }

    /// `[1, pos]`, where the model is.
    pub fn ids(&self, tokens: &[u32]) -> Result<Tensor> {
        Ok(Tensor::new(tokens, self.model.device())?.unsqueeze(0)?)
    }

    /// The text of a token; a model may have more of them than its tokenizer.
    pub fn text(&self, id: u32) -> String {
        let known = self.model.tokenizer().ok().and_then(|tokenizer| tokenizer.token(id));
        known.unwrap_or_else(|| format!("<{id}>"))
    }

    /// What a model has written, without the token that ends it.
    pub fn written(&self, tokens: &[u32]) -> Result<String> {
        let tokens = match tokens.split_last() {
            Some((last, rest)) if self.model.ends().contains(last) => rest,
            _ => tokens,
        };
        self.model.tokenizer()?.decode(tokens)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    struct Name;

    impl Task for Name {
        type Output = String;

        fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> String {
            subject.name
        }
    }

    struct Encode(&'static str, usize);

    impl Task for Encode {
        type Output = Result<Vec<u32>>;

        fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<Vec<u32>> {
            subject.encode(self.0, self.1)
        }
    }

    const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/embedded");

    fn opened(source: &Source) -> Result<String> {
        source.open(&Device::Cpu, Name)
    }

    #[test]
    fn without_a_name_it_is_the_embedded_model() {
        assert_eq!(opened(&Source::embedded()).unwrap(), "the embedded GPT-2");
        assert_eq!(opened(&Source::path(FILES)).unwrap(), FILES);
        assert_eq!(opened(&Source::embedded().dtype(DType::BF16)).unwrap(), "the embedded GPT-2");
    }

    #[cfg(not(feature = "hub"))]
    #[test]
    fn a_name_that_is_nothing_says_what_could_be_given() {
        let error = opened(&Source::path("not/there")).unwrap_err().to_string();
        assert!(error.contains("no file or folder not/there") && error.contains("--features hub"), "{error}");
    }

    #[test]
    fn what_is_no_model_says_what_is_missing() {
        let error = opened(&Source::path(env!("CARGO_MANIFEST_DIR"))).unwrap_err().to_string();
        assert!(error.contains("config.json"), "{error}");
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(opened(&Source::path(file)).unwrap_err().to_string().contains("no GGUF file"));
        assert!(opened(&Source::path(FILES).quantized()).unwrap_err().to_string().contains("not quantized"));
        assert!(opened(&Source::embedded().dtype(DType::U32)).unwrap_err().to_string().contains("u32"));
    }

    #[test]
    fn a_prompt_that_leaves_no_room_is_refused() {
        let encode = |more| Source::embedded().open(&Device::Cpu, Encode("Monday Tuesday", more)).unwrap();
        assert_eq!(encode(62).unwrap().len(), 2);
        assert!(encode(63).unwrap_err().to_string().contains("2 tokens with 63 more"));
    }
}
