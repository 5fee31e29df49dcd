//! The two files, read and written.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::Init as Hint;
use hookpoint::{Error, ErrorKind, Result};
use hookpoint_models::weights::{check_dtype, Checkpoint};

use crate::config::{Architecture, Config};
use crate::model::{Sae, Weights};

const CONFIG: &str = "cfg.json";
const WEIGHTS: &str = "sae_weights.safetensors";

impl Sae {
    /// Loads an autoencoder from a folder in the form of SAELens, with `cfg.json` and
    /// `sae_weights.safetensors`.
    ///
    /// ```
    /// use candle_core::{DType, Device};
    /// use hookpoint_sae::{Architecture, Config, Sae};
    ///
    /// let folder = std::env::temp_dir().join(format!("hookpoint-sae-{}", std::process::id()));
    /// let config = Config::new(4, 16, Architecture::JumpRelu).for_point("blocks.1.hook_resid_post");
    /// Sae::random(config.clone(), 0, &Device::Cpu)?.save(&folder)?;
    /// let loaded = Sae::from_dir(&folder, DType::F32, &Device::Cpu)?;
    /// assert_eq!(loaded.config().point(), config.point());
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn from_dir(folder: impl AsRef<Path>, dtype: DType, device: &Device) -> Result<Self> {
        let folder = folder.as_ref();
        check_dtype("an autoencoder", dtype)?;
        let path = folder.join(CONFIG);
        let config = Config::from_json(&short_text(&path)?)
            .map_err(|error| Error::msg(format!("{}: {error}", path.display())))?;
        let path = folder.join(WEIGHTS);
        let file = Checkpoint::open_file(&path, CONFIG)?;
        let get = |name: &str, shape: &[usize]| -> Result<Tensor> {
            Ok((&file).get(shape.into(), name, Hint::Const(0.), dtype, device)?)
        };
        let (d_in, d_sae) = (config.d_in, config.d_sae);
        let threshold = match config.architecture {
            Architecture::JumpRelu if (&file).contains_tensor("log_threshold") => {
                Some(get("log_threshold", &[d_sae])?.exp()?)
            }
            Architecture::JumpRelu => Some(get("threshold", &[d_sae])?),
            _ => None,
        };
        let weights = Weights {
            w_enc: get("W_enc", &[d_in, d_sae])?,
            b_enc: get("b_enc", &[d_sae])?,
            w_dec: get("W_dec", &[d_sae, d_in])?,
            b_dec: get("b_dec", &[d_in])?,
            threshold,
        };
        // Earlier versions wrote factors that are all 1.
        if (&file).contains_tensor("scaling_factor") {
            let factors = get("scaling_factor", &[d_sae])?.to_dtype(DType::F32)?.to_vec1::<f32>()?;
            if factors.iter().any(|factor| (factor - 1.).abs() > 1e-5) {
                return Err(Error::msg(format!(
                    "{}: features have a `scaling_factor` from fine-tuning, which is not known here\n  multiply \
                     the rows of W_dec by it, and take it out",
                    path.display()
                )));
            }
        }
        file.check_all_asked(|_| false)?;
        Self::new(config, weights).map_err(|error| Error::msg(format!("{}: {error}", folder.display())))
    }

    /// Writes the autoencoder into a folder, which is made if it is not there, in the form of SAELens.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let config = self.config().to_json(self.dtype())?;
        std::fs::create_dir_all(folder).map_err(|source| io(folder, source))?;
        let Weights { w_enc, b_enc, w_dec, b_dec, threshold } = self.weights();
        let mut tensors =
            HashMap::from([("W_enc", w_enc), ("b_enc", b_enc), ("W_dec", w_dec), ("b_dec", b_dec)]);
        tensors.extend(threshold.map(|threshold| ("threshold", threshold)));
        write_whole(&folder.join(WEIGHTS), |path| Ok(candle_core::safetensors::save(&tensors, path)?))?;
        write_whole(&folder.join(CONFIG), |path| {
            std::fs::write(path, config).map_err(|source| io(path, source))
        })
    }
}

/// Writes a file beside the place where it belongs, and moves it there when it is whole.
pub(crate) fn write_whole(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    let part = path.with_file_name(name);
    write(&part)?;
    std::fs::rename(&part, path).map_err(|source| io(path, source))
}

/// A text that is not so long that something must be wrong.
pub(crate) fn short_text(path: &Path) -> Result<String> {
    const LONGEST: u64 = 10_000_000;
    let mut text = String::new();
    let file = File::open(path).map_err(|source| io(path, source))?;
    let length = file.take(LONGEST + 1).read_to_string(&mut text).map_err(|source| io(path, source))?;
    match length as u64 > LONGEST {
        true => Err(Error::msg(format!("{}: this is too long for a config", path.display()))),
        false => Ok(text),
    }
}

pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
    ErrorKind::Io { path: path.display().to_string(), source }.into()
}
