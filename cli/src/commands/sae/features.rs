//! `hookpoint sae features`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{ensure, Result};
use hookpoint_interp::look::Token;
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};
use hookpoint_sae::{logit_effects, Strongest};
use serde::Serialize;

use super::texts::Texts;
use crate::args::{ModelArgs, PromptsArgs};
use crate::render::{self, bar::Bar, screen::Screen};

/// How many places of a feature are shown.
const PLACES: usize = 8;
/// How many tokens are shown before such a place, and behind it.
const BEFORE: usize = 12;
const BEHIND: usize = 4;
/// How many tokens a feature promotes, in lists.
const TOKENS: usize = 8;

/// The arguments of `hookpoint sae features`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint sae features --sae my-sae
  hookpoint sae features --sae my-sae --feature 17 --feature 205
  hookpoint sae features model.gguf --sae my-sae --prompts corpus.txt --texts 100000 --top 200 --json")]
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
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    texts: u64,

    /// How many features are shown, those that add most
    #[arg(long, value_name = "COUNT", default_value_t = 12, conflicts_with = "feature")]
    top: usize,

    /// Show this feature; may be said several times
    #[arg(long, value_name = "NUMBER")]
    feature: Vec<usize>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Features of an autoencoder.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Features {
    /// The model.
    pub model: String,
    /// Where in it.
    pub point: String,
    /// How many features the autoencoder has.
    pub features_in_all: usize,
    /// How many texts were looked at.
    pub texts: u64,
    /// How many positions they have.
    pub tokens: u64,
    /// Those that were asked for, or that add most.
    pub features: Vec<Feature>,
}

/// A feature, and what it stands for.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Feature {
    /// Its number.
    pub number: usize,
    /// The share of positions at which it is active.
    pub density: f64,
    /// Where it is strongest.
    pub places: Vec<Excerpt>,
    /// The tokens that it makes more likely, where it is a direction of the residual stream, and by how much.
    pub promotes: Vec<Effect>,
    /// The tokens that it makes less likely.
    pub demotes: Vec<Effect>,
}

/// A part of a text around a place.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Excerpt {
    /// How strong the feature is there.
    pub activation: f32,
    /// The tokens around it.
    pub tokens: Vec<Token>,
    /// Which of them it is.
    pub at: usize,
}

/// What a feature does to the logit of a token, less what it does to all.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Effect {
    /// The token.
    pub token: Token,
    /// To its logit, with the scale of the final norm left out.
    pub effect: f32,
}

/// Shows features.
///
/// # Errors
///
/// If the model, the autoencoder or texts cannot be read, or do not go together.
pub fn run(args: &Args) -> Result<ExitCode> {
    let features = args.model.run(args)?;
    match args.json {
        true => render::json(&features)?,
        false => render::print(&render::sae::features(&features, &Screen::of_stdout()))?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Task for &Args {
    type Output = Result<Features>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<Features> {
        let (sae, point) = super::load(&subject, &self.sae, self.point.as_deref())?;
        let count = sae.config().d_sae;
        for number in &self.feature {
            ensure!(*number < count, "there is no feature {number}: there are {count}, counted from 0");
        }
        let mut texts = Texts::new(&subject, &self.prompts, self.model.model.is_none(), 0)?.unseen();
        let plan = subject.model.plan().cache(point.as_str())?;
        let (mut strongest, mut seen, bar) = (Strongest::new(&sae, PLACES), 0, Bar::new());
        bar.begin("looking", self.texts as usize);
        while seen < self.texts {
            let Some(tokens) = texts.next()? else { break };
            let ids = subject.ids(&tokens)?;
            let cache = plan.collect(|m| m.logits(&ids))?;
            for (_, value) in cache.iter() {
                strongest.add(&sae, &tokens, value)?;
            }
            seen += 1;
            bar.run();
        }
        ensure!(seen > 0, "there are no texts\n  give a file with one in every line");
        let token = |id: u32| Token { id, text: subject.text(id) };
        let numbers = if self.feature.is_empty() { strongest.ranked() } else { self.feature.clone() };
        let most = if self.feature.is_empty() { self.top } else { usize::MAX };
        let is_residual = sae.config().d_in == subject.model.final_norm()?.weight().elem_count();
        let mut features = Vec::new();
        for number in numbers.into_iter().take(most) {
            let places = strongest.places(number).iter().map(|place| {
                let from = place.at.saturating_sub(BEFORE);
                let to = (place.at + BEHIND + 1).min(place.tokens.len());
                let tokens = place.tokens.get(from..to).unwrap_or_default();
                Excerpt {
                    activation: place.activation,
                    tokens: tokens.iter().map(|id| token(*id)).collect(),
                    at: place.at - from,
                }
            });
            let places = places.collect();
            let mut effects: Vec<Effect> = Vec::new();
            if is_residual {
                let all = logit_effects(&*subject.model, &sae.direction(number)?)?;
                let mut order: Vec<(u32, f32)> = (0..).zip(all).collect();
                order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
                effects.extend(order.into_iter().map(|(id, effect)| Effect { token: token(id), effect }));
            }
            features.push(Feature {
                number,
                density: strongest.density(number),
                places,
                promotes: effects.iter().take(TOKENS).cloned().collect(),
                demotes: effects.iter().rev().take(TOKENS).cloned().collect(),
            });
        }
        let model = subject.name.clone();
        Ok(Features { model, point, features_in_all: count, texts: seen, tokens: strongest.rows(), features })
    }
}
