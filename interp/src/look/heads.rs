//! What heads add to the answer, where they look, and of what kind they are.

use candle_core::{DType, Device, Tensor};
use hookpoint::{Hooked, Result};
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::Question;
use crate::lens::{Attribution as DirectAttribution, By, Detection, Detector, HeadScores, Target};
use crate::{Head, Site, Transformer};

/// Direct logit attribution at the last position.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attribution {
    /// The logit of the answer less that of the wrong token.
    pub difference: f32,
    /// The heads `L0H0`, then each layer's `0_mlp_out`, embeddings and biases. They add up to `difference`.
    pub parts: Vec<Part>,
}

/// One part of a model, and what it adds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    /// What it is called.
    pub label: String,
    /// To the difference of logits.
    pub adds: f32,
}

/// What was found out about one head.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeadFindings {
    /// Its layer, from 0.
    pub layer: usize,
    /// Its number in that layer, from 0.
    pub head: usize,
    /// `L0H0`.
    pub label: String,
    /// To the logit of the answer less that of the wrong token, at the last position.
    pub adds: f32,
    /// None where the model's context is too short to find out.
    pub scores: Option<Scores>,
    /// `[query][key]`: how much of each token's attention goes where.
    pub pattern: Vec<Vec<f32>>,
}

/// The share of a head's attention, from 0 to 1, that goes where a head of each kind would look, where there is
/// such a place. Measured on random tokens that repeat, so it does not depend on the prompt.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Scores {
    /// At the token before.
    pub previous: f32,
    /// At an earlier copy of the same token.
    pub duplicate: f32,
    /// At what followed an earlier copy.
    pub induction: f32,
}

impl Scores {
    /// What a head is called that gives one kind most of its attention, and how much that is.
    pub fn kind(&self) -> Option<(&'static str, f32)> {
        let kinds = [
            ("induction", self.induction),
            ("previous token", self.previous),
            ("duplicate token", self.duplicate),
        ];
        kinds.into_iter().find(|(_, score)| *score > 0.5)
    }
}

impl Attribution {
    pub(super) fn of<M: Transformer>(model: &Hooked<M>, ids: &Tensor, question: &Question) -> Result<Self> {
        let target = Target::token(question.answer()).against(question.wrong());
        let at_last = DirectAttribution::of(model, ids, &target, By::Head)?.at(0, -1)?;
        let parts = at_last.parts().map(|(label, adds)| Part { label: label.to_string(), adds });
        Ok(Self { difference: at_last.logit(), parts: parts.collect() })
    }

    fn of_head(&self, head: Head) -> f32 {
        let label = head.to_string();
        self.parts.iter().find(|part| part.label == label).map_or(0., |part| part.adds)
    }
}

/// All heads; `context` is how many positions the model has.
pub(super) fn all<M: Transformer>(
    model: &Hooked<M>,
    ids: &Tensor,
    attribution: &Attribution,
    context: usize,
) -> Result<Vec<HeadFindings>> {
    let points: Vec<String> = (0..model.n_layers()).map(|layer| model.point(Site::Pattern, layer)).collect();
    let cache = model.plan().cache(points.as_slice())?.collect(|m| m.logits(ids))?;
    let kinds = Kinds::of(model, context)?;
    let mut found = Vec::new();
    for (layer, point) in points.iter().enumerate() {
        // [batch, head, query, key]
        let patterns = cache.try_get(point)?.get(0)?.to_dtype(DType::F32)?.to_device(&Device::Cpu)?;
        for (head, pattern) in patterns.to_vec3()?.into_iter().enumerate() {
            let head = Head { layer, head };
            found.push(HeadFindings {
                layer,
                head: head.head,
                label: head.to_string(),
                adds: attribution.of_head(head),
                scores: kinds.as_ref().map(|kinds| kinds.scores(head)).transpose()?,
                pattern,
            });
        }
    }
    Ok(found)
}

/// What the detectors say of all heads.
struct Kinds {
    previous: HeadScores,
    duplicate: HeadScores,
    induction: HeadScores,
}

impl Kinds {
    fn of<M: Transformer>(model: &Hooked<M>, context: usize) -> Result<Option<Self>> {
        let unembedding = model.unembedding()?.weight;
        let half = (context / 2).min(HALF);
        let tokens = repeated(half, unembedding.dim(1)?);
        if half < 2 {
            return Ok(None);
        }
        let ids = Tensor::from_vec(tokens, (ROWS, 2 * half), unembedding.device())?;
        let score = |detector| HeadScores::of(model, &ids, Detection::new(detector).without_idle());
        Ok(Some(Self {
            previous: score(Detector::PreviousToken)?,
            duplicate: score(Detector::DuplicateToken)?,
            induction: score(Detector::Induction)?,
        }))
    }

    fn scores(&self, head: Head) -> Result<Scores> {
        Ok(Scores {
            previous: self.previous.get(head)?,
            duplicate: self.duplicate.get(head)?,
            induction: self.induction.get(head)?,
        })
    }
}

/// How many sequences heads are tried on, and how long the part is that they repeat.
const ROWS: usize = 2;
const HALF: usize = 24;

/// Random tokens, each row's second half as its first, always the same ones.
fn repeated(half: usize, vocabulary: usize) -> Vec<u32> {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let mut token = || (random.next_u64() % vocabulary.max(1) as u64) as u32;
    (0..ROWS).flat_map(|_| (0..half).map(|_| token()).collect::<Vec<_>>().repeat(2)).collect()
}
