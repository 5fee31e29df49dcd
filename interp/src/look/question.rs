//! What a model is asked: prompts as tokens, and which next token is to be explained.

use candle_core::{DType, Tensor};
use hookpoint::{Error, Hooked, Result};

use super::{device_of, ids};
use crate::Transformer;

/// Why `answer` and not `wrong`, behind this prompt?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    prompt: Vec<u32>,
    corrupted: Option<Vec<u32>>,
    answer: u32,
    wrong: u32,
}

/// A question of which not everything is said: the model says the rest.
///
/// ```
/// use candle_core::Device;
/// use hookpoint::Hooked;
/// use hookpoint_interp::look::Question;
/// use hookpoint_models::gpt2::{Config, Gpt2};
///
/// let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
/// let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
/// let question = Question::about(&[1, 2, 3]).answer(4).of(&model)?;
/// assert_eq!(question.answer(), 4);
/// assert_ne!(question.wrong(), 4);
///
/// let mistake = Question::about(&[1, 2, 3]).corrupted(&[1, 2]).of(&model).unwrap_err();
/// assert!(mistake.to_string().contains("as many tokens"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a question is complete when a model has been asked with `of`"]
pub struct QuestionBuilder<'a> {
    prompt: &'a [u32],
    corrupted: Option<&'a [u32]>,
    answer: Option<u32>,
    wrong: Option<u32>,
}

/// What is wrong with a question.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuestionError {
    /// There is nothing to look at.
    #[error("the prompt is empty: there are no tokens\n  give at least one")]
    Empty,
    /// Positions of the two prompts could not be compared.
    #[error(
        "the corrupted prompt has to have as many tokens as the prompt, and has {corrupted} where that has {clean}\n  \
         choose words that the tokenizer splits alike"
    )]
    Lengths {
        /// How many tokens the prompt has.
        clean: usize,
        /// How many the corrupted one has.
        corrupted: usize,
    },
    /// There is nothing to find out.
    #[error("the corrupted prompt is the prompt itself\n  change at least one of its tokens")]
    SamePrompts,
    /// A difference of a logit to itself.
    #[error("the answer and the wrong token are the same, {token}\n  choose two")]
    SameTokens {
        /// The token.
        token: u32,
    },
    /// A model of one token.
    #[error("this model knows a single token, so nothing can be compared")]
    SingleToken,
    /// The model computes NaN or infinity.
    #[error("the logits of this model are not all finite numbers\n  are its weights damaged?")]
    NotFinite,
    /// Both prompts lead to the same logits.
    #[error(
        "both prompts give the same difference of logits, {logit}, so there is nothing to bring back\n  choose a \
         corrupted prompt that leads elsewhere"
    )]
    SameLogits {
        /// The logit of the answer less that of the wrong token.
        logit: f64,
    },
}

impl From<QuestionError> for Error {
    fn from(error: QuestionError) -> Self {
        Error::other(error)
    }
}

impl Question {
    /// Begins a question about what comes behind this prompt.
    pub fn about(prompt: &[u32]) -> QuestionBuilder<'_> {
        QuestionBuilder { prompt, corrupted: None, answer: None, wrong: None }
    }

    /// What the model is given.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// A prompt of as many tokens that leads elsewhere.
    pub fn corrupted(&self) -> Option<&[u32]> {
        self.corrupted.as_deref()
    }

    /// The next token to explain.
    pub fn answer(&self) -> u32 {
        self.answer
    }

    /// The token that it is compared with.
    pub fn wrong(&self) -> u32 {
        self.wrong
    }
}

impl<'a> QuestionBuilder<'a> {
    /// Another prompt of as many tokens, that leads elsewhere.
    pub fn corrupted(mut self, prompt: &'a [u32]) -> Self {
        self.corrupted = Some(prompt);
        self
    }

    /// The token to explain. Without this it is the most likely.
    pub fn answer(mut self, token: u32) -> Self {
        self.answer = Some(token);
        self
    }

    /// The token that it is compared with. Without this it is what the corrupted prompt leads to, or else what is
    /// most likely after the answer.
    pub fn wrong(mut self, token: u32) -> Self {
        self.wrong = Some(token);
        self
    }

    /// Asks the model for what was not said.
    pub fn of<M: Transformer>(self, model: &Hooked<M>) -> Result<Question> {
        let device = device_of(&**model)?;
        if self.prompt.is_empty() {
            return Err(QuestionError::Empty.into());
        }
        if let Some(corrupted) = self.corrupted {
            if corrupted.len() != self.prompt.len() {
                let (clean, corrupted) = (self.prompt.len(), corrupted.len());
                return Err(QuestionError::Lengths { clean, corrupted }.into());
            }
            if corrupted == self.prompt {
                return Err(QuestionError::SamePrompts.into());
            }
        }
        let next = |tokens: &[u32]| ranked(model, &ids(tokens, &device)?);
        let expected = next(self.prompt)?;
        let instead = self.corrupted.map(next).transpose()?.unwrap_or_default();
        let not = |token: Option<u32>| move |other: &u32| Some(*other) != token;
        let answer = self.answer.or_else(|| expected.iter().copied().find(not(self.wrong)));
        let first = instead.first().copied().filter(not(answer));
        let wrong = self.wrong.or(first).or_else(|| expected.iter().copied().find(not(answer)));
        let (Some(answer), Some(wrong)) = (answer, wrong) else {
            return Err(QuestionError::SingleToken.into());
        };
        if answer == wrong {
            return Err(QuestionError::SameTokens { token: answer }.into());
        }
        let corrupted = self.corrupted.map(<[u32]>::to_vec);
        Ok(Question { prompt: self.prompt.to_vec(), corrupted, answer, wrong })
    }
}

/// What comes behind the last of the ids, which are `[1, pos]`: tokens, the most likely first.
fn ranked<M: Transformer>(model: &Hooked<M>, ids: &Tensor) -> Result<Vec<u32>> {
    let logits: Vec<f32> = model.run(|m| -> candle_core::Result<Vec<f32>> {
        let logits = m.logits(ids)?.get(0)?;
        logits.get(logits.dim(0)?.saturating_sub(1))?.to_dtype(DType::F32)?.to_vec1()
    })?;
    if logits.iter().any(|logit| !logit.is_finite()) {
        return Err(QuestionError::NotFinite.into());
    }
    let mut order: Vec<(u32, f32)> = (0..).zip(logits).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(order.into_iter().map(|(token, _)| token).collect())
}
