//! From sentences to vectors, as sentence-transformers makes them.

use candle_core::{DType, Tensor, D};
use hookpoint::{Error, Result};

use super::batch::Batch;
use super::model::Bert;
use crate::language::{no_tokenizer, Tokenizer};

impl Bert {
    /// The tokenizer that came with the model.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer.as_ref().ok_or_else(no_tokenizer)
    }

    /// The same model with this tokenizer.
    pub fn with_tokenizer(mut self, tokenizer: Tokenizer) -> Self {
        self.tokenizer = Some(tokenizer);
        self
    }

    /// Sentences as the model reads them, with `[CLS]` before and `[SEP]` behind each, filled up on the right.
    /// Words that the tokenizer does not know become `[UNK]`.
    pub fn encode<T: AsRef<str>>(&self, sentences: &[T]) -> Result<Batch> {
        let tokens = sentences.iter().map(|sentence| self.tokenizer()?.encode_typed(sentence.as_ref(), None));
        self.batch(tokens.collect::<Result<_>>()?)
    }

    /// Pairs of sentences, with types to tell the first from the second.
    pub fn encode_pairs<T: AsRef<str>>(&self, pairs: &[(T, T)]) -> Result<Batch> {
        let tokens = pairs
            .iter()
            .map(|(first, second)| self.tokenizer()?.encode_typed(first.as_ref(), Some(second.as_ref())));
        self.batch(tokens.collect::<Result<_>>()?)
    }

    fn batch(&self, tokens: Vec<Vec<(u32, u32)>>) -> Result<Batch> {
        if tokens.is_empty() {
            return Err(Error::msg("there are no sentences\n  give at least one"));
        }
        let (longest, most) = (tokens.iter().map(Vec::len).max().unwrap_or(0), self.longest);
        if longest > most {
            return Err(Error::msg(format!(
                "a sentence has {longest} tokens, and this model takes {most}\n  cut it, or take it apart"
            )));
        }
        let padding = self.tokenizer()?.id("[PAD]").unwrap_or(0);
        let part = |part: fn(&(u32, u32)) -> u32| -> Vec<Vec<u32>> {
            tokens.iter().map(|row| row.iter().map(part).collect()).collect()
        };
        let device = self.embed().embeddings().device();
        let types = Batch::of_rows(&part(|(_, kind)| *kind), 0, device)?;
        Batch::of_rows(&part(|(id, _)| *id), padding, device)?.with_token_types(types.ids())
    }

    /// A vector of length 1 for each sentence, `[batch, d_model]` in f32: the mean of the hidden states of its
    /// tokens, normalized. The product of two is the cosine of the angle between them.
    pub fn sentence_embeddings<T: AsRef<str>>(&self, sentences: &[T]) -> Result<Tensor> {
        let batch = self.encode(sentences)?;
        let mean = mean(&self.forward_batch(&batch)?, &batch)?;
        let length = mean.sqr()?.sum_keepdim(D::Minus1)?.sqrt()?;
        Ok(mean.broadcast_div(&length.clamp(1e-12, f64::INFINITY)?)?)
    }
}

/// The mean of hidden states over the tokens of each row, padding left out: `[batch, d_model]`, in f32.
pub fn mean(hidden: &Tensor, batch: &Batch) -> Result<Tensor> {
    let mask = batch.attention_mask().to_dtype(DType::F32)?.unsqueeze(2)?;
    let sum = hidden.to_dtype(DType::F32)?.broadcast_mul(&mask)?.sum(1)?;
    Ok(sum.broadcast_div(&mask.sum(1)?)?)
}
