//! A head taken away, in one of three ways.

use anyhow::Result;
use candle_core::Tensor;
use clap::ValueEnum;
use hookpoint::{
    track::{Over, Tracker},
    ActivationCache, Hooked,
};
use hookpoint_examples::Progress;
use hookpoint_interp::{ablate, Head, Site, Transformer};

use crate::questions::Questions;

/// What stands in the place of what a head found.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nothing
    Zero,
    /// What it finds on average, over all prompts and positions
    Mean,
    /// What it found in another prompt
    Resample,
}

impl How {
    pub fn title(self) -> &'static str {
        match self {
            Self::Zero => "zero",
            Self::Mean => "mean",
            Self::Resample => "resample",
        }
    }
}

/// What is lost without each head, as a share of what the whole model has.
#[derive(Debug)]
pub struct Losses {
    pub how: How,
    /// `[layer][head]`
    lost: Vec<Vec<f64>>,
}

impl Losses {
    pub fn of<M: Transformer>(
        model: &Hooked<M>,
        questions: &Questions,
        how: How,
        whole: f64,
        progress: &Progress,
    ) -> Result<Self> {
        let means = means(model, questions)?;
        let donors = donors(model, questions)?;
        let without = |head: Head| -> Result<f64> {
            progress.run();
            let point = model.head_point(head)?;
            let mut sum = 0.;
            for (question, donor) in questions.iter().zip(&donors) {
                let plan = match how {
                    How::Zero => model.plan().hook(&*point, ablate::zero())?,
                    How::Mean => model.plan().hook(&*point, ablate::mean(&means))?,
                    How::Resample => model.plan().hook(&*point, ablate::resample(donor))?,
                };
                sum += question.score(&plan.run(|m| m.logits(&question.ids))?.output)?;
            }
            Ok((whole - sum / questions.len() as f64) / whole.abs())
        };
        let layer = |layer| (0..model.n_heads()).map(|head| without(Head { layer, head })).collect();
        Ok(Self { how, lost: (0..model.n_layers()).map(layer).collect::<Result<_>>()? })
    }

    pub fn of_head(&self, head: Head) -> f64 {
        self.lost.get(head.layer).and_then(|layer| layer.get(head.head)).copied().unwrap_or(f64::NAN)
    }

    /// The head that is missed most.
    pub fn most(&self) -> Option<(Head, f64)> {
        let heads = self.lost.iter().enumerate().flat_map(|(layer, lost)| {
            lost.iter().enumerate().map(move |(head, lost)| (Head { layer, head }, *lost))
        });
        heads.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// What each head finds on average: `[d_head]` each.
fn means<M: Transformer>(model: &Hooked<M>, questions: &Questions) -> Result<Tracker> {
    let each = (0..model.n_layers()).map(|layer| format!("{}[:, :, *]", model.point(Site::HeadOut, layer)));
    let mut means = Tracker::new().reduce(each.collect::<Vec<_>>(), Over::Dims(vec![0, 1]))?;
    let prompts = questions.iter().map(|question| &question.ids);
    means.run_all(model, prompts, |m, ids: &Tensor| m.logits(ids))?;
    Ok(means)
}

/// What all heads find in the other prompt of each question.
fn donors<M: Transformer>(model: &Hooked<M>, questions: &Questions) -> Result<Vec<ActivationCache>> {
    let each: Vec<String> = (0..model.n_layers())
        .map(|layer| format!("{}[:, :, *]", model.point(Site::HeadOut, layer)))
        .collect();
    let plan = model.plan().cache(each)?;
    questions.iter().map(|question| Ok(plan.collect(|m| m.logits(&question.other))?)).collect()
}
