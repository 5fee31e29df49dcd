//! Networks from a folder, and from a seed.

use std::path::Path;

use candle_core::{DType, Device};
use candle_nn::VarBuilder;
use hookpoint::Result;

use super::config::Config;
use super::model::{Classifier, ConvAutoEncoder};
use crate::weights::{seeded, Folder};

/// The same for both networks.
macro_rules! from_files {
    ($network:ty) => {
        impl $network {
            /// Loads `config.json` and `model.safetensors` of a folder.
            pub fn from_dir(path: impl AsRef<Path>, dtype: DType, device: &Device) -> Result<Self> {
                let folder = Folder::open(path.as_ref(), "a convolutional network", dtype)?;
                let config = folder.config(Config::from_json)?;
                let weights = folder.weights(&["down."], config.widths.len())?;
                let vb = VarBuilder::from_backend(Box::new(&weights), dtype, device.clone());
                let network = Self::load(vb, &config)?;
                weights.check_all_asked(|_| false)?;
                Ok(network)
            }

            /// A network as it is before training. Equal seeds give equal weights, on every machine.
            pub fn random(config: &Config, seed: u64, device: &Device) -> Result<Self> {
                Ok(Self::load(seeded(seed, device), config)?)
            }
        }
    };
}
from_files!(Classifier);
from_files!(ConvAutoEncoder);
