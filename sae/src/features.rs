//! What features stand for: where they are strongest, and what they make a model say.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use hookpoint::{ErrorKind, Result};
use hookpoint_interp::Transformer;

use crate::model::Sae;

/// The places of a corpus where each feature is strongest. It grows with the features, and not with the corpus.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint_sae::{Architecture, Config, Sae, Strongest};
///
/// let sae = Sae::random(Config::new(4, 8, Architecture::Relu), 0, &Device::Cpu)?;
/// let mut strongest = Strongest::new(&sae, 2);
/// for text in 0..10 {
///     // [pos, d_in]
///     let activations = Tensor::rand(-1f32, 1., (3, 4), &Device::Cpu)?;
///     strongest.add(&sae, &[text, text + 1, text + 2], &activations)?;
/// }
/// let feature = strongest.ranked()[0];
/// let places = strongest.places(feature);
/// assert!(places.len() <= 2 && places[0].activation >= places[1].activation);
/// assert_eq!(places[0].tokens.len(), 3);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Strongest {
    keep: usize,
    places: Vec<Vec<Place>>,
    /// What each feature adds, squared, over all rows.
    energy: Vec<f64>,
    active: Vec<u64>,
    rows: u64,
}

/// A place in a text where a feature is active.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Place {
    /// How much.
    pub activation: f32,
    /// The tokens of the text.
    pub tokens: Arc<[u32]>,
    /// Which of them it is.
    pub at: usize,
}

impl Strongest {
    /// Nothing yet; of each feature so many places will be kept, of each text the strongest.
    pub fn new(sae: &Sae, keep: usize) -> Self {
        let features = sae.config().d_sae;
        Self {
            keep,
            places: vec![Vec::new(); features],
            energy: vec![0.; features],
            active: vec![0; features],
            rows: 0,
        }
    }

    /// Looks at one text: its tokens, and the activations `[.., d_in]` of as many positions.
    pub fn add(&mut self, sae: &Sae, tokens: &[u32], activations: &Tensor) -> Result<()> {
        let features = sae.config().d_sae;
        let x = activations.to_device(sae.device())?.to_dtype(sae.dtype())?;
        let acts = sae.encode(&x)?.to_dtype(DType::F32)?.reshape(((), features))?.to_device(&Device::Cpu)?;
        let rows = acts.dim(0)?;
        if rows != tokens.len() {
            return Err(ErrorKind::Shape {
                point: "the activations of a text".to_string(),
                what: "its tokens".to_string(),
                expected: activations.dims().to_vec(),
                found: vec![tokens.len()],
                remedy: "give activations of every position of one text".to_string(),
            }
            .into());
        }
        let acts = acts.to_vec2::<f32>()?;
        self.rows += rows as u64;
        let text: Arc<[u32]> = tokens.into();
        for feature in 0..features {
            let mut best: Option<(f32, usize)> = None;
            for (at, row) in acts.iter().enumerate() {
                let activation = row.get(feature).copied().unwrap_or(0.);
                if activation > 0. {
                    self.active[feature] += 1;
                    self.energy[feature] += f64::from(activation).powi(2);
                    if best.is_none_or(|(most, _)| activation > most) {
                        best = Some((activation, at));
                    }
                }
            }
            if let Some((activation, at)) = best {
                self.keep_place(feature, Place { activation, tokens: text.clone(), at });
            }
        }
        Ok(())
    }

    /// Keeps a place if it is one of the strongest; the same words only once.
    fn keep_place(&mut self, feature: usize, place: Place) {
        let Some(places) = self.places.get_mut(feature) else { return };
        let words = |place: &Place| place.tokens.get(..=place.at).map(<[u32]>::to_vec);
        if places.len() == self.keep && places.last().is_some_and(|last| last.activation >= place.activation)
            || places.iter().any(|other| words(other) == words(&place))
        {
            return;
        }
        let behind = places.partition_point(|other| other.activation >= place.activation);
        places.insert(behind, place);
        places.truncate(self.keep);
    }

    /// Where a feature is strongest, the strongest first.
    pub fn places(&self, feature: usize) -> &[Place] {
        self.places.get(feature).map_or(&[], Vec::as_slice)
    }

    /// The share of all positions at which a feature is active.
    pub fn density(&self, feature: usize) -> f64 {
        self.active.get(feature).map_or(0., |active| *active as f64 / self.rows.max(1) as f64)
    }

    /// The features that are active at all, those that add most first: by the sum of the squares of their activations.
    pub fn ranked(&self) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.energy.len()).filter(|feature| self.active[*feature] > 0).collect();
        order.sort_by(|a, b| self.energy[*b].total_cmp(&self.energy[*a]).then(a.cmp(b)));
        order
    }

    /// How many positions were looked at.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

/// What a direction in the residual stream makes a transformer say: for each token what it adds to the logit, less the
/// mean over all, with the scale of the final norm left out. `[vocab]`, in f32.
///
/// ```
/// use candle_core::Device;
/// use hookpoint_models::gpt2::Gpt2;
/// use hookpoint_sae::{logit_effects, Architecture, Config, Sae};
///
/// let model = Gpt2::embedded(&Device::Cpu)?;
/// let sae = Sae::random(Config::new(model.config().n_embd, 8, Architecture::Relu), 0, &Device::Cpu)?;
/// let effects = logit_effects(&model, &sae.direction(3)?)?;
/// assert_eq!(effects.len(), model.config().vocab_size);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn logit_effects(model: &impl Transformer, direction: &Tensor) -> Result<Vec<f32>> {
    let (norm, unembedding) = (model.final_norm()?, model.unembedding()?.weight);
    let weight = norm.weight().to_dtype(DType::F32)?;
    let direction = direction.to_dtype(DType::F32)?.to_device(weight.device())?;
    if direction.dims() != weight.dims() {
        return Err(ErrorKind::Shape {
            point: "the residual stream".to_string(),
            what: "the direction".to_string(),
            expected: weight.dims().to_vec(),
            found: direction.dims().to_vec(),
            remedy: "give a direction of what is added to the residual stream".to_string(),
        }
        .into());
    }
    let effects =
        (direction * weight)?.unsqueeze(0)?.matmul(&unembedding.to_dtype(DType::F32)?.contiguous()?)?;
    Ok(effects.broadcast_sub(&effects.mean_keepdim(1)?)?.squeeze(0)?.to_vec1::<f32>()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::{Architecture, Config};

    #[test]
    fn the_strongest_places_of_all_texts_are_kept() {
        let sae = Sae::random(Config::new(4, 16, Architecture::Relu), 0, &Device::Cpu).unwrap();
        let mut strongest = Strongest::new(&sae, 3);
        let mut all: Vec<Vec<f32>> = vec![Vec::new(); 16];
        for text in 0..20u32 {
            let numbers: Vec<f32> = (0..20).map(|at| ((text * 20 + at) as f32 * 0.7).sin()).collect();
            let x = Tensor::from_vec(numbers, (1, 5, 4), &Device::Cpu).unwrap();
            strongest.add(&sae, &[text, 1, 2, 3, 4], &x).unwrap();
            let acts = sae.encode(&x).unwrap().get(0).unwrap().to_vec2::<f32>().unwrap();
            for (feature, all) in all.iter_mut().enumerate() {
                let best = acts.iter().map(|row| row[feature]).fold(0., f32::max);
                all.extend((best > 0.).then_some(best));
            }
        }
        for (feature, mut expected) in all.into_iter().enumerate() {
            expected.sort_by(|a, b| b.total_cmp(a));
            expected.truncate(3);
            let found: Vec<f32> = strongest.places(feature).iter().map(|place| place.activation).collect();
            assert_eq!(found, expected, "feature {feature}");
        }
        assert_eq!(strongest.rows(), 100);
        let x = Tensor::zeros((2, 4), DType::F32, &Device::Cpu).unwrap();
        assert!(strongest.add(&sae, &[1, 2, 3], &x).unwrap_err().to_string().contains("its tokens"));
    }
}
