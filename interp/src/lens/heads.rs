//! Which heads are of some kind.

use std::fmt;

use candle_core::{DType, Device, Tensor};
use hookpoint::{Error, ErrorKind, Hooked, Result};

use super::detector::{Detector, Measure};
use crate::{Head, Site, Transformer};

/// What is looked for, and what is left out of account.
///
/// ```
/// use hookpoint_interp::lens::{Detection, Detector};
///
/// // Heads that have nothing to do often look at the first token, and at their own.
/// let detection = Detection::new(Detector::Induction).without_first().without_current();
/// # let _ = detection;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Detection {
    detector: Detector,
    measure: Measure,
    without_first: bool,
    without_current: bool,
    without_idle: bool,
}

impl Detection {
    /// Counts all attention.
    pub fn new(detector: Detector) -> Self {
        Self {
            detector,
            measure: Measure::default(),
            without_first: false,
            without_current: false,
            without_idle: false,
        }
    }

    /// Compares in another way.
    pub fn measure(mut self, measure: Measure) -> Self {
        self.measure = measure;
        self
    }

    /// Leaves out attention to the first position. TransformerLens's `exclude_bos`.
    pub fn without_first(mut self) -> Self {
        self.without_first = true;
        self
    }

    /// Leaves out attention of positions to themselves. TransformerLens's `exclude_current_token`.
    pub fn without_current(mut self) -> Self {
        self.without_current = true;
        self
    }

    /// Leaves out positions that have nothing to look at: for [`Detector::Induction`], tokens that occur for the
    /// first time. So a head that does nothing else has a score of 1, however little of the sequence repeats.
    pub fn without_idle(mut self) -> Self {
        self.without_idle = true;
        self
    }

    fn counts(&self, query: usize, key: usize) -> bool {
        !(self.without_first && key == 0 || self.without_current && key == query)
    }

    /// `attention` and `wanted` are `[query][key]`.
    fn score(&self, attention: &[Vec<f32>], wanted: &[Vec<f32>]) -> Option<f64> {
        let (mut hit, mut all, mut apart, mut rows) = (0f64, 0f64, 0f64, 0f64);
        for (query, (attention, wanted)) in attention.iter().zip(wanted).enumerate() {
            if self.without_idle && wanted.iter().all(|number| *number == 0.) {
                continue;
            }
            rows += 1.;
            for (key, (attention, wanted)) in attention.iter().zip(wanted).enumerate() {
                if self.counts(query, key) {
                    hit += f64::from(attention * wanted);
                    all += f64::from(*attention);
                    apart += f64::from((attention - wanted).abs());
                }
            }
        }
        match self.measure {
            Measure::Share => (all > 0.).then(|| hit / all),
            Measure::Difference => (rows > 0.).then(|| 1. - apart / rows),
        }
    }
}

impl From<&Detector> for Detection {
    fn from(detector: &Detector) -> Self {
        Self::new(detector.clone())
    }
}

impl From<Detector> for Detection {
    fn from(detector: Detector) -> Self {
        Self::new(detector)
    }
}

impl From<&Detection> for Detection {
    fn from(detection: &Detection) -> Self {
        detection.clone()
    }
}

/// How much each head is of some kind, as TransformerLens's `detect_head` says it. Shown as a table.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::prelude::*;
/// use hookpoint_models::gpt2::{Config, Gpt2};
/// use hookpoint_interp::lens::{Detector, HeadScores};
/// use hookpoint_interp::Head;
///
/// let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
/// let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
/// let ids = Tensor::new(&[[1u32, 2, 3, 1, 2, 3]], &Device::Cpu)?;
///
/// let scores = HeadScores::of(&model, &ids, &Detector::PreviousToken)?;
/// let score = scores.get(Head { layer: 1, head: 0 })?;
/// assert!(score > 0. && score < 1.);
/// println!("{scores}");
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HeadScores {
    /// By layer and head.
    scores: Vec<Vec<f32>>,
}

impl HeadScores {
    /// Runs the model with `ids` of `[batch, pos]`, and gives for every head the mean over the rows.
    pub fn of<M: Transformer>(
        model: &Hooked<M>,
        ids: &Tensor,
        detection: impl Into<Detection>,
    ) -> Result<Self> {
        let detection = detection.into();
        let patterns: Vec<String> =
            (0..model.n_layers()).map(|layer| model.point(Site::Pattern, layer)).collect();
        if patterns.is_empty() {
            let (what, index) = ("layer".to_string(), "0".to_string());
            return Err(ErrorKind::NoSuchNumber { what, index, count: 0 }.into());
        }
        let cache = model.plan().cache(patterns.as_slice())?.collect(|m| m.logits(ids))?;
        let rows: Vec<Vec<u32>> = ids.to_device(&Device::Cpu)?.to_dtype(DType::U32)?.to_vec2()?;
        let in_row = |row: usize, error: Error| Error::from(ErrorKind::InRow { row, error: Box::new(error) });
        let wanted = rows
            .iter()
            .enumerate()
            .map(|(row, tokens)| detection.detector.pattern(tokens).map_err(|error| in_row(row, error)));
        let wanted = wanted.collect::<Result<Vec<_>>>()?;
        let mut scores = Vec::with_capacity(patterns.len());
        for point in &patterns {
            // [batch, head, query, key]
            let attention = cache.try_get(point)?.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
            let mut of_layer = vec![0f64; attention.dim(1)?];
            for (row, wanted) in wanted.iter().enumerate() {
                let heads: Vec<Vec<Vec<f32>>> = attention.get(row)?.to_vec3()?;
                for (sum, head) in of_layer.iter_mut().zip(&heads) {
                    *sum += detection.score(head, wanted).ok_or_else(|| {
                        in_row(
                            row,
                            ErrorKind::NothingToDetect {
                                reason: "all of the attention is left out of account".to_string(),
                                remedy: "give a longer sequence".to_string(),
                            }
                            .into(),
                        )
                    })?;
                }
            }
            scores.push(of_layer.into_iter().map(|sum| (sum / rows.len() as f64) as f32).collect());
        }
        Ok(Self { scores })
    }

    /// The score of one head.
    pub fn get(&self, head: Head) -> Result<f32> {
        let score = self.scores.get(head.layer).and_then(|layer| layer.get(head.head));
        score.copied().ok_or_else(|| {
            let (layers, heads) = (self.scores.len(), self.scores.first().map_or(0, Vec::len));
            ErrorKind::NoSuchHead { head: head.to_string(), layers, heads }.into()
        })
    }

    /// All heads, layer by layer.
    pub fn iter(&self) -> impl Iterator<Item = (Head, f32)> + '_ {
        self.scores.iter().enumerate().flat_map(|(layer, scores)| {
            scores.iter().enumerate().map(move |(head, score)| (Head { layer, head }, *score))
        })
    }

    /// All heads, the highest scores first.
    pub fn ranked(&self) -> Vec<(Head, f32)> {
        let mut ranked: Vec<_> = self.iter().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked
    }

    /// The scores as `[layer, head]`, in f32.
    pub fn to_tensor(&self, device: &Device) -> Result<Tensor> {
        Ok(Tensor::new(self.scores.clone(), device)?)
    }
}

impl fmt::Display for HeadScores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = self.scores.first().map_or(0, Vec::len);
        write!(f, "    ")?;
        (0..heads).try_for_each(|head| write!(f, "  {:>5}", format!("H{head}")))?;
        for (layer, scores) in self.scores.iter().enumerate() {
            write!(f, "\n{:<4}", format!("L{layer}"))?;
            scores.iter().try_for_each(|score| write!(f, "  {score:>5.2}"))?;
        }
        Ok(())
    }
}
