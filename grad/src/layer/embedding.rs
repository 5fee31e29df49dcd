use candle_core::{Result, Tensor};
use candle_nn::Embedding;

use super::{KnownLayer, Outline};

impl KnownLayer for Embedding {
    fn outline(&self, input: &Tensor) -> Option<Outline> {
        let dims = input.dims().iter().copied().chain([self.hidden_size()]).collect();
        Some(Outline { dims, dtype: self.embeddings().dtype() })
    }

    fn with_gradient(&self, _: &Tensor, _: bool) -> Option<Result<Tensor>> {
        None
    }

    fn width(&self) -> Option<usize> {
        Some(self.hidden_size())
    }

    fn weights(&self) -> Vec<(&'static str, &Tensor)> {
        vec![("weight", self.embeddings())]
    }
}
