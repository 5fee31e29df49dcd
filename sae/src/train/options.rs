//! How an autoencoder is trained.

use hookpoint::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::config::Architecture;

/// How an autoencoder is trained.
///
/// The loss of a row is the squared length of what is missed, and besides: for ReLU `sparsity` times the sum of the
/// features, for JumpReLU `sparsity` times how many there are, for TopK nothing. The loss of a batch is the mean over
/// its rows.
///
/// ```
/// use hookpoint_sae::{Architecture, TrainOptions};
///
/// let options = TrainOptions { batch: 256, ..TrainOptions::new(Architecture::Relu, 1000) };
/// assert!(options.check().is_ok());
/// assert!(TrainOptions { batch: 0, ..options }.check().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// How many steps there are in all.
    pub steps: u64,
    /// How many rows a step sees.
    pub batch: usize,
    /// The learning rate of Adam.
    pub learning_rate: f64,
    /// For how many steps the learning rate rises, from nearly 0.
    pub warm_up: u64,
    /// For how many steps at the end it falls to nearly 0.
    pub cool_down: u64,
    /// Adam's two rates of forgetting.
    pub betas: (f64, f64),
    /// What Adam adds to a denominator.
    pub epsilon: f64,
    /// How much an active feature costs.
    pub sparsity: f64,
    /// For how many steps that cost rises, from 0.
    pub sparsity_warm_up: u64,
    /// For JumpReLU: how near to its threshold a number has to be for the threshold to learn from it.
    pub bandwidth: f64,
    /// The largest length of the gradient of all parameters together.
    pub clip: Option<f64>,
    /// A feature that was not active for so many steps is dead.
    pub dead_after: u64,
    /// When dead features are replaced.
    pub resample: Option<Resample>,
    /// Does the decoder's bias begin as the mean of the first batch?
    pub begin_at_mean: bool,
    /// Equal seeds make equal choices.
    pub seed: u64,
}

/// When dead features are replaced: they are pointed at what the autoencoder misses in rows of the batch, those
/// that it misses most before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resample {
    /// After every so many steps.
    pub every: u64,
    /// But not after this step, so that all features can settle.
    pub until: u64,
}

impl TrainOptions {
    /// What has served well; the costs of features depend on the data.
    pub fn new(architecture: Architecture, steps: u64) -> Self {
        Self {
            steps,
            batch: 1024,
            learning_rate: 1e-3,
            warm_up: steps / 20,
            cool_down: steps / 5,
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            sparsity: match architecture {
                Architecture::Relu => 0.1,
                Architecture::TopK { .. } => 0.,
                Architecture::JumpRelu => 0.02,
            },
            sparsity_warm_up: steps / 10,
            bandwidth: 0.1,
            clip: Some(1.),
            dead_after: (steps / 10).max(1),
            resample: Some(Resample { every: (steps / 10).max(1), until: steps / 2 }),
            begin_at_mean: true,
            seed: 0,
        }
    }

    /// An error if nothing can be trained so.
    pub fn check(&self) -> Result<()> {
        let not_negative = |x: f64| x.is_finite() && x >= 0.;
        let wrong = |what: &str| Err(Error::msg(format!("training: {what}")));
        match () {
            () if self.batch == 0 || self.batch > 1 << 24 => wrong("`batch` is from 1 to 16,777,216 rows"),
            () if !not_negative(self.learning_rate) => wrong("`learning_rate` is not negative"),
            () if !not_negative(self.sparsity) => wrong("`sparsity` is not negative"),
            () if !(self.bandwidth.is_finite() && self.bandwidth > 0.) => wrong("`bandwidth` is above 0"),
            () if !(self.epsilon.is_finite() && self.epsilon > 0.) => wrong("`epsilon` is above 0"),
            () if ![self.betas.0, self.betas.1].iter().all(|beta| (0. ..1.).contains(beta)) => {
                wrong("`betas` are from 0 to 1, without 1")
            }
            () if self.clip.is_some_and(|clip| !(clip.is_finite() && clip > 0.)) => {
                wrong("`clip` is above 0")
            }
            () if self.resample.is_some_and(|resample| resample.every == 0) => {
                wrong("features are resampled after at least 1 step")
            }
            () => Ok(()),
        }
    }

    /// The learning rate of a step, from 0.
    pub fn learning_rate_at(&self, step: u64) -> f64 {
        let rising = (step + 1) as f64 / self.warm_up.max(1) as f64;
        let left = self.steps.saturating_sub(step).max(1);
        let falling = left as f64 / self.cool_down.max(1) as f64;
        self.learning_rate * rising.min(falling).min(1.)
    }

    /// The cost of features at a step, from 0.
    ///
    /// ```
    /// use hookpoint_sae::{Architecture, TrainOptions};
    ///
    /// let at_once = TrainOptions { sparsity: 2., sparsity_warm_up: 0, ..TrainOptions::new(Architecture::Relu, 9) };
    /// assert_eq!((at_once.sparsity_at(0), at_once.sparsity_at(9)), (2., 2.));
    /// let rising = TrainOptions { sparsity_warm_up: 4, ..at_once };
    /// assert_eq!((rising.sparsity_at(0), rising.sparsity_at(1), rising.sparsity_at(9)), (0., 0.5, 2.));
    /// ```
    pub fn sparsity_at(&self, step: u64) -> f64 {
        match self.sparsity_warm_up {
            0 => self.sparsity,
            rising => self.sparsity * (step as f64 / rising as f64).min(1.),
        }
    }
}
