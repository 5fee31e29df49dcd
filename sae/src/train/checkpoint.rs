//! A training that was stopped, and goes on as if it had not been.
//!
//! A checkpoint is a folder in SAELens' form, so that it can be used as an autoencoder, with two more files: the
//! parameters and Adam's memory as they are in a trainer, and the rest of what a trainer knows.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::Init as Hint;
use hookpoint::{Error, Result};
use hookpoint_models::init::Init;
use hookpoint_models::weights::Checkpoint;
use serde::{Deserialize, Serialize};

use super::adam::Adam;
use super::options::TrainOptions;
use super::parameters::{Parameters, NAMES};
use super::trainer::Trainer;
use crate::model::Sae;
use crate::saelens::{io, short_text, write_whole};

const STATE: &str = "training.json";
const TENSORS: &str = "training.safetensors";
/// What of a parameter is kept.
const KINDS: [&str; 3] = ["value", "mean", "square"];

#[derive(Serialize, Deserialize)]
struct State {
    /// As text, so that numbers are those that were written.
    options: String,
    step: u64,
    position: u64,
    random: u64,
    last_active: Vec<u64>,
}

impl Trainer {
    /// Writes everything that is needed to go on into a folder, which can also be loaded as an autoencoder.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        self.sae()?.save(folder)?;
        let mut tensors = HashMap::new();
        for (kind, parameters) in KINDS.iter().zip([&self.parameters, &self.adam.means, &self.adam.squares]) {
            for (name, tensor) in NAMES.iter().zip(parameters.all()) {
                tensors.insert(format!("{name}.{kind}"), tensor.clone());
            }
        }
        write_whole(&folder.join(TENSORS), |path| Ok(candle_core::safetensors::save(&tensors, path)?))?;
        let state = State {
            options: text_of(&self.options)?,
            step: self.step,
            position: self.position,
            random: self.init.state(),
            last_active: self.last_active.clone(),
        };
        let text = serde_json::to_string(&state).map_err(|error| Error::msg(error.to_string()))?;
        write_whole(&folder.join(STATE), |path| std::fs::write(path, text).map_err(|source| io(path, source)))
    }

    /// Goes on with what [`save`](Self::save) has written. Everything then is as it would have been without a stop,
    /// bit for bit, if the options and the source are the same.
    pub fn resume(folder: impl AsRef<Path>, options: TrainOptions) -> Result<Self> {
        let folder = folder.as_ref();
        options.check()?;
        let path = folder.join(STATE);
        let state: State = serde_json::from_str(&short_text(&path)?)
            .map_err(|error| Error::msg(format!("{}: this is no training: {error}", path.display())))?;
        if state.options != text_of(&options)? {
            return Err(Error::msg(format!(
                "{}: the training has other options\n  there: {}\n  here:  {}\n  go on with the same, or begin anew \
                 with the autoencoder that is there",
                path.display(),
                state.options,
                text_of(&options)?
            )));
        }
        let config = Sae::from_dir(folder, DType::F32, &Device::Cpu)?.config().clone();
        if state.last_active.len() != config.d_sae || state.last_active.iter().any(|last| *last > state.step)
        {
            return Err(Error::msg(format!(
                "{}: it does not belong to the autoencoder there",
                path.display()
            )));
        }
        let file = Checkpoint::open_file(&folder.join(TENSORS), "cfg.json")?;
        let read = |kind: &str| -> Result<Parameters> {
            let shapes = Parameters::zeros(&config)?;
            let tensors = NAMES.iter().zip(shapes.all()).map(|(name, like)| {
                let name = format!("{name}.{kind}");
                Ok((&file).get(like.shape().clone(), &name, Hint::Const(0.), DType::F32, &Device::Cpu)?)
            });
            Parameters::from_all(&config, &tensors.collect::<Result<Vec<Tensor>>>()?)
        };
        Ok(Self {
            parameters: read("value")?,
            adam: Adam { means: read("mean")?, squares: read("square")? },
            step: state.step,
            last_active: state.last_active,
            position: state.position,
            init: Init::new(state.random),
            options,
            config,
        })
    }
}

fn text_of(options: &TrainOptions) -> Result<String> {
    serde_json::to_string(options).map_err(|error| Error::msg(error.to_string()))
}
