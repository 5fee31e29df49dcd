//! Everything that is found out about a prompt. `--json` prints these types as they are.

mod heads;
mod lens;
mod patching;
mod points;

use anyhow::Result;
use hookpoint_examples::{Progress, Subject};
use hookpoint_interp::lens::LogitLens;
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;
use serde::Serialize;

use crate::question::Question;

pub use heads::{Attribution, HeadFindings};
pub use lens::{Guess, Lens};
pub use patching::{HeatMap, Patching};
pub use points::Point;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    pub model: Model,
    /// What the model was given.
    pub prompt: Vec<Token>,
    /// The token to be explained, and the one that it is compared with.
    pub answer: Token,
    pub wrong: Token,
    /// What it expects next, the most likely first.
    pub next: Vec<Guess>,
    pub lens: Lens,
    /// What every part of the model adds, at the last position, to the logit of `answer` less that of `wrong`.
    pub attribution: Attribution,
    /// Layer by layer.
    pub heads: Vec<HeadFindings>,
    /// None without a corrupted prompt.
    pub patching: Option<Patching>,
    /// The `hook_dict`, with the shapes of this run.
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Model {
    pub name: String,
    pub layers: usize,
    /// In each layer.
    pub heads: usize,
    /// The width of the residual stream.
    pub width: usize,
    pub vocabulary: usize,
    pub context: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Token {
    pub id: u32,
    /// With its spaces.
    pub text: String,
}

impl Findings {
    /// `top` is how many tokens are kept of each list of guesses.
    pub fn of<M: LanguageModel + Transformer>(
        subject: &Subject<M>,
        question: &Question,
        top: usize,
        progress: &Progress,
    ) -> Result<Self> {
        let model = &subject.model;
        let prompt = subject.ids(&question.prompt)?;
        let (width, vocabulary) = model.unembedding()?.weight.dims2()?;
        let lens = LogitLens::of(model, &prompt)?;
        let attribution = Attribution::of(model, &prompt, question)?;
        let patching = match &question.corrupted {
            Some(corrupted) => Some(Patching::of(subject, question, corrupted, progress)?),
            None => None,
        };
        Ok(Self {
            model: Model {
                name: subject.name.clone(),
                layers: model.n_layers(),
                heads: model.n_heads(),
                width,
                vocabulary,
                context: model.n_positions(),
            },
            prompt: tokens(subject, &question.prompt),
            answer: token(subject, question.answer),
            wrong: token(subject, question.wrong),
            next: lens::next(subject, &lens, top)?,
            lens: Lens::of(subject, &lens, question, top)?,
            heads: heads::all(subject, &prompt, &attribution)?,
            attribution,
            patching,
            points: points::all(model, &prompt)?,
        })
    }

    /// The heads that matter most for the answer, whether they speak for it or against it.
    pub fn telling_heads(&self) -> Vec<&HeadFindings> {
        let mut heads: Vec<_> = self.heads.iter().collect();
        heads.sort_by(|a, b| b.adds.abs().total_cmp(&a.adds.abs()));
        heads
    }
}

fn token<M>(subject: &Subject<M>, id: u32) -> Token {
    Token { id, text: subject.text(id) }
}

fn tokens<M>(subject: &Subject<M>, ids: &[u32]) -> Vec<Token> {
    ids.iter().map(|id| token(subject, *id)).collect()
}
