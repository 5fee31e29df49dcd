//! How fast the pairs of numbers in a head are rotated from one position to the next.

use std::f64::consts::TAU;

use hookpoint::{Error, Result};

/// How the frequencies of rotary embeddings are changed for texts longer than those of the training.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum RopeScaling {
    /// Not at all.
    #[default]
    None,
    /// Positions are divided by a number.
    Linear {
        /// The number.
        factor: f64,
    },
    /// Low frequencies are divided by a number, high ones stay, and between them is a transition: Llama 3.1.
    Llama3 {
        /// What low frequencies are divided by.
        factor: f64,
        /// Low is what turns less often than this within the original context.
        low_freq_factor: f64,
        /// High is what turns more often than this within the original context.
        high_freq_factor: f64,
        /// How long texts were in the training.
        original_max_position_embeddings: f64,
    },
    /// Every frequency is divided by a number of its own, as GGUF files have them.
    Each(Vec<f64>),
}

impl RopeScaling {
    /// The angles by which pairs turn with each position: `d_head / 2` of them.
    pub fn frequencies(&self, theta: f64, d_head: usize) -> Vec<f64> {
        let plain = (0..d_head / 2).map(|pair| theta.powf(-2. * pair as f64 / d_head as f64));
        match self {
            Self::None => plain.collect(),
            Self::Linear { factor } => plain.map(|frequency| frequency / factor).collect(),
            Self::Each(factors) => plain.zip(factors).map(|(frequency, factor)| frequency / factor).collect(),
            Self::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: context,
            } => plain
                .map(|frequency| {
                    let turns = context * frequency / TAU;
                    // 0 for low frequencies, 1 for high ones.
                    let kept = ((turns - low) / (high - low)).clamp(0., 1.);
                    (1. - kept) * frequency / factor + kept * frequency
                })
                .collect(),
        }
    }

    /// Do the numbers make sense?
    pub(super) fn check(&self, d_head: usize) -> Result<()> {
        let positive = |number: f64| number.is_finite() && number > 0.;
        match self {
            Self::None => Ok(()),
            Self::Linear { factor } if positive(*factor) => Ok(()),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings }
                if positive(*factor)
                    && positive(*low_freq_factor)
                    && positive(*high_freq_factor)
                    && low_freq_factor < high_freq_factor
                    && positive(*original_max_position_embeddings) =>
            {
                Ok(())
            }
            Self::Each(factors) if factors.len() == d_head / 2 && factors.iter().all(|f| positive(*f)) => Ok(()),
            Self::Each(factors) => Err(Error::msg(format!(
                "{} factors are given for the frequencies of rotary embeddings, and a head of width {d_head} has \
                 {}; each has to be above 0",
                factors.len(),
                d_head / 2
            ))),
            other => Err(Error::msg(format!(
                "this scaling of rotary embeddings makes no sense: {other:?}\n  factors have to be above 0, and \
                 low_freq_factor below high_freq_factor"
            ))),
        }
    }
}
