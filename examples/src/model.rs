//! Which model an example looks into, and where it computes.

use std::io::Read;
use std::path::Path;

use anyhow::{bail, Result};
use candle_core::{DType, Device, Tensor};
use hookpoint::Hooked;
use hookpoint_interp::Transformer;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_models::language::{LanguageModel, Tokenizer};
use hookpoint_models::llama::Llama;

/// The arguments that choose a model and a device.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ModelArgs {
    /// The folder of a Hugging Face checkpoint (GPT-2, Llama, Qwen2, Mistral), a GGUF file, or, in a build with
    /// `--features hub`, a name on the hub [default: the small GPT-2 that comes with hookpoint]
    #[arg(long, value_name = "FOLDER|FILE|NAME")]
    pub model: Option<String>,

    /// Where to compute: cpu, cuda:0, metal [default: the variable HOOKPOINT_DEVICE, or else cpu]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
}

/// What is done with a model, whichever it is.
pub trait Task {
    /// What comes of it.
    type Output;

    /// Does it.
    fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<Self::Output>;
}

/// A model, ready to be hooked.
pub struct Subject<M> {
    /// As the user knows it.
    pub name: String,
    /// The model.
    pub model: Hooked<M>,
    /// What makes tokens of text.
    pub tokenizer: Tokenizer,
}

impl ModelArgs {
    /// Where to compute.
    pub fn device(&self) -> Result<Device> {
        Ok(match &self.device {
            Some(name) => hookpoint::device(name)?,
            None => hookpoint::device_from_env()?,
        })
    }

    /// Whether it is the model that comes with hookpoint.
    pub fn is_embedded(&self) -> bool {
        self.model.is_none()
    }

    /// Loads the model and gives it to the task.
    pub fn run<T: Task>(&self, task: T) -> Result<T::Output> {
        let device = self.device()?;
        let Some(name) = self.model.as_deref() else {
            return task.with(&Subject::new("the embedded GPT-2", Gpt2::embedded(&device)?)?);
        };
        let path = Path::new(name);
        if path.is_file() {
            if !is_gguf(path) {
                bail!(
                    "{name} is a file, and no GGUF file\n  give the folder that it is in, with config.json and \
                     model.safetensors"
                );
            }
            return task.with(&Subject::new(name, Llama::from_gguf(path, DType::F32, &device)?)?);
        }
        if !path.is_dir() {
            return by_name(name, &device, task);
        }
        match is_gpt2(path) {
            true => task.with(&Subject::new(name, Gpt2::from_dir(path, DType::F32, &device)?)?),
            false => task.with(&Subject::new(name, Llama::from_dir(path, DType::F32, &device)?)?),
        }
    }
}

/// By its name, or by how it begins: a file of either kind is meant to be one.
fn is_gguf(path: &Path) -> bool {
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let mut first = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    named || read.is_ok() && first == *b"GGUF"
}

/// A folder that does not say otherwise is one of GPT-2, which then finds what is wrong with it.
fn is_gpt2(folder: &Path) -> bool {
    let config = std::fs::read_to_string(folder.join("config.json")).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap_or_default();
    config["model_type"].as_str().is_none_or(|kind| kind == "gpt2")
}

#[cfg(feature = "hub")]
fn by_name<T: Task>(name: &str, device: &Device, task: T) -> Result<T::Output> {
    match Gpt2::from_hub(name, DType::F32, device) {
        // Only its config was read, and says that it is something else.
        Err(error) if error.to_string().contains("this is a config for") => {
            task.with(&Subject::new(name, Llama::from_hub(name, DType::F32, device)?)?)
        }
        model => task.with(&Subject::new(name, model?)?),
    }
}

#[cfg(not(feature = "hub"))]
fn by_name<T: Task>(name: &str, _: &Device, _: T) -> Result<T::Output> {
    bail!(
        "there is no file or folder {name}\n  give the folder of a checkpoint, with config.json, model.safetensors \
         and tokenizer.json, or a GGUF file; for a name on the hub, build with `--features hub`"
    )
}

impl<M: LanguageModel> Subject<M> {
    /// A model with the tokenizer that it came with.
    pub fn new(name: &str, model: M) -> Result<Self> {
        let tokenizer = model.tokenizer()?.clone();
        Ok(Self { name: name.to_string(), model: Hooked::new(model), tokenizer })
    }

    /// The tokens of a prompt, which has to leave room for `more` of them.
    pub fn encode(&self, text: &str, more: usize) -> Result<Vec<u32>> {
        let tokens = self.tokenizer.encode(text)?;
        let (count, most) = (tokens.len(), self.model.n_positions());
        if count + more > most {
            let with = if more == 0 { String::new() } else { format!(" with {more} more to come") };
            bail!("the prompt has {count} tokens{with}, and the context of this model {most}\n  shorten it");
        }
        Ok(tokens)
    }

    /// `[1, pos]`, where the model is.
    pub fn ids(&self, tokens: &[u32]) -> Result<Tensor> {
        Ok(Tensor::new(tokens, self.model.device())?.unsqueeze(0)?)
    }

    /// What a model has written, without the token that ends it.
    pub fn written(&self, tokens: &[u32]) -> Result<String> {
        let tokens = match tokens.split_last() {
            Some((last, rest)) if self.model.ends().contains(last) => rest,
            _ => tokens,
        };
        Ok(self.tokenizer.decode(tokens)?)
    }
}

impl<M> Subject<M> {
    /// The text of a token; a model may have more of them than its tokenizer.
    pub fn text(&self, id: u32) -> String {
        self.tokenizer.token(id).unwrap_or_else(|| format!("<{id}>"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    struct Name;

    impl Task for Name {
        type Output = String;

        fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<String> {
            Ok(subject.name.clone())
        }
    }

    fn named(model: Option<&str>) -> Result<String> {
        ModelArgs { model: model.map(str::to_string), device: Some("cpu".to_string()) }.run(Name)
    }

    const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/embedded");

    #[test]
    fn without_a_name_it_is_the_embedded_model() {
        assert_eq!(named(None).unwrap(), "the embedded GPT-2");
        assert_eq!(named(Some(FILES)).unwrap(), FILES);
    }

    #[cfg(not(feature = "hub"))]
    #[test]
    fn a_name_that_is_nothing_says_what_could_be_given() {
        let error = named(Some("not/there")).unwrap_err().to_string();
        assert!(error.contains("no file or folder not/there") && error.contains("--features hub"), "{error}");
    }

    #[test]
    fn a_folder_without_a_model_says_what_is_missing() {
        let error = format!("{:#}", named(Some(env!("CARGO_MANIFEST_DIR"))).unwrap_err());
        assert!(error.contains("config.json"), "{error}");
    }

    #[test]
    fn a_prompt_that_leaves_no_room_is_refused() {
        let subject = Subject::new("embedded", Gpt2::embedded(&Device::Cpu).unwrap()).unwrap();
        assert_eq!(subject.encode("Monday Tuesday", 62).unwrap().len(), 2);
        let error = subject.encode("Monday Tuesday", 63).unwrap_err().to_string();
        assert!(error.contains("2 tokens with 63 more"), "{error}");
    }
}
