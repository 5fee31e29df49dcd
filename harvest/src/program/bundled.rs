//! The models that come with hookpoint, by what is at the path of a plan.

use std::path::Path;

use candle_core::{Device, Tensor};
use hookpoint::{ErrorKind, Result};
use hookpoint_models::bert::Bert;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_models::llama::Llama;
use serde::Deserialize;

use crate::job::{Job, EMBEDDED};
use crate::worker::{annotated, Subject};

/// Loads GPT-2, BERT, Llama, Qwen2 or Mistral: a checkpoint's folder, a GGUF file, or the GPT-2 that is part of the program.
pub fn load(job: &Job, device: &Device) -> Result<Box<dyn Subject>> {
    let (path, dtype) = (Path::new(job.model()), job.dtype()?);
    if job.model() == EMBEDDED {
        return Ok(annotated(Gpt2::embedded(device)?, |model, ids: &Tensor| model.forward(ids)));
    }
    match kind(path)?.as_str() {
        "gpt2" => {
            Ok(annotated(Gpt2::from_dir(path, dtype, device)?, |model, ids: &Tensor| model.forward(ids)))
        }
        "bert" => {
            Ok(annotated(Bert::from_dir(path, dtype, device)?, |model, ids: &Tensor| model.forward(ids)))
        }
        // Which says what it cannot load.
        _ => Ok(annotated(Llama::from_path(path, dtype, device)?, |model, ids: &Tensor| model.forward(ids))),
    }
}

/// What `config.json` calls the model; nothing of a file.
fn kind(path: &Path) -> Result<String> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        model_type: String,
    }
    if path.is_file() {
        return Ok(String::new());
    }
    let path = path.join("config.json");
    let io = |source| ErrorKind::Io { path: path.display().to_string(), source };
    let text = std::fs::read(&path).map_err(io)?;
    let config: Config = serde_json::from_slice(&text).map_err(|error| io(error.into()))?;
    Ok(config.model_type)
}
