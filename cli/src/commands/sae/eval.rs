//! `hookpoint sae eval`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{ensure, Result};
use candle_core::Tensor;
use hookpoint::Hooked;
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};
use hookpoint_sae::{next_token_loss, LossRecovered, Metrics};
use serde::Serialize;

use super::texts::Texts;
use crate::args::{ModelArgs, PromptsArgs};
use crate::render::{self, bar::Bar, screen::Screen};

/// The arguments of `hookpoint sae eval`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint sae eval --sae my-sae
  hookpoint sae eval model.gguf --sae my-sae --prompts held-out.txt --texts 500 --json")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// The folder of the autoencoder, in the form of SAELens
    #[arg(long, value_name = "FOLDER")]
    sae: PathBuf,

    /// Where in the model [default: what the autoencoder says]
    #[arg(long, value_name = "POINT")]
    point: Option<String>,

    #[command(flatten)]
    prompts: PromptsArgs,

    /// How many texts are looked at, at most
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    texts: u32,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// How good an autoencoder is.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Judged {
    /// The model.
    pub model: String,
    /// Where in it.
    pub point: String,
    /// As SAELens calls it.
    pub architecture: String,
    /// How many features there are.
    pub features: usize,
    /// How many texts were looked at.
    pub texts: usize,
    /// How many positions they have.
    pub tokens: u64,
    /// How many features are active at a position, on average.
    pub l0: f64,
    /// The sum of active features at a position, on average.
    pub l1: f64,
    /// The squared error at a position, on average.
    pub squared_error: f64,
    /// The share of the variance that is explained.
    pub explained_variance: f64,
    /// How many features were never active.
    pub dead: usize,
    /// How many features are active how often: never, at most one position in 10,000, in 1,000, in 100, in 10, more often.
    pub density_histogram: Vec<usize>,
    /// The loss of the model, as it is and with something in the place of the point.
    pub loss: Losses,
}

/// Losses of a model: the mean of -log p over the next tokens.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Losses {
    /// As it is.
    pub clean: f64,
    /// With the autoencoder.
    pub spliced: f64,
    /// With zeros.
    pub zeroed: f64,
    /// With the mean.
    pub averaged: f64,
    /// The share of what zeros lose that the autoencoder brings back.
    pub recovered_from_zero: f64,
    /// The share of what the mean loses that the autoencoder brings back.
    pub recovered_from_mean: f64,
}

/// Judges.
///
/// # Errors
///
/// If the model, the autoencoder or texts cannot be read, or do not go together.
pub fn run(args: &Args) -> Result<ExitCode> {
    let judged = args.model.run(args)?;
    match args.json {
        true => render::json(&judged)?,
        false => render::print(&render::sae::judged(&judged, &Screen::of_stdout()))?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Task for &Args {
    type Output = Result<Judged>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<Judged> {
        let model = &subject.model;
        let (sae, point) = super::load(&subject, &self.sae, self.point.as_deref())?;
        let mut texts = Texts::new(&subject, &self.prompts, self.model.model.is_none(), 0)?.unseen();
        let (mut metrics, bar) = (Metrics::new(&sae), Bar::new());
        bar.begin("judging", self.texts as usize);
        let plan = model.plan().cache(point.as_str())?;
        // Their tokens are kept, for the losses.
        let mut inputs: Vec<Tensor> = Vec::new();
        while inputs.len() < self.texts as usize {
            let Some(tokens) = texts.next()? else { break };
            let ids = subject.ids(&tokens)?;
            let cache = plan.collect(|m| m.logits(&ids))?;
            for (_, value) in cache.iter() {
                metrics.add(&sae, value)?;
            }
            bar.run();
            // A single token has no next one.
            if tokens.len() > 1 {
                inputs.push(ids);
            }
        }
        ensure!(
            !inputs.is_empty(),
            "there are no texts of at least two tokens\n  give a file with one in every line"
        );
        let (features, architecture) = (sae.config().d_sae, sae.config().architecture.name().to_string());
        let sae = Hooked::new(sae);
        let loss = LossRecovered::measure(model, &point, &sae, &inputs, |m, ids| {
            next_token_loss(&m.logits(ids)?, ids)
        })?;
        Ok(Judged {
            model: subject.name.clone(),
            point,
            architecture,
            features,
            texts: inputs.len(),
            tokens: metrics.rows(),
            l0: metrics.l0(),
            l1: metrics.l1(),
            squared_error: metrics.squared_error(),
            explained_variance: metrics.explained_variance(),
            dead: metrics.dead().count(),
            density_histogram: metrics.density_histogram(4),
            loss: Losses {
                clean: loss.clean,
                spliced: loss.spliced,
                zeroed: loss.zeroed,
                averaged: loss.averaged,
                recovered_from_zero: loss.from_zero(),
                recovered_from_mean: loss.from_mean(),
            },
        })
    }
}
