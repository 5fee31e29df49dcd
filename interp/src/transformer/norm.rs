//! The final norm: as it is, and as the linear map that it is once its scale is known.

use candle_core::{DType, Result, Tensor, D};

/// A norm over the last dimension.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Norm {
    /// Takes the mean away, divides by the standard deviation, then weight and bias.
    Layer {
        /// `[d_model]`.
        weight: Tensor,
        /// `[d_model]`.
        bias: Option<Tensor>,
        /// What is added to the variance.
        epsilon: f64,
    },
    /// Divides by the root of the mean square, then the weight.
    Rms {
        /// `[d_model]`.
        weight: Tensor,
        /// What is added to the mean square.
        epsilon: f64,
    },
}

impl Norm {
    fn parts(&self) -> (&Tensor, Option<&Tensor>, f64) {
        match self {
            Norm::Layer { weight, bias, epsilon } => (weight, bias.as_ref(), *epsilon),
            Norm::Rms { weight, epsilon } => (weight, None, *epsilon),
        }
    }

    /// What the normalized values are multiplied with, `[d_model]`.
    pub fn weight(&self) -> &Tensor {
        self.parts().0
    }

    /// `x` without its mean, where the norm takes it away.
    pub(crate) fn centered(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Norm::Layer { .. } => x.broadcast_sub(&x.mean_keepdim(D::Minus1)?),
            Norm::Rms { .. } => Ok(x.clone()),
        }
    }

    /// What `resid` of `[.., d_model]` is divided by: `[.., 1]`.
    pub(crate) fn scale(&self, resid: &Tensor) -> Result<Tensor> {
        let (.., epsilon) = self.parts();
        (self.centered(resid)?.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()
    }

    /// The whole norm, in f32.
    pub(crate) fn apply(&self, resid: &Tensor) -> Result<Tensor> {
        let (weight, bias, _) = self.parts();
        let resid = resid.to_dtype(DType::F32)?;
        let scaled = self.centered(&resid)?.broadcast_div(&self.scale(&resid)?)?;
        let weighted = scaled.broadcast_mul(&weight.to_dtype(DType::F32)?)?;
        match bias {
            Some(bias) => weighted.broadcast_add(&bias.to_dtype(DType::F32)?),
            None => Ok(weighted),
        }
    }

    /// The direction before the norm that becomes `direction`, `[.., d_model]`, behind it, but for the scale.
    /// Taking a mean away is its own transpose.
    pub(crate) fn before(&self, direction: &Tensor) -> Result<Tensor> {
        let (weight, ..) = self.parts();
        self.centered(&direction.broadcast_mul(&weight.to_dtype(DType::F32)?)?)
    }

    /// What the bias adds along `direction`, `[.., d_model]`: `[..]`.
    pub(crate) fn bias_along(&self, direction: &Tensor) -> Result<Option<Tensor>> {
        let (_, bias, _) = self.parts();
        let along = |bias: &Tensor| direction.broadcast_mul(&bias.to_dtype(DType::F32)?)?.sum(D::Minus1);
        bias.map(along).transpose()
    }
}
