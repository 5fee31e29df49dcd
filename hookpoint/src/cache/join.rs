//! The calls of one point as one tensor.

use candle_core::Tensor;

use super::ActivationCache;
use crate::error::{ErrorKind, Result};

impl ActivationCache {
    /// All calls of a point side by side along a dimension: the steps of a generation along positions.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let (_, cache) = model.run_with_cache("up", |m| {
    ///     m.forward(&x)?;
    ///     m.forward(&(&x * 2.)?)
    /// })?;
    /// assert_eq!(cache.join("up", 0)?.to_vec2::<f32>()?, [[1., -2.], [2., -4.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn join(&self, name: &str, dim: usize) -> Result<Tensor> {
        let calls = self.some_calls(name)?;
        let others = |tensor: &Tensor| {
            let dims = tensor.dims().iter().enumerate();
            dims.filter(|(at, _)| *at != dim).map(|(_, size)| *size).collect::<Vec<_>>()
        };
        let first = calls.first().map(|tensor| others(tensor));
        if let Some(odd) = calls.iter().find(|tensor| Some(others(tensor)) != first) {
            return Err(ErrorKind::Shape {
                point: name.to_string(),
                what: "a call".to_string(),
                expected: calls.first().map(|tensor| tensor.dims().to_vec()).unwrap_or_default(),
                found: odd.dims().to_vec(),
                remedy: "calls that grow from step to step, as attention patterns do, are joined with \
                         `join_padded`"
                    .to_string(),
            }
            .into());
        }
        Ok(Tensor::cat(&calls, dim)?)
    }

    /// As [`join`](Self::join), for calls that also differ in other dimensions: each is first filled up
    /// at the end to the size of the largest. Attention patterns of a generation are joined along their
    /// queries, dimension 2, with zeros for the keys that a query could not see.
    pub fn join_padded(&self, name: &str, dim: usize, fill: f64) -> Result<Tensor> {
        let calls = self.some_calls(name)?;
        let first = calls.first().map_or(&[][..], |tensor| tensor.dims());
        let rank = first.len();
        if let Some(odd) = calls.iter().find(|tensor| tensor.rank() != rank) {
            let remedy = format!("join calls with as many dimensions, or name one call, as in `{name}#0`");
            let (point, what) = (name.to_string(), "a later call".to_string());
            let (expected, found) = (first.to_vec(), odd.dims().to_vec());
            return Err(ErrorKind::Shape { point, what, expected, found, remedy }.into());
        }
        if dim >= rank {
            let remedy = "join along a dimension that every call has".to_string();
            let (point, shape) = (name.to_string(), first.to_vec());
            return Err(ErrorKind::NoDimension { point, dim: dim as isize, shape, remedy }.into());
        }
        let mut padded: Vec<Tensor> = calls.into_iter().cloned().collect();
        for other in (0..rank).filter(|other| *other != dim) {
            let sizes =
                padded.iter().map(|tensor| tensor.dim(other)).collect::<candle_core::Result<Vec<_>>>()?;
            let largest = sizes.iter().max().copied().unwrap_or(0);
            for (tensor, size) in padded.iter_mut().zip(sizes).filter(|(_, size)| *size < largest) {
                let mut dims = tensor.dims().to_vec();
                if let Some(missing) = dims.get_mut(other) {
                    *missing = largest - size;
                }
                let filling = Tensor::full(fill, dims, tensor.device())?.to_dtype(tensor.dtype())?;
                *tensor = Tensor::cat(&[&*tensor, &filling], other)?;
            }
        }
        Ok(Tensor::cat(&padded, dim)?)
    }

    fn some_calls(&self, name: &str) -> Result<Vec<&Tensor>> {
        self.try_get(name)?;
        Ok(self.calls(name))
    }
}
