//! The loop.

use std::ops::ControlFlow;

use candle_core::{DType, Device, Tensor};
use hookpoint::{Error, ErrorKind, Result};
use hookpoint_harvest::ActivationSource;
use hookpoint_models::init::Init;

use super::adam::Adam;
use super::gradients::{column_sums, Batch, Outcome};
use super::numbers::{change, read};
use super::options::TrainOptions;
use super::parameters::Parameters;
use super::resample::resample;

use crate::config::Config;
use crate::model::Sae;

/// Trains an autoencoder, on the CPU and in f32.
///
/// Directions of features always have length 1: what would only make them longer is taken from their gradients.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint_sae::{Architecture, Config, Rows, Sae, TrainOptions, Trainer};
///
/// // Rows that are multiples of one direction or of another.
/// let rows: Vec<f32> =
///     (0..64).flat_map(|n| if n % 2 == 0 { [n as f32 / 8., 0., 0.] } else { [0., 3., 4.] }).collect();
/// let rows = Tensor::from_vec(rows, (64, 3), &Device::Cpu)?;
/// let architecture = Architecture::TopK { k: 1 };
/// let sae = Sae::random(Config::new(3, 4, architecture), 0, &Device::Cpu)?;
/// let options = TrainOptions { batch: 32, learning_rate: 0.01, ..TrainOptions::new(architecture, 300) };
/// let mut trainer = Trainer::new(&sae, options)?;
/// let mut first = None;
/// let last = trainer.train(&mut Rows::new(&rows, 0)?, |_, progress| {
///     first.get_or_insert(progress.loss);
///     Ok(std::ops::ControlFlow::Continue(()))
/// })?;
/// assert!(last.unwrap().loss < 0.1 * first.unwrap());
/// assert_eq!(trainer.sae()?.config().d_sae, 4);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub struct Trainer {
    pub(super) config: Config,
    pub(super) options: TrainOptions,
    pub(super) parameters: Parameters,
    pub(super) adam: Adam,
    /// The next step, from 0.
    pub(super) step: u64,
    /// For each feature, the step before which it was last active.
    pub(super) last_active: Vec<u64>,
    /// Where the source was after the last step.
    pub(super) position: u64,
    pub(super) init: Init,
}

/// How a step of the training went.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Which step it was, from 1.
    pub step: u64,
    /// How many there are in all.
    pub steps: u64,
    /// What is minimized: `squared_error + penalty`.
    pub loss: f64,
    /// The mean over rows of the squared length of what is missed.
    pub squared_error: f64,
    /// What features cost.
    pub penalty: f64,
    /// How many features are active in a row, on average.
    pub l0: f64,
    /// Which part of the variance of the batch the reconstruction has.
    pub explained_variance: f64,
    /// How many features are dead.
    pub dead: usize,
    /// How many features were replaced after this step.
    pub resampled: usize,
    /// The length of the gradient, before it was clipped.
    pub gradient_norm: f64,
    /// The learning rate of the step.
    pub learning_rate: f64,
}

impl Trainer {
    /// Begins with an autoencoder as it is, which stays as it is.
    pub fn new(sae: &Sae, options: TrainOptions) -> Result<Self> {
        options.check()?;
        let config = sae.config().clone();
        let parameters = Parameters::of(sae)?;
        change(&parameters.decoder, |all| all.chunks_mut(config.d_in).for_each(super::adam::normalize))?;
        Ok(Self {
            adam: Adam::new(&config)?,
            step: 0,
            last_active: vec![0; config.d_sae],
            position: 0,
            init: Init::new(options.seed),
            parameters,
            options,
            config,
        })
    }

    /// The autoencoder as it is now.
    pub fn sae(&self) -> Result<Sae> {
        self.parameters.sae(&self.config)
    }

    /// How many steps were made.
    pub fn steps_done(&self) -> u64 {
        self.step
    }

    /// How it is trained.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// Trains until all steps are made, the source has no more, or `each` says so. `each` is called after every step;
    /// it may [`save`](Self::save) what there is. Gives how the last step went, if there was one.
    ///
    /// A trainer that was [resumed](Self::resume) makes the source go to where it was.
    pub fn train(
        &mut self,
        source: &mut (impl ActivationSource + ?Sized),
        mut each: impl FnMut(&Self, &Progress) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Progress>> {
        source.seek(self.position)?;
        let mut last = None;
        while self.step < self.options.steps {
            let Some(rows) = source.next_rows(self.options.batch)? else { break };
            let progress = self.learn(&rows, source.position())?;
            let flow = each(self, &progress)?;
            last = Some(progress);
            if flow.is_break() {
                break;
            }
        }
        Ok(last)
    }

    /// Makes one step with these activations, `[.., d_in]`, for loops of one's own.
    pub fn step(&mut self, activations: &Tensor) -> Result<Progress> {
        self.learn(activations, self.position)
    }

    fn learn(&mut self, activations: &Tensor, position: u64) -> Result<Progress> {
        let x = self.rows(activations)?;
        let rows = x.dim(0)? as f64;
        let (spread, means) = read(&x, |x| spread(x, self.config.d_in))?;
        if self.step == 0 && self.options.begin_at_mean {
            change(&self.parameters.b_dec, |bias| bias.copy_from_slice(&means))?;
        }
        let cost = self.options.sparsity_at(self.step);
        let batch = Batch::new(&self.config, &self.parameters, &x, cost, self.options.bandwidth)?;
        let outcome = batch.gradients()?;
        let squared_error = outcome.missed.iter().map(|missed| f64::from(*missed)).sum::<f64>() / rows;
        let loss = squared_error + outcome.penalty;
        if !loss.is_finite() {
            return Err(Error::msg(format!(
                "the loss of step {} is {loss}\n  are there activations that are no numbers? if not, a smaller \
                 learning rate helps, or a longer warm-up",
                self.step + 1
            )));
        }
        let learning_rate = self.options.learning_rate_at(self.step);
        let gradient_norm = self.adam.step(&self.parameters, &outcome.gradients, &self.options, self.step)?;
        self.step += 1;
        self.position = position;
        for (last, fired) in self.last_active.iter_mut().zip(&outcome.fired) {
            if *fired {
                *last = self.step;
            }
        }
        let dead = self.dead();
        Ok(Progress {
            step: self.step,
            steps: self.options.steps,
            loss,
            squared_error,
            penalty: outcome.penalty,
            l0: outcome.active as f64 / rows,
            explained_variance: 1. - squared_error * rows / spread,
            dead: dead.len(),
            resampled: self.replace(&dead, &outcome)?,
            gradient_norm,
            learning_rate,
        })
    }

    fn dead(&self) -> Vec<usize> {
        let features = self.last_active.iter().enumerate();
        let dead = features.filter(|(_, last)| self.step - **last >= self.options.dead_after.max(1));
        dead.map(|(feature, _)| feature).collect()
    }

    fn replace(&mut self, dead: &[usize], outcome: &Outcome) -> Result<usize> {
        let due = self
            .options
            .resample
            .is_some_and(|resample| self.step.is_multiple_of(resample.every) && self.step <= resample.until);
        if !due || dead.is_empty() {
            return Ok(0);
        }
        // No more than there are rows to take after.
        let dead = dead.get(..outcome.missed.len()).unwrap_or(dead);
        resample(&self.parameters, &self.adam, outcome, dead, &mut self.init)?;
        dead.iter().for_each(|feature| self.last_active[*feature] = self.step);
        Ok(dead.len())
    }

    /// Activations as rows `[rows, d_in]`, as the autoencoder encodes them.
    fn rows(&self, activations: &Tensor) -> Result<Tensor> {
        let x = activations.detach().to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
        let x = self.config.flat(&x)?;
        if x.dims().last() != Some(&self.config.d_in) || x.elem_count() == 0 {
            return Err(ErrorKind::Shape {
                point: "the source".to_string(),
                what: "a batch for an autoencoder with d_in".to_string(),
                expected: activations.dims().to_vec(),
                found: vec![self.config.d_in],
                remedy: "train on activations that are as wide as the autoencoder".to_string(),
            }
            .into());
        }
        Ok(self.config.scaled(&x.reshape(((), self.config.d_in))?)?.rows.contiguous()?)
    }
}

/// How far all rows together are from their mean, squared; and the mean.
fn spread(x: &[f32], width: usize) -> (f64, Vec<f32>) {
    let rows = (x.len() / width.max(1)).max(1) as f32;
    let means: Vec<f32> = column_sums(x, width).into_iter().map(|sum| sum / rows).collect();
    let far = x
        .chunks(width)
        .map(|row| row.iter().zip(&means).map(|(x, mean)| (x - mean) * (x - mean)).sum::<f32>());
    (far.map(f64::from).sum(), means)
}
