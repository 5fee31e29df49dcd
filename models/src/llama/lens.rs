//! What the lenses have to know about a Llama.

use candle_core::{Result, Tensor};
use hookpoint_interp::{Norm, Output, Transformer};

use super::model::Llama;
use crate::language::layer_of;

impl Transformer for Llama {
    fn logits(&self, ids: &Tensor) -> Result<Tensor> {
        self.forward(ids)
    }

    fn n_layers(&self) -> usize {
        self.config().num_hidden_layers
    }

    fn n_heads(&self) -> usize {
        self.config().num_attention_heads
    }

    fn final_norm(&self) -> Result<Norm> {
        let norm = self.ln_final();
        Ok(Norm::Rms { weight: norm.weight().clone(), epsilon: norm.eps() })
    }

    fn unembedding(&self) -> Result<Output> {
        Ok(Output { weight: self.unembed().weight()?.t()?, bias: None })
    }

    fn attn_bias(&self, layer: usize) -> Result<Option<Tensor>> {
        Ok(layer_of(self.blocks(), layer)?.attn().o_proj().bias().cloned())
    }

    fn mlp_output(&self, layer: usize) -> Result<Output> {
        let down = layer_of(self.blocks(), layer)?.mlp().down_proj();
        Ok(Output { weight: down.weight()?.t()?, bias: down.bias().cloned() })
    }

    fn embeddings(&self) -> Vec<(&'static str, String)> {
        vec![("embed", "hook_embed".to_string())]
    }
}
