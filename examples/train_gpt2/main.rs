//! Trains the small GPT-2 that `Gpt2::embedded` gives, from a seed, on the CPU:
//!
//! ```sh
//! cargo run --release --example train_gpt2 -- --out target/train_gpt2
//! ```
//!
//! The folder is then one that `Gpt2::from_dir` loads. `--resume` goes on from its last checkpoint, and arrives
//! where a training without a break does. With `RAYON_NUM_THREADS=1` it keeps to
//! one core, as it did for the weights in the repository: five minutes of its time.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use candle_core::{DType, Device};
use clap::Parser;
use hookpoint_models::gpt2::{Activation, Config, Gpt2};
use indicatif::{ProgressBar, ProgressStyle};

mod adam;
mod files;
mod gradients;
mod learner;
mod measure;
mod rows;
mod start;
mod training;

use training::{Schedule, Training};

/// Trains a small GPT-2 on synthetic English.
#[derive(Parser)]
struct Args {
    /// Where the model and its checkpoints go
    #[arg(long, default_value = "target/train_gpt2")]
    out: PathBuf,
    /// Equal seeds give equal models
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How long to train
    #[arg(long, default_value_t = 3000)]
    steps: usize,
    /// Stop after this step; `--resume` goes on
    #[arg(long)]
    until: Option<usize>,
    /// The highest rate of learning
    #[arg(long, default_value_t = 3e-3)]
    rate: f64,
    /// Rows of a batch
    #[arg(long, default_value_t = 16)]
    rows: usize,
    /// Go on from the last checkpoint in the folder
    #[arg(long)]
    resume: bool,
}

/// Steps before the rate of learning is at its highest.
const WARM_UP: usize = 60;
/// Steps between two checkpoints.
const CHECKPOINT: usize = 100;
/// Steps between two lines of figures.
const LINE: usize = 50;

fn config() -> Config {
    Config {
        n_positions: 64,
        n_embd: 96,
        n_layer: 3,
        n_head: 4,
        n_inner: Some(192),
        // Quicker to train than with gelu, and a neuron is off or on.
        activation_function: Activation::Relu,
        bos_token_id: Some(0),
        eos_token_id: Some(0),
        ..Config::default()
    }
}

fn main() -> Result<()> {
    let Args { out, seed, steps, until, rate, rows, resume } = Args::parse();
    let device = Device::Cpu;
    std::fs::create_dir_all(&out)?;
    let mut training =
        Training::new(config(), Schedule { seed, steps, warm_up: WARM_UP, rate, rows }, &device)?;
    if resume {
        files::load_checkpoint(&out, &training.learner, &mut training.adam, &device)?;
    }
    let bar = ProgressBar::new(steps as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len}  {msg}  {eta} left")?);
    bar.set_position(training.adam.steps as u64);
    let (mut losses, mut tokens, mut since) = (Vec::new(), 0, Instant::now());
    while training.adam.steps < until.unwrap_or(steps) {
        let (loss, count) = training.step()?;
        losses.push(loss);
        tokens += count;
        bar.set_message(format!("loss {loss:.3}"));
        bar.inc(1);
        let step = training.adam.steps;
        if step % LINE == 0 {
            let mean = losses.iter().sum::<f32>() / losses.len() as f32;
            let speed = tokens as f64 / since.elapsed().as_secs_f64();
            let line = format!("step {step:5}  loss {mean:.4}  {speed:.0} tokens/s");
            // Without a terminal there is no bar, but these lines are still wanted.
            match bar.is_hidden() {
                true => println!("{line}"),
                false => bar.println(line),
            }
            (losses, tokens, since) = (Vec::new(), 0, Instant::now());
        }
        if step % CHECKPOINT == 0 {
            files::save_checkpoint(&out, &training.learner, &training.adam)?;
            files::save_model(&out, &training.learner)?;
        }
    }
    bar.finish();
    files::save_checkpoint(&out, &training.learner, &training.adam)?;
    files::save_model(&out, &training.learner)?;
    let model = Gpt2::from_dir(&out, DType::F32, &device)?;
    for (task, share) in measure::measure(&model, 400, &device)? {
        println!("{task:32} {:5.1} %", 100. * share);
    }
    Ok(())
}
