//! What features stand for: where they are active, and what they make the model say.

use anyhow::{Context, Result};
use candle_core::{DType, Tensor};
use hookpoint::Hooked;
use hookpoint_interp::{Norm, Transformer};
use hookpoint_models::gpt2::Gpt2;
use hookpoint_sae::{next_token_loss, LossRecovered, Metrics, Sae};
use serde::Serialize;

use crate::args::Args;
use crate::texts::{self, LENGTH};

/// With how many texts losses are measured.
const LOSSES: usize = 32;
/// How many places are shown for a feature, and how many tokens on either side.
const PLACES: usize = 8;
const BEFORE: usize = 12;
const AFTER: usize = 4;
/// How many tokens it promotes.
const TOKENS: usize = 8;
/// How many features the page has.
const FEATURES: usize = 200;

#[derive(Debug, Serialize)]
pub struct Findings {
    pub model: String,
    pub point: String,
    pub architecture: String,
    pub width: usize,
    pub features_in_all: usize,
    pub tokens: u64,
    pub l0: f64,
    pub explained_variance: f64,
    pub dead: usize,
    pub density_histogram: Vec<usize>,
    pub loss: Losses,
    /// Those that explain most, first.
    pub features: Vec<Feature>,
}

#[derive(Debug, Serialize)]
pub struct Losses {
    pub clean: f64,
    pub spliced: f64,
    pub zeroed: f64,
    pub averaged: f64,
    pub recovered_from_zero: f64,
    pub recovered_from_mean: f64,
}

#[derive(Debug, Serialize)]
pub struct Feature {
    pub number: usize,
    /// In which part of all tokens it is active.
    pub density: f64,
    pub largest: f32,
    /// Where it is most active, each with what is around it.
    pub places: Vec<Place>,
    /// Tokens that it makes more likely, and less, with what it adds to their logits where it is 1.
    pub promotes: Vec<(String, f32)>,
    pub demotes: Vec<(String, f32)>,
    /// Words that excite it, with the mean of its activation there.
    pub words: Vec<(String, f32)>,
}

#[derive(Debug, Serialize)]
pub struct Place {
    /// Tokens with the feature's activation.
    pub tokens: Vec<(String, f32)>,
    /// Which of them it is about.
    pub at: usize,
}

/// How wide activations are at a point.
pub fn width_at(model: &Hooked<Gpt2>, point: &str) -> Result<usize> {
    let ids = texts::rows(model.tokenizer()?, 0, 0, 1)?;
    let cache = model.plan().cache(point)?.collect(|m| m.forward(&ids))?;
    let mut names = cache.keys();
    let (name, others) = (names.next(), names.count());
    let name = name.filter(|_| others == 0).with_context(|| format!("`{point}` has to be one point"))?;
    let dims = cache[name].dims();
    anyhow::ensure!(dims.len() == 3, "`{name}` is {dims:?} and not [batch, pos, features]");
    Ok(dims[2])
}

impl Findings {
    pub fn of(model: &Hooked<Gpt2>, sae: Sae, args: &Args) -> Result<Self> {
        let tokenizer = model.tokenizer()?;
        // Texts that were not trained on: their numbers come from the other end.
        let ids = texts::rows(tokenizer, args.seed, u64::MAX, args.texts)?;
        let cache = model.plan().cache(args.point.as_str())?.collect(|m| m.forward(&ids))?;
        let activations = cache.iter().next().context("the point was not reached")?.1.clone();
        let mut metrics = Metrics::new(&sae);
        metrics.add(&sae, &activations)?;
        // [tokens, features]
        let acts = sae.encode(&activations)?.reshape(((), sae.config().d_sae))?.to_dtype(DType::F32)?;
        let said: Vec<String> = ids
            .flatten_all()?
            .to_vec1::<u32>()?
            .iter()
            .map(|id| tokenizer.token(*id).unwrap_or_default())
            .collect();
        let effects = effects(model, &sae)?;
        let columns = acts.t()?.contiguous()?.to_vec2::<f32>()?;
        let densities: Vec<f64> = metrics.densities().collect();
        // What a feature adds, squared, over all tokens: its part in what is explained.
        let mut order: Vec<(usize, f64)> = columns
            .iter()
            .map(|column| column.iter().map(|x| f64::from(*x).powi(2)).sum())
            .enumerate()
            .filter(|(_, part)| *part > 0.)
            .collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let vocabulary: Vec<String> =
            (0..tokenizer.len()).map(|id| tokenizer.token(id as u32).unwrap_or_default()).collect();
        let features = order.iter().take(FEATURES.max(args.top)).map(|(number, _)| {
            feature(*number, densities[*number], &columns[*number], &said, &effects[*number], &vocabulary)
        });
        let features = features.collect();
        let (l0, explained_variance, dead) =
            (metrics.l0(), metrics.explained_variance(), metrics.dead().count());
        let (density_histogram, tokens) = (metrics.density_histogram(4), metrics.rows());
        let sae = Hooked::new(sae);
        Ok(Self {
            model: "the embedded GPT-2".to_string(),
            point: args.point.clone(),
            architecture: sae.config().architecture.name().to_string(),
            width: sae.config().d_in,
            features_in_all: sae.config().d_sae,
            tokens,
            l0,
            explained_variance,
            dead,
            density_histogram,
            loss: losses(model, &sae, args, &ids)?,
            features,
        })
    }
}

fn losses(model: &Hooked<Gpt2>, sae: &Hooked<Sae>, args: &Args, ids: &Tensor) -> Result<Losses> {
    let inputs = [ids.narrow(0, 0, LOSSES.min(ids.dim(0)?))?];
    let losses = LossRecovered::measure(model, &args.point, sae, &inputs, |m, ids| {
        next_token_loss(&m.forward(ids)?, ids)
    })?;
    Ok(Losses {
        clean: losses.clean,
        spliced: losses.spliced,
        zeroed: losses.zeroed,
        averaged: losses.averaged,
        recovered_from_zero: losses.from_zero(),
        recovered_from_mean: losses.from_mean(),
    })
}

/// What each feature adds to the logits directly: its direction through the unembedding, `[d_sae][vocab]`, less what
/// it adds to all of them. The final norm's weights count, its centring and scaling do not.
fn effects(model: &Hooked<Gpt2>, sae: &Sae) -> Result<Vec<Vec<f32>>> {
    let directions = sae.weights().w_dec;
    let output = model.unembedding()?;
    let unembedding = output.weight.to_dtype(DType::F32)?;
    let (Norm::Layer { weight, .. } | Norm::Rms { weight, .. }) = model.final_norm()? else {
        anyhow::bail!("this norm is not known here")
    };
    let directions = directions.broadcast_mul(&weight.to_dtype(DType::F32)?)?;
    let effects = directions.matmul(&unembedding.contiguous()?)?;
    Ok(effects.broadcast_sub(&effects.mean_keepdim(1)?)?.to_vec2::<f32>()?)
}

fn feature(
    number: usize,
    density: f64,
    column: &[f32],
    said: &[String],
    effects: &[f32],
    vocabulary: &[String],
) -> Feature {
    let mut order: Vec<usize> = (0..column.len()).filter(|place| column[*place] > 0.).collect();
    order.sort_by(|a, b| column[*b].total_cmp(&column[*a]).then(a.cmp(b)));
    let mut places: Vec<Place> = Vec::new();
    for at in order.iter().take(400) {
        // Texts come from frames, so the same words come often: each once.
        let place = around(*at, column, said);
        let words = |place: &Place| {
            place.tokens[..=place.at].iter().map(|(text, _)| text.clone()).collect::<String>()
        };
        if places.len() < PLACES && places.iter().all(|other| words(other) != words(&place)) {
            places.push(place);
        }
    }
    let mut by_effect: Vec<usize> = (0..effects.len()).collect();
    by_effect.sort_by(|a, b| effects[*b].total_cmp(&effects[*a]).then(a.cmp(b)));
    let token = |id: &usize| (vocabulary[*id].clone(), effects[*id]);
    Feature {
        number,
        density,
        largest: order.first().map_or(0., |at| column[*at]),
        places,
        promotes: by_effect.iter().take(TOKENS).map(token).collect(),
        demotes: by_effect.iter().rev().take(TOKENS).map(token).collect(),
        words: exciting(column, said),
    }
}

/// A token of a text, and what is around it in the same text.
fn around(at: usize, column: &[f32], said: &[String]) -> Place {
    let row = at / LENGTH * LENGTH;
    let start = at.saturating_sub(BEFORE).max(row);
    let end = (at + AFTER + 1).min(row + LENGTH).min(said.len());
    let tokens = (start..end).map(|place| (said[place].clone(), column[place])).collect();
    Place { tokens, at: at - start }
}

/// The words at which a feature is most active on average, each counted as often as it is said.
fn exciting(column: &[f32], said: &[String]) -> Vec<(String, f32)> {
    let mut sums: std::collections::BTreeMap<&str, (f32, f32)> = Default::default();
    for (x, word) in column.iter().zip(said) {
        let (sum, count) = sums.entry(word).or_default();
        *sum += x;
        *count += 1.;
    }
    let mut means: Vec<(String, f32)> =
        sums.into_iter().map(|(word, (sum, count))| (word.to_string(), sum / count)).collect();
    means.retain(|(_, mean)| *mean > 0.);
    means.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    means.truncate(TOKENS);
    means
}
