//! What the model says, and would have said after each layer.

use hookpoint::Result;
use serde::Serialize;

use super::{Look, Question, Token};
use crate::lens::LogitLens;
use crate::Transformer;

/// A token that may come next.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Guess {
    /// The token.
    #[serde(flatten)]
    pub token: Token,
    /// From 0 to 1.
    pub probability: f32,
}

/// The logit lens.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lens {
    /// `0_pre` is the residual stream before the first layer, `final_post` that behind the last.
    pub stages: Vec<String>,
    /// `[stage][position]`: the most likely tokens, the likeliest first.
    pub top: Vec<Vec<Vec<Guess>>>,
    /// By stage: how many tokens are more likely than the answer, at the last position.
    pub answer_ranks: Vec<usize>,
}

impl Lens {
    pub(super) fn of<M: Transformer>(
        look: &Look<'_, M>,
        lens: &LogitLens,
        question: &Question,
    ) -> Result<Self> {
        let stages: Vec<String> = lens.labels().into_iter().map(String::from).collect();
        let at_stage = |stage: &String| -> Result<Vec<Vec<Guess>>> {
            (0..question.prompt().len()).map(|pos| guesses(look, lens, stage, pos as isize)).collect()
        };
        let top = stages.iter().map(at_stage).collect::<Result<_>>()?;
        Ok(Self { stages, top, answer_ranks: lens.ranks(question.answer(), 0, -1)? })
    }
}

/// What the model itself says after the prompt.
pub(super) fn next<M: Transformer>(look: &Look<'_, M>, lens: &LogitLens) -> Result<Vec<Guess>> {
    guesses(look, lens, "final_post", -1)
}

fn guesses<M: Transformer>(
    look: &Look<'_, M>,
    lens: &LogitLens,
    stage: &str,
    pos: isize,
) -> Result<Vec<Guess>> {
    let best = lens.top(stage, 0, pos, look.top)?.into_iter();
    Ok(best.map(|(id, probability)| Guess { token: look.token(id), probability }).collect())
}
