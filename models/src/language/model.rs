//! What a tool may ask of any model that continues texts.

use candle_core::{Device, Tensor};
use hookpoint::{AutoHook, Error, Result};

use super::generate::{generate, Generation};
use super::past::Past;
use super::tokenizer::Tokenizer;

/// A model that says for every position of a text which token comes next.
pub trait LanguageModel: AutoHook {
    /// Logits `[batch, pos, vocab]` for `ids` of `[batch, pos]`, u32 or i64, which follow what `past` has seen.
    fn forward_after(&self, ids: &Tensor, past: &mut Past) -> candle_core::Result<Tensor>;

    /// How many tokens there are.
    fn vocab_size(&self) -> usize;

    /// How many positions a text may have.
    fn n_positions(&self) -> usize;

    /// The tokens with which a text ends.
    fn ends(&self) -> Vec<u32>;

    /// Where the model computes.
    fn device(&self) -> &Device;

    /// The tokenizer that came with the model.
    fn tokenizer(&self) -> Result<&Tokenizer>;

    /// Continues prompts, each a list of token ids, and gives them back with what was added.
    ///
    /// Prompts of different length are padded on the left; each gives what it gives alone. Called inside
    /// a run, every step is hooked, and hooks are told [which one](hookpoint::HookCtx::step) it is.
    /// Positions are counted with the padding.
    fn generate<P: AsRef<[u32]>>(&self, prompts: &[P], generation: &Generation) -> Result<Vec<Vec<u32>>>
    where
        Self: Sized,
    {
        generate(self, prompts, generation)
    }

    /// Continues a text with the model's tokenizer, and gives what was added.
    fn complete(&self, text: &str, generation: &Generation) -> Result<String>
    where
        Self: Sized,
    {
        let tokenizer = self.tokenizer()?;
        let prompt = tokenizer.encode(text)?;
        let texts = generate(self, &[&prompt], generation)?;
        tokenizer.decode(texts.first().and_then(|text| text.get(prompt.len()..)).unwrap_or_default())
    }
}

pub(crate) fn no_tokenizer() -> Error {
    Error::msg(
        "this model came without a tokenizer\n  put its `tokenizer.json` into the folder that it is loaded \
         from, or give one to `with_tokenizer`",
    )
}

/// A block by its number.
pub(crate) fn layer_of<B>(blocks: &[B], layer: usize) -> candle_core::Result<&B> {
    let layers = blocks.len();
    blocks.get(layer).ok_or_else(|| {
        Error::msg(format!("there is no layer {layer}: this model has {layers}, counted from 0")).into()
    })
}
