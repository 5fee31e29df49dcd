//! One training: what is learned, from what, and how far it has got.

use anyhow::Result;
use candle_core::{Device, Tensor};
use candle_nn::ops::log_softmax;
use hookpoint_models::english::{tokenizer_json, English};
use hookpoint_models::gpt2::{Config, Tokenizer};

use crate::adam::{self, Adam};
use crate::learner::Learner;
use crate::rows::{batch, Batch};

/// What determines a training.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub seed: u64,
    pub steps: usize,
    pub warm_up: usize,
    /// The highest rate of learning.
    pub rate: f64,
    /// Rows of a batch.
    pub rows: usize,
}

pub struct Training {
    pub learner: Learner,
    pub adam: Adam,
    schedule: Schedule,
    tokenizer: Tokenizer,
    device: Device,
}

impl Training {
    /// A training at its beginning. The size of the vocabulary is not the config's to say.
    pub fn new(config: Config, schedule: Schedule, device: &Device) -> Result<Self> {
        let tokenizer = Tokenizer::from_json(&tokenizer_json())?;
        let config = Config { vocab_size: tokenizer.len(), ..config };
        let learner = Learner::new(config, schedule.seed, device)?;
        let adam = Adam::new(&learner.vars)?;
        Ok(Self { learner, adam, schedule, tokenizer, device: device.clone() })
    }

    /// Makes the next step. Gives its loss and the number of its tokens.
    pub fn step(&mut self) -> Result<(f32, usize)> {
        let Schedule { seed, steps, warm_up, rate, rows } = self.schedule;
        let step = self.adam.steps;
        // What repeats is learned first, and most of it by the time when a sixth is over.
        let repeating = match step * 6 < steps {
            true => rows / 2,
            false => rows / 4,
        };
        let length = self.learner.config.n_positions;
        // Each step has examples of its own, so that a training can go on anywhere.
        let mut english = English::new(seed).fork(step as u64 + 1);
        let batch = batch(&mut english, &self.tokenizer, (repeating, rows, length), &self.device)?;
        let loss = loss(&self.learner.forward(&batch.ids)?, &batch)?;
        self.adam.step(&self.learner.vars, &loss.backward()?, adam::rate(step, steps, warm_up, rate))?;
        Ok((loss.to_scalar()?, rows * length))
    }
}

/// The mean of what each token costs, by how much it counts.
fn loss(logits: &Tensor, batch: &Batch) -> Result<Tensor> {
    let costs = log_softmax(logits, 1)?.gather(&batch.targets, 1)?.neg()?;
    Ok((costs * &batch.weights)?.sum_all()?.broadcast_div(&batch.weights.sum_all()?)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashMap;

    use candle_core::DType;
    use candle_nn::VarBuilder;
    use hookpoint_models::gpt2::{Activation, Gpt2};

    use super::*;
    use crate::files;

    fn small() -> Training {
        let config = Config {
            n_positions: 32,
            n_embd: 16,
            n_layer: 2,
            n_head: 2,
            activation_function: Activation::Relu,
            ..Config::default()
        };
        let schedule = Schedule { seed: 1, steps: 8, warm_up: 2, rate: 1e-2, rows: 5 };
        Training::new(config, schedule, &Device::Cpu).unwrap()
    }

    fn weights(training: &Training) -> Vec<Vec<f32>> {
        let flat = |var: &candle_core::Var| var.flatten_all().unwrap().to_vec1().unwrap();
        training.learner.vars.values().map(flat).collect()
    }

    #[test]
    fn the_learner_computes_what_the_model_computes() {
        let mut training = small();
        for _ in 0..3 {
            training.step().unwrap();
        }
        let learner = &training.learner;
        let tensors: HashMap<_, _> =
            learner.vars.iter().map(|(name, var)| (name.clone(), var.as_detached_tensor())).collect();
        let model =
            Gpt2::load(VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu), &learner.config).unwrap();
        let ids: Vec<u32> = English::new(3).repeated(12, learner.config.vocab_size);
        let ids = Tensor::from_vec(ids, (2, 12), &Device::Cpu).unwrap();
        let expected = model.forward(&ids).unwrap().flatten(0, 1).unwrap();
        let difference =
            (learner.forward(&ids).unwrap() - expected).unwrap().abs().unwrap().max_all().unwrap();
        let difference: f32 = difference.to_scalar().unwrap();
        assert!(difference < 1e-4, "{difference}");
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let training = small();
        let learner = &training.learner;
        let batch = batch(&mut English::new(5), &training.tokenizer, (2, 5, 16), &Device::Cpu).unwrap();
        let at = || loss(&learner.forward(&batch.ids).unwrap(), &batch).unwrap();
        let grads = at().backward().unwrap();
        let mut numbers = English::new(6);
        for (name, var) in &learner.vars {
            let grad = grads.get(var).unwrap().detach();
            // Half along the gradient, half in any direction: nothing may be missing, and nothing added.
            let length = |x: &Tensor| x.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap().sqrt();
            let noise: Vec<f32> =
                (0..grad.elem_count()).map(|_| numbers.below(201) as f32 / 100. - 1.).collect();
            let noise = Tensor::from_vec(noise, grad.shape(), &Device::Cpu).unwrap();
            let unit = |x: &Tensor| (x / f64::from(length(x))).unwrap();
            let direction = (unit(&grad) + unit(&noise)).unwrap();
            let expected: f32 = (&grad * &direction).unwrap().sum_all().unwrap().to_scalar().unwrap();
            let value = var.as_detached_tensor().copy().unwrap();
            let moved = |by: f64| -> f32 {
                var.set(&(&value + (&direction * by).unwrap()).unwrap()).unwrap();
                at().to_scalar().unwrap()
            };
            let change = (moved(5e-3) - moved(-5e-3)) / 1e-2;
            var.set(&value).unwrap();
            assert!(
                (change - expected).abs() < 0.03 * length(&grad) + 2e-4,
                "{name}: {change}, not {expected}"
            );
        }
    }

    #[test]
    fn a_training_that_was_interrupted_arrives_at_the_same_weights() {
        let folder = std::env::temp_dir().join(format!("train_gpt2-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut whole = small();
        let losses: Vec<_> = (0..8).map(|_| whole.step().unwrap().0).collect();
        let mut first = small();
        for _ in 0..3 {
            first.step().unwrap();
        }
        files::save_checkpoint(&folder, &first.learner, &first.adam).unwrap();
        let mut second = small();
        files::load_checkpoint(&folder, &second.learner, &mut second.adam, &Device::Cpu).unwrap();
        let rest: Vec<_> = (3..8).map(|_| second.step().unwrap().0).collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(rest, losses[3..]);
        assert_eq!(weights(&second), weights(&whole));
        assert_ne!(weights(&first), weights(&whole));
    }
}
