//! `hookpoint sae`: sparse autoencoders are trained, judged and looked into.

pub mod eval;
pub mod features;
mod texts;
pub mod train;

use std::process::ExitCode;

use anyhow::{ensure, Context, Result};
use candle_core::DType;
use clap::Subcommand;
use hookpoint::Hooked;
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::Subject;
use hookpoint_sae::Sae;

/// What can be done with autoencoders.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Train one on what a point of a model has
    Train(train::Args),

    /// Judge one: how sparse it is, what it explains, and how the model does with it in the place of the point
    Eval(eval::Args),

    /// Show features: where they are strongest, and which tokens they promote
    Features(features::Args),
}

/// Does it.
///
/// # Errors
///
/// If it cannot be done.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Train(args) => train::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Features(args) => features::run(args),
    }
}

/// Reads an autoencoder, and says at which point of this model it stands.
fn load<M: LanguageModel + Transformer>(
    subject: &Subject<M>,
    folder: &std::path::Path,
    point: Option<&str>,
) -> Result<(Sae, String)> {
    let sae = Sae::from_dir(folder, DType::F32, subject.model.device())?;
    let point = point.or(sae.config().point()).map(str::to_string).with_context(|| {
        format!("{} does not say for which point it is\n  say it with --point", folder.display())
    })?;
    let width = width(&subject.model, &point)?;
    ensure!(
        width == sae.config().d_in,
        "`{point}` has {width} features, and the autoencoder was made for {}\n  choose its own model and point",
        sae.config().d_in
    );
    Ok((sae, point))
}

/// How many features a point has: its values are `[batch, pos, features]`.
fn width<M: LanguageModel + Transformer>(model: &Hooked<M>, point: &str) -> Result<usize> {
    let ids = candle_core::Tensor::new(&[[0u32, 0]], model.device())?;
    let cache = model.plan().cache(point)?.collect(|m| m.logits(&ids))?;
    let names: Vec<&str> = cache.keys().collect();
    let [name] = names.as_slice() else {
        anyhow::bail!("`{point}` is {} points: {}\n  name one", names.len(), names.join(", "));
    };
    match cache.try_get(name)?.dims() {
        [1, 2, width] => Ok(*width),
        dims => anyhow::bail!(
            "`{name}` is {dims:?} and not [batch, pos, features]\n  choose a point of that form"
        ),
    }
}
