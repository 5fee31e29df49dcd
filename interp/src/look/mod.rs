//! A transformer taken apart for one prompt: what it says next, how it gets there layer by layer, which heads are
//! responsible and where they look, and which activations carry the answer.
//!
//! It is what the other tools of this crate find, put together: [`LogitLens`], [direct logit
//! attribution](crate::lens::Attribution), [`HeadScores`](crate::lens::HeadScores), sweeps that patch. The findings
//! are plain data that serde can write.
//!
//! ```
//! use candle_core::Device;
//! use hookpoint::Hooked;
//! use hookpoint_interp::look::{Look, Question};
//! use hookpoint_models::gpt2::Gpt2;
//!
//! let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
//! let tokenizer = model.tokenizer()?;
//! let clean = tokenizer.encode("When Mary and John went to the store, John gave a drink to")?;
//! let corrupted = tokenizer.encode("When Mary and John went to the store, Mary gave a drink to")?;
//!
//! // Why ` Mary`, and not what the corrupted prompt leads to?
//! let question = Question::about(&clean).corrupted(&corrupted).of(&model)?;
//! let found = Look::into(&model).text(|id| tokenizer.token(id).unwrap_or_default()).ask(&question)?;
//! assert_eq!((found.answer.text.as_str(), found.wrong.text.as_str()), (" Mary", " John"));
//! assert_eq!(found.telling_heads().len(), 3 * 4);
//! # Ok::<(), hookpoint::Error>(())
//! ```

mod heads;
mod lens;
mod patching;
mod points;
mod question;

use std::ops::ControlFlow;

use candle_core::{Device, Tensor};
use hookpoint::{Hooked, Result};
use serde::Serialize;

use crate::lens::LogitLens;
use crate::Transformer;

pub use heads::{Attribution, HeadFindings, Part, Scores};
pub use lens::{Guess, Lens};
pub use patching::{HeatMap, Patching};
pub use points::{points, Point};
pub use question::{Question, QuestionBuilder, QuestionError};

/// What was found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Findings {
    /// What was looked into.
    pub model: Model,
    /// What the model was given.
    pub prompt: Vec<Token>,
    /// The token to be explained.
    pub answer: Token,
    /// The token that it is compared with.
    pub wrong: Token,
    /// What it expects next, the most likely first.
    pub next: Vec<Guess>,
    /// What it would have said after each layer.
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

/// A model in numbers.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Model {
    /// As the user knows it.
    pub name: String,
    /// How many blocks there are.
    pub layers: usize,
    /// In each layer.
    pub heads: usize,
    /// The width of the residual stream.
    pub width: usize,
    /// How many tokens there are.
    pub vocabulary: usize,
    /// How many positions a text may have; none where nobody said.
    pub context: Option<usize>,
}

/// A token and how it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Token {
    /// Its number.
    pub id: u32,
    /// With its spaces.
    pub text: String,
}

/// What is called with how many cells of sweeps are done, and how many there are. It may end the look.
type Watch<'a> = dyn FnMut(usize, usize) -> ControlFlow<()> + 'a;

/// How a model is looked into. See the [module](self).
#[must_use = "nothing is looked at until a question is asked"]
pub struct Look<'a, M> {
    model: &'a Hooked<M>,
    name: String,
    context: Option<usize>,
    top: usize,
    text: Box<dyn Fn(u32) -> String + 'a>,
    watch: Box<Watch<'a>>,
}

impl<'a, M: Transformer> Look<'a, M> {
    /// Lists of five tokens, written as numbers.
    pub fn into(model: &'a Hooked<M>) -> Self {
        Self {
            model,
            name: String::new(),
            context: None,
            top: 5,
            text: Box::new(|id| id.to_string()),
            watch: Box::new(|_, _| ControlFlow::Continue(())),
        }
    }

    /// What the findings call the model.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many positions a text may have. Random tokens that show of what kind heads are fit into it.
    pub fn context(mut self, positions: usize) -> Self {
        self.context = Some(positions);
        self
    }

    /// So many tokens are kept of each list of guesses.
    pub fn top(mut self, count: usize) -> Self {
        self.top = count;
        self
    }

    /// How a token is written.
    pub fn text(mut self, text: impl Fn(u32) -> String + 'a) -> Self {
        self.text = Box::new(text);
        self
    }

    /// Is told how many cells of the sweeps are done, of how many; `Break` ends the look with an error.
    pub fn progress(mut self, watch: impl FnMut(usize, usize) -> ControlFlow<()> + 'a) -> Self {
        self.watch = Box::new(watch);
        self
    }

    /// Runs the model, and looks.
    pub fn ask(mut self, question: &Question) -> Result<Findings> {
        let model = self.model;
        let device = device_of(&**model)?;
        let ids = ids(question.prompt(), &device)?;
        let (width, vocabulary) = model.unembedding()?.weight.dims2()?;
        let lens = LogitLens::of(model, &ids)?;
        let attribution = Attribution::of(model, &ids, question)?;
        let patching = match question.corrupted() {
            Some(corrupted) => Some(Patching::of(&mut self, question, corrupted, &device)?),
            None => None,
        };
        let context = self.context.unwrap_or(usize::MAX);
        Ok(Findings {
            model: Model {
                name: self.name.clone(),
                layers: model.n_layers(),
                heads: model.n_heads(),
                width,
                vocabulary,
                context: self.context,
            },
            prompt: self.tokens(question.prompt()),
            answer: self.token(question.answer()),
            wrong: self.token(question.wrong()),
            next: lens::next(&self, &lens)?,
            lens: Lens::of(&self, &lens, question)?,
            heads: heads::all(model, &ids, &attribution, context)?,
            attribution,
            patching,
            points: points(model, &ids)?,
        })
    }

    fn token(&self, id: u32) -> Token {
        Token { id, text: (self.text)(id) }
    }

    fn tokens(&self, ids: &[u32]) -> Vec<Token> {
        ids.iter().map(|id| self.token(*id)).collect()
    }
}

impl Findings {
    /// The heads that matter most for the answer, whether they speak for it or against it.
    pub fn telling_heads(&self) -> Vec<&HeadFindings> {
        let mut heads: Vec<_> = self.heads.iter().collect();
        heads.sort_by(|a, b| b.adds.abs().total_cmp(&a.adds.abs()));
        heads
    }
}

/// Where a model computes: its final norm is there.
fn device_of(model: &impl Transformer) -> Result<Device> {
    Ok(model.final_norm()?.weight().device().clone())
}

/// `[1, pos]`.
fn ids(tokens: &[u32], device: &Device) -> Result<Tensor> {
    Ok(Tensor::new(tokens, device)?.unsqueeze(0)?)
}
