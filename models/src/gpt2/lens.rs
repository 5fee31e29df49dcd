//! What the lenses have to know about a GPT-2.

use candle_core::{Result, Tensor};
use hookpoint_interp::{Norm, Output, Transformer};

use super::model::Gpt2;
use crate::language::layer_of;

impl Transformer for Gpt2 {
    fn logits(&self, ids: &Tensor) -> Result<Tensor> {
        self.forward(ids)
    }

    fn n_layers(&self) -> usize {
        self.config().n_layer
    }

    fn n_heads(&self) -> usize {
        self.config().n_head
    }

    fn final_norm(&self) -> Result<Norm> {
        let norm = self.ln_final();
        let (weight, bias) = (norm.weight().clone(), norm.bias().cloned());
        Ok(Norm::Layer { weight, bias, epsilon: self.config().layer_norm_epsilon })
    }

    fn unembedding(&self) -> Result<Output> {
        Ok(Output { weight: self.unembed().weight().t()?, bias: self.unembed().bias().cloned() })
    }

    fn attn_bias(&self, layer: usize) -> Result<Option<Tensor>> {
        Ok(layer_of(self.blocks(), layer)?.attn().c_proj().bias().cloned())
    }

    fn mlp_output(&self, layer: usize) -> Result<Output> {
        let linear = layer_of(self.blocks(), layer)?.mlp().c_proj();
        Ok(Output { weight: linear.weight().t()?, bias: linear.bias().cloned() })
    }
}
