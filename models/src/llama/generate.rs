//! Texts from a Llama.

use candle_core::{Device, Tensor};
use hookpoint::Result;

use super::model::Llama;
use crate::language::{Generation, LanguageModel, Past, Tokenizer};

impl Llama {
    /// Continues prompts, each a list of token ids, and gives them back with what was added:
    /// [`LanguageModel::generate`].
    pub fn generate<P: AsRef<[u32]>>(&self, prompts: &[P], generation: &Generation) -> Result<Vec<Vec<u32>>> {
        LanguageModel::generate(self, prompts, generation)
    }

    /// Continues a text with the model's tokenizer, and gives what was added.
    pub fn complete(&self, text: &str, generation: &Generation) -> Result<String> {
        LanguageModel::complete(self, text, generation)
    }
}

impl LanguageModel for Llama {
    fn forward_after(&self, ids: &Tensor, past: &mut Past) -> candle_core::Result<Tensor> {
        self.forward_after(ids, past)
    }

    fn vocab_size(&self) -> usize {
        self.config().vocab_size
    }

    fn n_positions(&self) -> usize {
        self.config().max_position_embeddings
    }

    fn ends(&self) -> Vec<u32> {
        self.config().eos_token_id.clone()
    }

    fn device(&self) -> &Device {
        self.embed().embeddings().device()
    }

    fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer()
    }
}
