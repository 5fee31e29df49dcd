//! What the model says, and would have said after each layer.

use anyhow::Result;
use hookpoint_examples::Subject;
use hookpoint_interp::lens::LogitLens;
use serde::Serialize;

use super::{token, Token};
use crate::question::Question;

/// A token that may come next.
#[derive(Clone, Debug, Serialize)]
pub struct Guess {
    #[serde(flatten)]
    pub token: Token,
    /// From 0 to 1.
    pub probability: f32,
}

/// The logit lens.
#[derive(Clone, Debug, Serialize)]
pub struct Lens {
    /// `0_pre` is the residual stream before the first layer, `final_post` that behind the last.
    pub stages: Vec<String>,
    /// `[stage][position]`: the most likely tokens, the likeliest first.
    pub top: Vec<Vec<Vec<Guess>>>,
    /// By stage: how many tokens are more likely than the answer, at the last position.
    pub answer_ranks: Vec<usize>,
}

impl Lens {
    pub fn of<M>(subject: &Subject<M>, lens: &LogitLens, question: &Question, top: usize) -> Result<Self> {
        let stages: Vec<String> = lens.labels().into_iter().map(String::from).collect();
        let at_stage = |stage: &String| -> Result<Vec<Vec<Guess>>> {
            (0..question.prompt.len()).map(|pos| guesses(subject, lens, stage, pos as isize, top)).collect()
        };
        let top = stages.iter().map(at_stage).collect::<Result<_>>()?;
        Ok(Self { stages, top, answer_ranks: lens.ranks(question.answer, 0, -1)? })
    }
}

/// What the model itself says after the prompt.
pub fn next<M>(subject: &Subject<M>, lens: &LogitLens, top: usize) -> Result<Vec<Guess>> {
    guesses(subject, lens, "final_post", -1, top)
}

fn guesses<M>(
    subject: &Subject<M>,
    lens: &LogitLens,
    stage: &str,
    pos: isize,
    top: usize,
) -> Result<Vec<Guess>> {
    let best = lens.top(stage, 0, pos, top)?.into_iter();
    Ok(best.map(|(id, probability)| Guess { token: token(subject, id), probability }).collect())
}
