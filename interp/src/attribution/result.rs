//! What an attribution gives.

use std::sync::Arc;

use candle_core::{DType, Tensor};
use hookpoint::error::nearest;
use hookpoint::{ActivationCache, ErrorKind, Result};

/// What each point contributes to a metric: element by element, and as one number.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attribution {
    /// The contribution of each element, by the name of the point; for a point that is reached several
    /// times, of each call.
    pub tensors: ActivationCache,
    /// The metric of the run that was differentiated: the corrupted one, where there are two.
    pub metric: f64,
    /// The metric of the clean run, where there are two.
    pub clean_metric: Option<f64>,
    sums: Vec<(Arc<str>, f64)>,
}

impl Attribution {
    pub(super) fn new(tensors: ActivationCache, metric: f64, clean_metric: Option<f64>) -> Result<Self> {
        let mut sums = Vec::new();
        for name in tensors.keys() {
            let mut sum = 0.;
            for tensor in tensors.calls(name) {
                sum += number(&tensor.to_dtype(DType::F64)?.sum_all()?)?;
            }
            sums.push((Arc::from(name), sum));
        }
        Ok(Self { tensors, metric, clean_metric, sums })
    }

    /// What a point contributes, all its elements and calls together.
    pub fn sum(&self, name: &str) -> Result<f64> {
        let found = self.sums.iter().find(|(own, _)| **own == *name);
        found.map(|(_, sum)| *sum).ok_or_else(|| {
            let (key, nearest) = (name.to_string(), nearest(name, self.tensors.keys()));
            ErrorKind::MissingKey { key, nearest }.into()
        })
    }

    /// All points with what they contribute, in the order of the forward pass.
    pub fn sums(&self) -> impl Iterator<Item = (&str, f64)> {
        self.sums.iter().map(|(name, sum)| (&**name, *sum))
    }

    /// The same, the largest contribution first, whatever its sign.
    pub fn ranked(&self) -> Vec<(&str, f64)> {
        let mut ranked: Vec<_> = self.sums().collect();
        ranked.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        ranked
    }
}

/// The one number in a tensor, of whatever float type.
pub(super) fn number(tensor: &Tensor) -> Result<f64> {
    if tensor.elem_count() != 1 {
        return Err(ErrorKind::LossNotScalar { shape: tensor.dims().to_vec() }.into());
    }
    Ok(tensor.to_dtype(DType::F64)?.flatten_all()?.get(0)?.to_scalar()?)
}
