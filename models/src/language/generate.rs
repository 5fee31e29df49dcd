//! Text from a model, token by token, with hooks in force at every step.

use candle_core::{DType, Device, IndexOp, Tensor};
use hookpoint::{with_step, Error, Result, Step};

use super::model::LanguageModel;
use super::past::Past;
use super::prompt::{self, Limits};
use super::sample::{Sampler, Sampling};

/// How to generate.
///
/// ```
/// use candle_core::Device;
/// use hookpoint::prelude::*;
/// use hookpoint_models::gpt2::{Config, Generation, Gpt2, Sampling};
///
/// let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
/// let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
/// let generation = Generation::new(4).sampling(Sampling::random(1));
///
/// // Hooks and caches work as for a single forward pass; `#0` is the prompt, `#1` the first new token.
/// let run = model
///     .plan()
///     .cache("blocks.1:resid_post")?
///     .hook("blocks.0:resid_post#2", |ctx, x| {
///         assert_eq!((ctx.position(), x.dims()), (4, [1, 1, 8].as_slice()));
///         Ok(None)
///     })?
///     .run(|m| m.generate(&[[1, 2, 3]], &generation))?;
/// assert_eq!(run.output[0].len(), 3 + 4);
/// assert_eq!(run.cache.calls("blocks.1:resid_post").len(), 4);
/// // What the steps saw, side by side: all but the last token, which nobody has looked at.
/// assert_eq!(run.cache.join("blocks.1:resid_post", 1)?.dims(), [1, 6, 8]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Generation {
    max_new_tokens: usize,
    sampling: Sampling,
    kv_cache: bool,
    stop: Option<Vec<u32>>,
}

impl Generation {
    /// So many new tokens, or less where the text ends before: greedily, and with a KV cache.
    pub fn new(max_new_tokens: usize) -> Self {
        Self { max_new_tokens, sampling: Sampling::Greedy, kv_cache: true, stop: None }
    }

    /// Chooses tokens in this way.
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// Computes all positions anew at every step. Slower, for the same text: hooks then see whole texts.
    pub fn without_kv_cache(mut self) -> Self {
        self.kv_cache = false;
        self
    }

    /// A row ends with any of these tokens. Without this it ends with the config's `eos_token_id`.
    pub fn stop(mut self, tokens: &[u32]) -> Self {
        self.stop = Some(tokens.to_vec());
        self
    }
}

/// See [`LanguageModel::generate`].
pub(crate) fn generate<M: LanguageModel, P: AsRef<[u32]>>(
    model: &M,
    prompts: &[P],
    generation: &Generation,
) -> Result<Vec<Vec<u32>>> {
    generation.sampling.check()?;
    if let Some(row) = prompts.iter().position(|prompt| prompt.as_ref().is_empty()) {
        return Err(Error::msg(format!("the prompt is empty: there are no tokens in row {row}")));
    }
    let mut rows = Rows::new(prompts, model, generation);
    let last = rows.columns.saturating_add(generation.max_new_tokens.saturating_sub(1));
    let limits = Limits { vocab_size: model.vocab_size(), n_positions: model.n_positions() };
    if last > limits.n_positions {
        return Err(prompt::too_long(last, limits));
    }
    let prompt = rows.columns;
    let mut past = Past::new().padded(&rows.padding());
    for number in 0..generation.max_new_tokens {
        let start = if generation.kv_cache { past.len() } else { 0 };
        if !generation.kv_cache {
            past = Past::none().padded(&rows.padding());
        }
        let ids = rows.columns_from(start, model.device())?;
        let step = Step { number, positions: start..rows.columns, prompt };
        let logits = with_step(step, || model.forward_after(&ids, &mut past))?;
        // [batch, vocab]
        let logits = logits.i((.., logits.dim(1)? - 1))?.to_dtype(DType::F32)?.to_vec2::<f32>()?;
        if rows.grow(&logits)? == Ended::All {
            break;
        }
    }
    Ok(rows.texts())
}

/// Texts that grow side by side, with padding on the left.
struct Rows<'g> {
    rows: Vec<Row<'g>>,
    /// How long each row is, with its padding.
    columns: usize,
    stop: Vec<u32>,
}

struct Row<'g> {
    padding: usize,
    /// Padding, prompt, what was generated, and from the end of the text on whatever ended it.
    tokens: Vec<u32>,
    ended_at: Option<usize>,
    sampler: Sampler<'g>,
}

#[derive(PartialEq)]
enum Ended {
    All,
    NotAll,
}

impl<'g> Rows<'g> {
    fn new<P: AsRef<[u32]>>(prompts: &[P], model: &impl LanguageModel, generation: &'g Generation) -> Self {
        let columns = prompts.iter().map(|prompt| prompt.as_ref().len()).max().unwrap_or(0);
        let row = |(number, prompt): (usize, &P)| {
            let prompt = prompt.as_ref();
            let padding = columns - prompt.len();
            // Nobody attends to padding, so any token will do.
            let tokens = std::iter::repeat_n(0, padding).chain(prompt.iter().copied()).collect();
            Row { padding, tokens, ended_at: None, sampler: generation.sampling.sampler(number) }
        };
        let rows = prompts.iter().enumerate().map(row).collect();
        Self { rows, columns, stop: generation.stop.clone().unwrap_or_else(|| model.ends()) }
    }

    /// How much of each row is padding; nothing at all where no row has any.
    fn padding(&self) -> Vec<usize> {
        let padding: Vec<usize> = self.rows.iter().map(|row| row.padding).collect();
        if padding.iter().all(|padding| *padding == 0) {
            return Vec::new();
        }
        padding
    }

    /// The ids of the columns from `start` on, `[batch, pos]`.
    fn columns_from(&self, start: usize, device: &Device) -> Result<Tensor> {
        let ids = |row: &Row<'g>| row.tokens.get(start..).unwrap_or_default().to_vec();
        let ids: Vec<u32> = self.rows.iter().flat_map(ids).collect();
        Ok(Tensor::from_vec(ids, (self.rows.len(), self.columns - start), device)?)
    }

    /// Adds one token to each row.
    fn grow(&mut self, logits: &[Vec<f32>]) -> Result<Ended> {
        for (row, logits) in self.rows.iter_mut().zip(logits) {
            let token = match row.ended_at.and_then(|_| row.tokens.last()) {
                Some(last) => *last,
                None => row.sampler.choose(logits)?,
            };
            row.tokens.push(token);
            if row.ended_at.is_none() && self.stop.contains(&token) {
                row.ended_at = Some(row.tokens.len());
            }
        }
        self.columns += 1;
        let all = self.rows.iter().all(|row| row.ended_at.is_some());
        Ok(if all { Ended::All } else { Ended::NotAll })
    }

    /// The texts without padding on either side.
    fn texts(self) -> Vec<Vec<u32>> {
        let text = |mut row: Row<'g>| {
            row.tokens.truncate(row.ended_at.unwrap_or(usize::MAX));
            row.tokens.drain(..row.padding);
            row.tokens
        };
        self.rows.into_iter().map(text).collect()
    }
}
