//! What is learned, as it is while it is learned: row by row what belongs to a feature.

use candle_core::{DType, Device, Tensor};
use hookpoint::{Error, Result};

use crate::config::{Architecture, Config};
use crate::model::{Sae, Weights};

/// Tensors in f32 on the CPU, of which nobody else has a share.
pub struct Parameters {
    /// `[d_sae, d_in]`: the transposed W_enc.
    pub encoder: Tensor,
    /// `[d_sae, d_in]`: W_dec.
    pub decoder: Tensor,
    /// `[d_sae]`
    pub b_enc: Tensor,
    /// `[d_in]`
    pub b_dec: Tensor,
    /// `[d_sae]`; all 0 where there are none.
    pub threshold: Tensor,
}

/// The names under which parameters are kept in files.
pub const NAMES: [&str; 5] = ["encoder", "decoder", "b_enc", "b_dec", "threshold"];

impl Parameters {
    pub fn of(sae: &Sae) -> Result<Self> {
        let own = |tensor: &Tensor| -> Result<Tensor> {
            let tensor = tensor.detach().to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
            Ok(tensor.force_contiguous()?)
        };
        let Weights { w_enc, b_enc, w_dec, b_dec, threshold } = sae.weights();
        let threshold = match threshold {
            Some(threshold) => threshold,
            None => Tensor::zeros(sae.config().d_sae, DType::F32, &Device::Cpu)?,
        };
        Ok(Self {
            encoder: own(&w_enc.t()?)?,
            decoder: own(&w_dec)?,
            b_enc: own(&b_enc)?,
            b_dec: own(&b_dec)?,
            threshold: own(&threshold)?,
        })
    }

    pub fn zeros(config: &Config) -> Result<Self> {
        let (d_in, d_sae) = (config.d_in, config.d_sae);
        let matrix = || Tensor::zeros((d_sae, d_in), DType::F32, &Device::Cpu);
        let vector = |count| Tensor::zeros(count, DType::F32, &Device::Cpu);
        Ok(Self {
            encoder: matrix()?,
            decoder: matrix()?,
            b_enc: vector(d_sae)?,
            b_dec: vector(d_in)?,
            threshold: vector(d_sae)?,
        })
    }

    /// In the order of [`NAMES`].
    pub fn all(&self) -> [&Tensor; 5] {
        [&self.encoder, &self.decoder, &self.b_enc, &self.b_dec, &self.threshold]
    }

    /// From tensors in the order of [`NAMES`], copied, which have to fit.
    pub fn from_all(config: &Config, all: &[Tensor]) -> Result<Self> {
        let shapes = Self::zeros(config)?;
        let mut tensors = Vec::new();
        for ((expected, tensor), name) in shapes.all().into_iter().zip(all).zip(NAMES) {
            if tensor.dims() != expected.dims() || tensor.dtype() != DType::F32 {
                return Err(Error::msg(format!(
                    "`{name}` has shape {:?}, and the autoencoder asks for {:?} in f32",
                    tensor.dims(),
                    expected.dims()
                )));
            }
            tensors.push(tensor.force_contiguous()?);
        }
        let [encoder, decoder, b_enc, b_dec, threshold]: [Tensor; 5] =
            tensors.try_into().map_err(|_| Error::msg("there are not as many tensors as there should be"))?;
        Ok(Self { encoder, decoder, b_enc, b_dec, threshold })
    }

    /// A copy as an autoencoder.
    pub fn sae(&self, config: &Config) -> Result<Sae> {
        let threshold = match config.architecture {
            Architecture::JumpRelu => Some(self.threshold.force_contiguous()?),
            _ => None,
        };
        let weights = Weights {
            w_enc: self.encoder.t()?.force_contiguous()?,
            b_enc: self.b_enc.force_contiguous()?,
            w_dec: self.decoder.force_contiguous()?,
            b_dec: self.b_dec.force_contiguous()?,
            threshold,
        };
        Sae::new(config.clone(), weights)
    }
}
