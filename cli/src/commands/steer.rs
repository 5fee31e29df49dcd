//! `hookpoint steer`: a direction between two sets of prompts, kept in a file, added while a model writes.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure, Context, Result};
use candle_core::{DType, Tensor, D};
use hookpoint_interp::{Site, SteeringVector, Transformer};
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};
use serde::Serialize;

use crate::args::{At, ModelArgs, Past, Prompts, WritingArgs};
use crate::render::{self, bar::Bar, screen::Screen};
use crate::steering;

/// Many of what is one in the other.
const MANY: &[&str] = &["The dogs", "The girls", "The doctors", "The birds", "The boys", "The teachers"];
const ONE: &[&str] = &["The dog", "The girl", "The doctor", "The bird", "The boy", "The teacher"];
const STRENGTHS: &[f64] = &[-1., 0., 0.5, 1., 1.5];

/// The arguments of `hookpoint steer`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint steer
  hookpoint steer --towards \"I love this\" --away \"I hate this\" --prompt \"I think that\" --strength 4
  hookpoint steer model.gguf --towards-file happy.txt --away-file sad.txt --layer 12 --out happy.safetensors
  hookpoint steer --vector happy.safetensors --prompt \"Today\" --strength 2 --strength -2
  hookpoint generate --steer happy.safetensors --strength 3 --prompt \"Today\"

The direction is the mean over the prompts to steer towards less that over those to steer away from, at the last token
of each. Without prompts it is that from one to many: added to the singular, verbs become plural.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// A prompt to steer towards; may be said several times
    #[arg(long, value_name = "TEXT")]
    towards: Vec<String>,

    /// A prompt to steer away from; may be said several times
    #[arg(long, value_name = "TEXT")]
    away: Vec<String>,

    /// A file of prompts to steer towards, one in every line
    #[arg(long, value_name = "FILE")]
    towards_file: Option<PathBuf>,

    /// A file of prompts to steer away from
    #[arg(long, value_name = "FILE")]
    away_file: Option<PathBuf>,

    /// The layer before which the direction is found and added [default: the middle one]
    #[arg(long, conflicts_with = "point")]
    layer: Option<usize>,

    /// The point where the direction is found and added, `[batch, pos, features]`
    #[arg(long, value_name = "POINT")]
    point: Option<String>,

    /// Read the direction from this file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["towards", "away", "towards_file", "away_file", "layer", "point", "out"])]
    vector: Option<PathBuf>,

    /// Keep the direction in this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// What the texts begin with
    #[arg(long, value_name = "TEXT", default_value = "The farmer")]
    prompt: String,

    /// How many times the direction is added; may be said several times [default: -1, 0, 0.5, 1, 1.5]
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER")]
    strength: Vec<f64>,

    /// At which tokens it is added: every, prompt, new, or steps such as 1..4
    #[arg(long, value_name = "STEPS", default_value = "prompt")]
    at: At,

    /// What steps remember
    #[arg(long, value_enum, default_value_t)]
    past: Past,

    #[command(flatten)]
    writing: WritingArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Steered {
    /// The model.
    pub model: String,
    /// What the texts begin with.
    pub prompt: String,
    /// Where the direction is added.
    pub point: String,
    /// How long it is.
    pub norm: f64,
    /// One for each strength.
    pub texts: Vec<Text>,
    /// Where the direction is kept.
    pub file: Option<PathBuf>,
}

/// A text that was written with the direction added.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Text {
    /// How many times it was added.
    pub strength: f64,
    /// What the model wrote.
    pub added: String,
    /// The most likely tokens behind the prompt.
    pub next: Vec<Next>,
}

/// A token that may come next.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Next {
    /// The token.
    pub token: String,
    /// From 0 to 1.
    pub probability: f32,
}

/// Steers.
///
/// # Errors
///
/// If the model cannot be loaded or given the prompts, or a file cannot be read or written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let steered = args.model.run(args)?;
    match args.json {
        true => render::json(&steered)?,
        false => render::print(&render::steer::text(&steered, &Screen::of_stdout()))?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Task for &Args {
    type Output = Result<Steered>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<Steered> {
        let prompt = subject.encode(&self.prompt, self.writing.tokens.saturating_sub(1))?;
        let vector = match &self.vector {
            Some(path) => steering::load(path, subject.model.device())?,
            None => self.find(&subject)?,
        };
        if let Some(path) = &self.out {
            steering::save(&vector, path)?;
        }
        let strengths = if self.strength.is_empty() { STRENGTHS } else { &self.strength };
        let bar = Bar::new();
        bar.begin("writing", strengths.len());
        let texts = strengths.iter().map(|strength| {
            bar.run();
            self.write(&subject, &vector, *strength, &prompt)
        });
        let texts = texts.collect::<Result<_>>()?;
        Ok(Steered {
            model: subject.name.clone(),
            prompt: self.prompt.clone(),
            point: steering::point(&vector)?,
            norm: vector.norm()?,
            texts,
            file: self.out.clone().or_else(|| self.vector.clone()),
        })
    }
}

impl Args {
    fn find<M: LanguageModel + Transformer>(&self, subject: &Subject<M>) -> Result<SteeringVector> {
        let (model, layers) = (&subject.model, subject.model.n_layers());
        let layer = self.layer.unwrap_or(layers / 2);
        ensure!(layer < layers, "there is no layer {layer}: this model has {layers}, counted from 0");
        let point = self.point.clone().unwrap_or_else(|| model.point(Site::ResidPre, layer));
        // At the last token, which knows all of the prompt.
        let at_last = if point.contains('[') { point } else { format!("{point}[:, -1]") };
        let (towards, away) = self.sets()?;
        let ids = |text: &String| -> Result<Tensor> {
            let tokens = subject.encode(text, 0).with_context(|| format!("in the prompt `{text}`"))?;
            Ok(subject.ids(&tokens)?)
        };
        let (towards, away): (Vec<Tensor>, Vec<Tensor>) =
            (towards.iter().map(ids).collect::<Result<_>>()?, away.iter().map(ids).collect::<Result<_>>()?);
        Ok(SteeringVector::between(model, at_last, towards, away, |m, ids| m.logits(&ids))?)
    }

    fn sets(&self) -> Result<(Vec<String>, Vec<String>)> {
        let set = |texts: &[String], file: &Option<PathBuf>| -> Result<Vec<String>> {
            let mut all = texts.to_vec();
            if let Some(path) = file {
                let prompts = Prompts::open(path, None)?;
                all.extend(prompts.map(|prompt| Ok(prompt?.text)).collect::<Result<Vec<_>>>()?);
            }
            Ok(all)
        };
        let (towards, away) = (set(&self.towards, &self.towards_file)?, set(&self.away, &self.away_file)?);
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        match (towards.is_empty(), away.is_empty()) {
            (true, true) if self.towards_file.is_none() && self.away_file.is_none() => {
                Ok((owned(MANY), owned(ONE)))
            }
            (false, false) => Ok((towards, away)),
            _ => bail!("a direction has two ends\n  give prompts to steer --towards and --away"),
        }
    }

    fn write<M: LanguageModel + Transformer>(
        &self,
        subject: &Subject<M>,
        vector: &SteeringVector,
        strength: f64,
        prompt: &[u32],
    ) -> Result<Text> {
        let point = steering::point(vector)?;
        let generation = self.past.of(self.writing.generation());
        let plan = subject.model.plan().hook(point.as_str(), self.at.steps().limit(vector.hook(strength)))?;
        // The logits of the first new token: [batch, vocab]
        let plan = plan.cache("unembed#0[:, -1]")?;
        let run = plan.run(|m| m.generate(&[prompt], &generation))?;
        let logits = run.cache.try_get("unembed#0[:, -1]")?.get(0)?.to_dtype(DType::F32)?;
        let shares: Vec<f32> = candle_nn::ops::softmax(&logits, D::Minus1)?.to_vec1()?;
        let mut next: Vec<(u32, f32)> = (0..).zip(shares).collect();
        next.sort_by(|a, b| b.1.total_cmp(&a.1));
        let next = next.into_iter().take(3);
        let written = run.output.first().and_then(|all| all.get(prompt.len()..)).unwrap_or_default();
        Ok(Text {
            strength,
            added: subject.written(written)?,
            next: next.map(|(id, probability)| Next { token: subject.text(id), probability }).collect(),
        })
    }
}
