//! What a model is tried on, and how well it does.

use anyhow::{ensure, Result};
use candle_core::{DType, Tensor, D};
use clap::ValueEnum;
use hookpoint::Hooked;
use hookpoint_examples::Subject;
use hookpoint_interp::Transformer;
use hookpoint_models::english::{English, Pairs};
use hookpoint_models::language::LanguageModel;

/// Something that models learn to do.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skill {
    /// When Mary and John went to the store, John gave a drink to: Mary
    IndirectObject,
    /// Random tokens, and the same tokens again
    Induction,
}

impl Skill {
    pub fn title(self) -> &'static str {
        match self {
            Self::IndirectObject => "Indirect object",
            Self::Induction => "Induction",
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Self::IndirectObject => {
                "\"When Mary and John went to the store, John gave a drink to\": by how much is the logit of Mary \
                 above that of John?"
            }
            Self::Induction => "Random tokens, and then the same again: how likely is each token the second time?",
        }
    }

    /// A score in words.
    pub fn shown(self, score: f64) -> String {
        match self {
            Self::IndirectObject => format!("{score:+.2}"),
            Self::Induction => format!("{:.1} %", score * 100.),
        }
    }
}

/// Prompts of one kind.
pub struct Questions(Vec<Question>);

pub struct Question {
    /// `[1, pos]`
    pub ids: Tensor,
    /// As long, with another answer.
    pub other: Tensor,
    right: Right,
}

/// What would be right.
enum Right {
    /// At the last position the first token, and not the second.
    Rather(u32, u32),
    /// From this position on, what follows.
    Repeats(usize),
}

/// The longest part that is repeated, in tokens.
const LONGEST: usize = 20;

impl Questions {
    pub fn new<M: LanguageModel>(
        subject: &Subject<M>,
        skill: Skill,
        count: usize,
        seed: u64,
    ) -> Result<Self> {
        let mut english = English::new(seed);
        let make = |_| match skill {
            Skill::IndirectObject => indirect_object(subject, &mut english),
            Skill::Induction => induction(subject, &mut english).map(Some),
        };
        // Not every tokenizer has a single token for every name.
        let made = (0..4 * count).map(make).filter_map(Result::transpose);
        let questions = made.take(count).collect::<Result<Vec<_>>>()?;
        ensure!(!questions.is_empty(), "the tokenizer of this model splits the names of this task in pieces");
        Ok(Self(questions))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Question> {
        self.0.iter()
    }

    /// The mean over all prompts; `run` gives logits for ids.
    pub fn score<M: Transformer>(
        &self,
        model: &Hooked<M>,
        run: impl Fn(&Hooked<M>, &Tensor) -> Result<Tensor>,
    ) -> Result<f64> {
        let scores = self.iter().map(|question| question.score(&run(model, &question.ids)?));
        Ok(scores.sum::<Result<f64>>()? / self.len() as f64)
    }
}

impl Question {
    /// How right the logits `[1, pos, vocab]` are.
    pub fn score(&self, logits: &Tensor) -> Result<f64> {
        let logits = logits.get(0)?.to_dtype(DType::F32)?;
        match self.right {
            Right::Rather(answer, wrong) => {
                let last: Vec<f32> = logits.get(logits.dim(0)? - 1)?.to_vec1()?;
                let logit = |token: u32| last.get(token as usize).copied().map_or(f64::NAN, f64::from);
                Ok(logit(answer) - logit(wrong))
            }
            Right::Repeats(from) => {
                let count = logits.dim(0)? - 1 - from;
                let shares = candle_nn::ops::softmax(&logits.narrow(0, from, count)?, D::Minus1)?;
                let next = self.ids.get(0)?.narrow(0, from + 1, count)?.unsqueeze(1)?;
                Ok(f64::from(shares.gather(&next, 1)?.mean_all()?.to_scalar::<f32>()?))
            }
        }
    }
}

fn indirect_object<M: LanguageModel>(
    subject: &Subject<M>,
    english: &mut English,
) -> Result<Option<Question>> {
    let example = english.indirect_object(Pairs::HeldOut);
    let (Some(wrong), Some(other)) = (&example.wrong, &example.corrupted) else { return Ok(None) };
    let encode = |text: &str| subject.encode(text, 0);
    let (tokens, other) = (encode(&example.prompt)?, encode(other)?);
    match (encode(&example.answer)?.as_slice(), encode(wrong)?.as_slice()) {
        ([answer], [wrong]) if tokens.len() == other.len() => Ok(Some(Question {
            ids: subject.ids(&tokens)?,
            other: subject.ids(&other)?,
            right: Right::Rather(*answer, *wrong),
        })),
        _ => Ok(None),
    }
}

fn induction<M: LanguageModel>(subject: &Subject<M>, english: &mut English) -> Result<Question> {
    let half = LONGEST.min(subject.model.n_positions() / 2);
    ensure!(half > 1, "the context of this model is too short for something to repeat");
    let vocabulary = subject.model.vocab_size();
    let (tokens, other) = (english.repeated(half, vocabulary), english.repeated(half, vocabulary));
    Ok(Question { ids: subject.ids(&tokens)?, other: subject.ids(&other)?, right: Right::Repeats(half) })
}
