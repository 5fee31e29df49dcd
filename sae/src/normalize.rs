//! What is done to rows before they are encoded, and undone after they are decoded.

use candle_core::{Result, Tensor, D};

use super::config::{Config, Normalization};

/// What is added to a standard deviation, as in SAELens.
const EPSILON: f64 = 1e-5;

/// Rows to be encoded, and what was done to them, `[.., 1]` each.
pub(super) struct Scaled {
    pub rows: Tensor,
    by: Option<Tensor>,
    shifted: Option<Tensor>,
}

impl Config {
    /// With heads flattened, if it is for heads.
    pub(super) fn flat(&self, x: &Tensor) -> Result<Tensor> {
        match self.flatten_heads {
            true => x.flatten_from(D::Minus2),
            false => Ok(x.clone()),
        }
    }

    /// What is encoded for these rows, `[.., d_in]`.
    pub(super) fn scaled(&self, x: &Tensor) -> Result<Scaled> {
        match self.normalization {
            Normalization::None => Ok(Scaled { rows: x.clone(), by: None, shifted: None }),
            Normalization::ConstantNormRescale => {
                let by = (x.sqr()?.sum_keepdim(D::Minus1)?.sqrt()? / (self.d_in as f64).sqrt())?;
                Ok(Scaled { rows: x.broadcast_div(&by)?, by: Some(by), shifted: None })
            }
            Normalization::LayerNorm => {
                let mean = x.mean_keepdim(D::Minus1)?;
                let centred = x.broadcast_sub(&mean)?;
                // Of a sample, as PyTorch has it.
                let count = (self.d_in.max(2) - 1) as f64;
                let by = (centred.sqr()?.sum_keepdim(D::Minus1)? / count)?.sqrt()?;
                let rows = centred.broadcast_div(&(&by + EPSILON)?)?;
                Ok(Scaled { rows, by: Some(by), shifted: Some(mean) })
            }
        }
    }
}

impl Scaled {
    /// The same backwards.
    pub fn undo(&self, rows: Tensor) -> Result<Tensor> {
        let rows = self.by.iter().try_fold(rows, |rows, by| rows.broadcast_mul(by))?;
        self.shifted.iter().try_fold(rows, |rows, mean| rows.broadcast_add(mean))
    }
}
