//! `hookpoint sae train`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, Context, Result};
use clap::ValueEnum;
use hookpoint_harvest::{Reading, Store};
use hookpoint_interp::{Site, Transformer};
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};
use hookpoint_sae::{ActivationSource, Architecture, Config, Live, Progress, Sae, TrainOptions, Trainer};
use serde::Serialize;

use super::texts::Texts;
use crate::args::{ModelArgs, PromptsArgs};
use crate::pending::Pending;
use crate::render::{self, bar::Bar};

/// The arguments of `hookpoint sae train`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint sae train --out my-sae
  hookpoint sae train --architecture jumprelu --point blocks.0.hook_mlp_out --features 1024 --out my-sae
  hookpoint sae train model.gguf --prompts corpus.jsonl --field text --steps 20000 --out my-sae
  hookpoint sae train --store activations/ --point blocks.1.hook_resid_post --out my-sae

The folder has the form of SAELens: cfg.json and sae_weights.safetensors.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Where in the model [default: the residual stream before the middle layer]
    #[arg(long, value_name = "POINT")]
    point: Option<String>,

    #[command(flatten)]
    prompts: PromptsArgs,

    /// Train on the rows of this store, as `hookpoint-harvest` writes it, instead of running the model
    #[arg(long, value_name = "FOLDER", conflicts_with = "prompts", requires = "point")]
    store: Option<PathBuf>,

    /// Which kind of autoencoder
    #[arg(long, value_enum, default_value_t)]
    architecture: Kind,

    /// How many features it has [default: four times those of the point]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    features: Option<u32>,

    /// For topk: how many of them may be active at once
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    k: u32,

    /// For relu and jumprelu: what an active feature costs [default: 1 for relu, 0.1 for jumprelu]
    #[arg(long, value_name = "COST")]
    sparsity: Option<f64>,

    /// How many steps of training
    #[arg(long, value_name = "COUNT", default_value_t = 1500)]
    steps: u64,

    /// How many rows a step has
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: u32,

    /// How far a step goes
    #[arg(long, value_name = "NUMBER", default_value_t = 3e-3)]
    learning_rate: f64,

    /// Equal seeds give equal features
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// The folder, which is new
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Kind {
    /// What SAELens calls standard
    Relu,
    /// The k largest
    #[default]
    Topk,
    /// What is above a threshold of its own
    Jumprelu,
}

/// How the training ended.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Trained {
    /// The model.
    pub model: String,
    /// Where in it.
    pub point: String,
    /// As SAELens calls it.
    pub architecture: String,
    /// How wide the point is.
    pub width: usize,
    /// How many features there are.
    pub features: usize,
    /// How many steps were made.
    pub steps: u64,
    /// Of the last step: how many features are active at a position.
    pub l0: f64,
    /// Of the last step: the share of the variance that is explained.
    pub explained_variance: f64,
    /// How many features have not been active for a while.
    pub dead: usize,
    /// Where the autoencoder is.
    pub out: PathBuf,
}

/// Trains, and writes the autoencoder.
///
/// # Errors
///
/// If the model, texts or store cannot be read, or the folder cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let trained = args.model.run(args)?;
    if args.json {
        render::json(&trained)?;
    } else {
        render::print(&format!(
            "{} features of `{}` in {}: {:.1} active at a position, {:.1} % explained, {} dead\nin {}\n",
            trained.features,
            trained.point,
            trained.model,
            trained.l0,
            100. * trained.explained_variance,
            trained.dead,
            trained.out.display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Task for &Args {
    type Output = Result<Trained>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<Trained> {
        let pending = Pending::folder(&self.out)?;
        let model = &subject.model;
        let middle = || model.point(Site::ResidPre, model.n_layers() / 2);
        let point = self.point.clone().unwrap_or_else(middle);
        let width = super::width(model, &point)?;
        let features = self.features.map_or(4 * width, |features| features as usize);
        let architecture = match self.architecture {
            Kind::Relu => Architecture::Relu,
            Kind::Topk => Architecture::TopK { k: (self.k as usize).min(features) },
            Kind::Jumprelu => Architecture::JumpRelu,
        };
        let config = Config::new(width, features, architecture).for_point(point.as_str());
        let trainer =
            Trainer::new(&Sae::random(config, self.seed, model.device())?, self.options(architecture))?;
        let (trainer, last) = match &self.store {
            Some(folder) => {
                let store = Store::open(folder)?;
                let mut rows =
                    store.read(&point, &Reading::new(self.batch as usize).seed(self.seed).endless())?;
                train(trainer, &mut rows, self.steps)?
            }
            None => {
                let mut texts = Texts::new(&subject, &self.prompts, self.model.model.is_none(), self.seed)?;
                let mut source =
                    Live::new(model, point.as_str(), |_| texts.endless(), |m, ids| m.logits(ids))
                        .mixing(128)
                        .seed(self.seed);
                train(trainer, &mut source, self.steps)?
            }
        };
        let Some(last) = last else { bail!("there was nothing to train on\n  make at least one step") };
        let cannot_write = || format!("cannot write {}", self.out.display());
        trainer.sae()?.save(pending.path()).with_context(cannot_write)?;
        pending.finish()?;
        Ok(Trained {
            model: subject.name.clone(),
            point,
            architecture: architecture.name().to_string(),
            width,
            features,
            steps: trainer.steps_done(),
            l0: last.l0,
            explained_variance: last.explained_variance,
            dead: last.dead,
            out: self.out.clone(),
        })
    }
}

impl Args {
    fn options(&self, architecture: Architecture) -> TrainOptions {
        let usual = TrainOptions::new(architecture, self.steps);
        let sparsity = match architecture {
            Architecture::TopK { .. } => 0.,
            Architecture::Relu => self.sparsity.unwrap_or(1.),
            Architecture::JumpRelu => self.sparsity.unwrap_or(0.1),
        };
        let (batch, learning_rate, seed) = (self.batch as usize, self.learning_rate, self.seed);
        TrainOptions { batch, learning_rate, sparsity, bandwidth: 0.5, seed, ..usual }
    }
}

fn train(
    mut trainer: Trainer,
    source: &mut impl ActivationSource,
    steps: u64,
) -> Result<(Trainer, Option<Progress>)> {
    let bar = Bar::new();
    bar.begin("training", steps as usize);
    let last = trainer.train(source, |_, progress| {
        bar.reach(progress.step as usize);
        bar.say(format!(
            "{:.1} active, {:.1} % explained, {} dead",
            progress.l0,
            100. * progress.explained_variance,
            progress.dead
        ));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((trainer, last))
}
