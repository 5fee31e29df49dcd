//! Linear layers whose weights may be quantized, and where they come from.

use std::sync::Arc;

use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{DType, Module, Result, Tensor};
use candle_nn::{Embedding, Init, Linear, RmsNorm, VarBuilder};
use hookpoint::prelude::*;

/// A linear layer, with its weight as numbers or as quantized blocks.
#[derive(Clone, Debug, AutoHook)]
pub enum Projection {
    /// Numbers.
    Full {
        /// Weight `[out, in]`, and bias.
        linear: Linear,
    },
    /// Blocks, as a GGUF file has them.
    Quantized {
        /// Weight `[out, in]`.
        matmul: QMatMul,
        /// `[out]`.
        bias: Option<Tensor>,
    },
}

#[auto_hook]
impl Module for Projection {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Full { linear } => linear.forward(x),
            Self::Quantized { matmul, bias: None } => matmul.forward(x),
            Self::Quantized { matmul, bias: Some(bias) } => matmul.forward(x)?.broadcast_add(bias),
        }
    }
}

impl Projection {
    /// The weight, `[out, in]`. Of a quantized one this is a copy as numbers.
    pub fn weight(&self) -> Result<Tensor> {
        match self {
            Self::Full { linear } => Ok(linear.weight().clone()),
            Self::Quantized { matmul: QMatMul::QTensor(blocks), .. } => blocks.dequantize(&blocks.device()),
            Self::Quantized { matmul: QMatMul::Tensor(weight) | QMatMul::TensorF16(weight), .. } => {
                weight.to_dtype(DType::F32)
            }
        }
    }

    /// The bias, `[out]`.
    pub fn bias(&self) -> Option<&Tensor> {
        match self {
            Self::Full { linear } => linear.bias(),
            Self::Quantized { bias, .. } => bias.as_ref(),
        }
    }
}

/// Quantized weights by the names that Hugging Face has for them.
pub(super) trait Blocks {
    /// The weight `[out, in]` of this name, if it is there as blocks.
    fn blocks(&self, name: &str, shape: (usize, usize)) -> Result<Option<Arc<QTensor>>>;
}

/// Where the weights of a part of the model come from.
#[derive(Clone)]
pub(super) struct Weights<'w> {
    vb: VarBuilder<'w>,
    blocks: Option<&'w dyn Blocks>,
}

impl<'w> Weights<'w> {
    /// All as numbers, but those that `blocks` has.
    pub fn new(vb: VarBuilder<'w>, blocks: Option<&'w dyn Blocks>) -> Self {
        Self { vb, blocks }
    }

    pub fn pp(&self, part: impl ToString) -> Self {
        Self { vb: self.vb.pp(part), blocks: self.blocks }
    }

    pub fn contains(&self, name: &str) -> bool {
        self.vb.contains_tensor(name)
    }

    /// `spread` is how far from zero weights are before training.
    pub fn linear(&self, input: usize, output: usize, bias: bool, spread: f64) -> Result<Projection> {
        let bias = bias.then(|| self.vb.get_with_hints(output, "bias", Init::Const(0.))).transpose()?;
        match self.quantized(output, input)? {
            Some(matmul) => Ok(Projection::Quantized { matmul, bias }),
            None => Ok(Projection::Full { linear: Linear::new(self.matrix(output, input, spread)?, bias) }),
        }
    }

    /// The layer that has the weight of an embedding.
    pub fn tied(&self, embedding: &Embedding) -> Result<Projection> {
        let weight = embedding.embeddings();
        let (output, input) = weight.dims2()?;
        match self.quantized(output, input)? {
            Some(matmul) => Ok(Projection::Quantized { matmul, bias: None }),
            None => Ok(Projection::Full { linear: Linear::new(weight.clone(), None) }),
        }
    }

    fn quantized(&self, output: usize, input: usize) -> Result<Option<QMatMul>> {
        let Some(source) = self.blocks else { return Ok(None) };
        let blocks = source.blocks(&format!("{}.weight", self.vb.prefix()), (output, input))?;
        blocks.map(QMatMul::from_arc).transpose()
    }

    pub fn embedding(&self, count: usize, width: usize, spread: f64) -> Result<Embedding> {
        Ok(Embedding::new(self.matrix(count, width, spread)?, width))
    }

    pub fn norm(&self, width: usize, epsilon: f64) -> Result<RmsNorm> {
        candle_nn::rms_norm(width, epsilon, self.vb.clone())
    }

    fn matrix(&self, rows: usize, columns: usize, spread: f64) -> Result<Tensor> {
        self.vb.get_with_hints((rows, columns), "weight", Init::Randn { mean: 0., stdev: spread })
    }
}
