//! Adam, as PyTorch has it, in place, with directions of features kept at length 1.

use candle_core::Tensor;
use hookpoint::Result;
use rayon::prelude::*;

use super::gradients::Gradients;
use super::numbers::{add_scaled, change, dot, read};
use super::options::TrainOptions;
use super::parameters::Parameters;
use crate::config::Config;

/// What Adam remembers of earlier gradients.
pub struct Adam {
    pub means: Parameters,
    pub squares: Parameters,
}

/// One step's numbers.
struct Rate {
    scale: f32,
    step: f32,
    beta: (f32, f32),
    root: f32,
    epsilon: f32,
}

impl Adam {
    pub fn new(config: &Config) -> Result<Self> {
        Ok(Self { means: Parameters::zeros(config)?, squares: Parameters::zeros(config)? })
    }

    /// Moves all parameters, and tells how long the gradient was.
    pub fn step(
        &self,
        parameters: &Parameters,
        gradients: &Gradients,
        options: &TrainOptions,
        step: u64,
    ) -> Result<f64> {
        let norm = norm(gradients)?;
        // As PyTorch clips.
        let scale = options.clip.map_or(1., |clip| (clip / (norm + 1e-6)).min(1.));
        let (beta1, beta2) = options.betas;
        let times = (step + 1).min(i32::MAX as u64) as i32;
        let rate = Rate {
            scale: scale as f32,
            step: (options.learning_rate_at(step) / (1. - beta1.powi(times))) as f32,
            beta: (beta1 as f32, beta2 as f32),
            root: (1. - beta2.powi(times)).sqrt() as f32,
            epsilon: options.epsilon as f32,
        };
        let width = gradients.b_dec.len();
        self.rows(
            parameters,
            |p| &p.encoder,
            |of| read(&gradients.encoder, of),
            |row| rate.move_row(row),
            width,
        )?;
        self.rows(
            parameters,
            |p| &p.decoder,
            |of| read(&gradients.decoder, of),
            |row| rate.turn(row),
            width,
        )?;
        for (numbers, pick) in [
            (&gradients.b_enc, (|p| &p.b_enc) as fn(&Parameters) -> &Tensor),
            (&gradients.b_dec, |p| &p.b_dec),
            (&gradients.threshold, |p| &p.threshold),
        ] {
            self.rows(
                parameters,
                pick,
                |of| {
                    of(numbers);
                    Ok(())
                },
                |row| rate.move_row(row),
                numbers.len().max(1),
            )?;
        }
        // Below 0, features with negative numbers would be active.
        change(&parameters.threshold, |all| {
            all.iter_mut().for_each(|threshold| *threshold = threshold.max(0.))
        })?;
        Ok(norm)
    }

    /// Calls `act` with every row of a parameter, its memory and its gradient.
    fn rows(
        &self,
        parameters: &Parameters,
        pick: impl Fn(&Parameters) -> &Tensor,
        gradient: impl FnOnce(&mut dyn FnMut(&[f32])) -> candle_core::Result<()>,
        act: impl Fn(Row<'_>) + Sync,
        width: usize,
    ) -> Result<()> {
        change(pick(parameters), |weights| {
            change(pick(&self.means), |means| {
                change(pick(&self.squares), |squares| {
                    gradient(&mut |gradient: &[f32]| {
                        let memory = means.par_chunks_mut(width).zip(squares.par_chunks_mut(width));
                        let rows = weights.par_chunks_mut(width).zip(gradient.par_chunks(width)).zip(memory);
                        rows.with_min_len(16).for_each(|((weights, gradient), (means, squares))| {
                            act(Row { weights, gradient, means, squares });
                        });
                    })
                })
            })
        })????;
        Ok(())
    }

    /// Forgets a feature.
    pub fn forget(&self, feature: usize, width: usize) -> Result<()> {
        for memory in [&self.means, &self.squares] {
            for matrix in [&memory.encoder, &memory.decoder] {
                change(matrix, |all| all[feature * width..(feature + 1) * width].fill(0.))?;
            }
            for vector in [&memory.b_enc, &memory.threshold] {
                change(vector, |all| all[feature] = 0.)?;
            }
        }
        Ok(())
    }
}

struct Row<'a> {
    weights: &'a mut [f32],
    gradient: &'a [f32],
    means: &'a mut [f32],
    squares: &'a mut [f32],
}

impl Rate {
    fn move_row(&self, row: Row<'_>) {
        let memory = row.means.iter_mut().zip(row.squares);
        for ((weight, gradient), (mean, square)) in row.weights.iter_mut().zip(row.gradient).zip(memory) {
            let gradient = gradient * self.scale;
            *mean = self.beta.0 * *mean + (1. - self.beta.0) * gradient;
            *square = self.beta.1 * *square + (1. - self.beta.1) * gradient * gradient;
            *weight -= self.step * *mean / (square.sqrt() / self.root + self.epsilon);
        }
    }

    /// Moves a direction, across itself only, and gives it length 1 again.
    fn turn(&self, row: Row<'_>) {
        let along = dot(row.gradient, row.weights);
        let mut across = row.gradient.to_vec();
        add_scaled(&mut across, -along, row.weights);
        self.move_row(Row {
            gradient: &across,
            weights: row.weights,
            means: row.means,
            squares: row.squares,
        });
        normalize(row.weights);
    }
}

/// Gives a direction length 1. One without length stays as it is.
pub fn normalize(direction: &mut [f32]) {
    let norm = dot(direction, direction).sqrt();
    if norm > 0. {
        direction.iter_mut().for_each(|x| *x /= norm);
    }
}

fn norm(gradients: &Gradients) -> Result<f64> {
    let squares = |numbers: &[f32]| -> f64 {
        let parts: Vec<f32> = numbers.par_chunks(4096).map(|part| dot(part, part)).collect();
        parts.into_iter().map(f64::from).sum()
    };
    let vectors = [&gradients.b_enc, &gradients.b_dec, &gradients.threshold];
    let all = read(&gradients.encoder, squares)? + read(&gradients.decoder, squares)?;
    Ok((all + vectors.into_iter().map(|vector| squares(vector)).sum::<f64>()).sqrt())
}
