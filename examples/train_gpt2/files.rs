//! Checkpoints to go on from, and the finished model.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use candle_core::{safetensors, DType, Device, Tensor};
use hookpoint_models::english::tokenizer_json;

use crate::adam::Adam;
use crate::learner::Learner;

const CHECKPOINT: &str = "checkpoint.safetensors";

/// Everything that the rest of the training depends on.
pub fn save_checkpoint(folder: &Path, learner: &Learner, adam: &Adam) -> Result<()> {
    let mut tensors = HashMap::new();
    for (name, var) in &learner.vars {
        tensors.insert(format!("value.{name}"), var.as_detached_tensor());
    }
    for (name, (mean, square)) in &adam.moments {
        tensors.insert(format!("mean.{name}"), mean.clone());
        tensors.insert(format!("square.{name}"), square.clone());
    }
    tensors.insert("steps".to_string(), Tensor::new(adam.steps as i64, &Device::Cpu)?);
    // First beside the old one, so that there is always a whole one.
    let (path, beside) = (folder.join(CHECKPOINT), folder.join("checkpoint.new"));
    safetensors::save(&tensors, &beside)?;
    Ok(std::fs::rename(beside, path)?)
}

/// Goes on from a checkpoint, if there is one.
pub fn load_checkpoint(folder: &Path, learner: &Learner, adam: &mut Adam, device: &Device) -> Result<()> {
    let path = folder.join(CHECKPOINT);
    let tensors = safetensors::load(&path, device).with_context(|| path.display().to_string())?;
    let get = |name: String| tensors.get(&name).with_context(|| format!("the checkpoint has no `{name}`"));
    for (name, var) in &learner.vars {
        var.set(get(format!("value.{name}"))?)?;
        adam.moments.insert(
            name.clone(),
            (get(format!("mean.{name}"))?.clone(), get(format!("square.{name}"))?.clone()),
        );
    }
    adam.steps = get("steps".to_string())?.to_scalar::<i64>()? as usize;
    Ok(())
}

/// Writes the model as `Gpt2::from_dir` reads it, with weights in f16.
pub fn save_model(folder: &Path, learner: &Learner) -> Result<()> {
    let mut tensors = HashMap::new();
    for (name, var) in &learner.vars {
        tensors.insert(name.clone(), var.as_detached_tensor().to_dtype(DType::F16)?);
    }
    safetensors::save(&tensors, folder.join("model.safetensors"))?;
    std::fs::write(
        folder.join("config.json"),
        format!("{}\n", serde_json::to_string_pretty(&learner.config)?),
    )?;
    std::fs::write(folder.join("tokenizer.json"), tokenizer_json())?;
    Ok(())
}
