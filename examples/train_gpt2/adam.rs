//! AdamW, with a state that can be saved and taken up again exactly.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.98;
const EPSILON: f64 = 1e-8;
const DECAY: f64 = 0.02;
/// Gradients longer than this are shortened.
const LONGEST: f64 = 1.;

pub struct Adam {
    /// Mean and mean square of each variable's gradient.
    pub moments: BTreeMap<String, (Tensor, Tensor)>,
    /// How many steps were made.
    pub steps: usize,
}

impl Adam {
    pub fn new(vars: &BTreeMap<String, Var>) -> Result<Self> {
        let zeros = |(name, var): (&String, &Var)| Ok((name.clone(), (var.zeros_like()?, var.zeros_like()?)));
        Ok(Self { moments: vars.iter().map(zeros).collect::<Result<_>>()?, steps: 0 })
    }

    /// Moves each variable against its gradient. Gives the length of all gradients together.
    pub fn step(&mut self, vars: &BTreeMap<String, Var>, grads: &GradStore, rate: f64) -> Result<f64> {
        let mut squares = 0.;
        for (name, var) in vars {
            let grad = grads.get(var).with_context(|| format!("`{name}` has no gradient"))?;
            squares += f64::from(grad.sqr()?.sum_all()?.to_scalar::<f32>()?);
        }
        let length = squares.sqrt();
        let shrink = (LONGEST / length).min(1.);
        self.steps += 1;
        let count = self.steps as i32;
        let (due1, due2) = (1. - BETA1.powi(count), 1. - BETA2.powi(count));
        for (name, var) in vars {
            let grad = (grads.get(var).context("a gradient")? * shrink)?.detach();
            let (mean, square) = self.moments.get_mut(name).context("a variable without moments")?;
            *mean = ((&*mean * BETA1)? + (&grad * (1. - BETA1))?)?;
            *square = ((&*square * BETA2)? + (grad.sqr()? * (1. - BETA2))?)?;
            let towards = ((&*mean / due1)? / ((&*square / due2)?.sqrt()? + EPSILON)?)?;
            // Biases and norms are left as large as they want to be.
            let decay = if var.rank() > 1 { DECAY } else { 0. };
            let rate = rate * pace(name, var);
            let value = var.as_detached_tensor();
            var.set(&((&value * (1. - rate * decay))? - (towards * rate)?)?)?;
        }
        Ok(length)
    }
}

/// How fast a variable learns, compared to others. A change to a matrix adds up over all that it reads, a token's
/// vector stands alone, and positions are good as they are.
fn pace(name: &str, var: &Var) -> f64 {
    match name {
        "wpe.weight" => 0.1,
        name if name.starts_with("h.") && var.rank() > 1 => 0.4,
        _ => 1.,
    }
}

/// Up in a line, then down in half a wave to a twentieth.
pub fn rate(step: usize, steps: usize, warm_up: usize, highest: f64) -> f64 {
    if step < warm_up {
        return highest * (step + 1) as f64 / warm_up as f64;
    }
    let done = (step - warm_up) as f64 / (steps - warm_up).max(1) as f64;
    highest * (0.05 + 0.95 * 0.5 * (1. + (std::f64::consts::PI * done).cos()))
}
