//! What heads add to the answer, where they look, and of what kind they are.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use hookpoint::Hooked;
use hookpoint_examples::Subject;
use hookpoint_interp::lens::{Attribution as DirectAttribution, By, Detection, Detector, HeadScores, Target};
use hookpoint_interp::{Head, Site, Transformer};
use hookpoint_models::init::Init;
use hookpoint_models::language::LanguageModel;
use serde::Serialize;

use crate::question::Question;

/// Direct logit attribution at the last position.
#[derive(Clone, Debug, Serialize)]
pub struct Attribution {
    /// The logit of the answer less that of the wrong token.
    pub difference: f32,
    /// The heads `L0H0`, then each layer's `0_mlp_out`, embeddings and biases. They add up to `difference`.
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Part {
    pub label: String,
    pub adds: f32,
}

#[derive(Clone, Debug, Serialize)]
pub struct HeadFindings {
    pub layer: usize,
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
    pub fn of<M: Transformer>(model: &Hooked<M>, ids: &Tensor, question: &Question) -> Result<Self> {
        let target = Target::token(question.answer).against(question.wrong);
        let at_last = DirectAttribution::of(model, ids, &target, By::Head)?.at(0, -1)?;
        let parts = at_last.parts().map(|(label, adds)| Part { label: label.to_string(), adds });
        Ok(Self { difference: at_last.logit(), parts: parts.collect() })
    }

    fn of_head(&self, head: Head) -> f32 {
        let label = head.to_string();
        self.parts.iter().find(|part| part.label == label).map_or(0., |part| part.adds)
    }
}

pub fn all<M: LanguageModel + Transformer>(
    subject: &Subject<M>,
    ids: &Tensor,
    attribution: &Attribution,
) -> Result<Vec<HeadFindings>> {
    let model = &subject.model;
    let points: Vec<String> = (0..model.n_layers()).map(|layer| model.point(Site::Pattern, layer)).collect();
    let cache = model.plan().cache(points.as_slice())?.collect(|m| m.logits(ids))?;
    let kinds = Kinds::of(subject)?;
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
    fn of<M: LanguageModel + Transformer>(subject: &Subject<M>) -> Result<Option<Self>> {
        let model = &subject.model;
        let unembedding = model.unembedding()?.weight;
        let half = (model.n_positions() / 2).min(HALF);
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
    let mut random = Init::new(0);
    let mut token = || random.below(vocabulary) as u32;
    (0..ROWS).flat_map(|_| (0..half).map(|_| token()).collect::<Vec<_>>().repeat(2)).collect()
}
