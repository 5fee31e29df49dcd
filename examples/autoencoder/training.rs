//! The training, with a bar.

use std::ops::ControlFlow;

use anyhow::Result;
use candle_core::Device;
use hookpoint::Hooked;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_sae::{Config, Live, Progress, Sae, TrainOptions, Trainer};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Args;
use crate::texts;

/// How many texts the model is given at once.
const TEXTS: usize = 16;

pub fn train(model: &Hooked<Gpt2>, args: &Args) -> Result<(Sae, Option<Progress>)> {
    let width = crate::findings::width_at(model, &args.point)?;
    let config = Config::new(width, args.features, args.architecture()).for_point(args.point.as_str());
    let sae = Sae::random(config, args.seed, &Device::Cpu)?;
    let options = TrainOptions {
        batch: 1024,
        learning_rate: 3e-3,
        sparsity: args.sparsity(),
        bandwidth: 0.5,
        seed: args.seed,
        ..TrainOptions::new(args.architecture(), args.steps)
    };
    let tokenizer = model.tokenizer()?.clone();
    let texts = |number: u64| texts::rows(&tokenizer, args.seed, number, TEXTS);
    // The rows of eight groups of texts are mixed.
    let mut source =
        Live::new(model, args.point.as_str(), texts, |m, ids| m.forward(ids)).mixing(8).seed(args.seed);

    let style = ProgressStyle::with_template("training  {wide_bar}  {msg}  {eta} left")?;
    let bar = ProgressBar::new(args.steps).with_style(style);
    let mut trainer = Trainer::new(&sae, options)?;
    let last = trainer.train(&mut source, |_, progress| {
        bar.set_position(progress.step);
        bar.set_message(format!(
            "{:.1} features a token, {:.1} % explained, {} dead",
            progress.l0,
            100. * progress.explained_variance,
            progress.dead
        ));
        Ok(ControlFlow::Continue(()))
    })?;
    bar.finish_and_clear();
    Ok((trainer.sae()?, last))
}
