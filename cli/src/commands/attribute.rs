//! `hookpoint attribute`: how much activations matter, estimated with gradients.

use std::process::ExitCode;

use anyhow::{bail, Result};
use candle_core::{DType, Tensor};
use clap::ValueEnum;
use hookpoint_interp::attribution::{self, Attribution};
use hookpoint_interp::look::Question;
use hookpoint_interp::{Site, Transformer};
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};

use crate::args::{ModelArgs, QuestionArgs};
use crate::map::{Cell, Format, Map, MapAxis, Maps};

/// The arguments of `hookpoint attribute`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint attribute
  hookpoint attribute --method gradient --prompt \"The capital of France is\"
  hookpoint attribute --method integrated --steps 16 --points \"blocks.*.mlp.hook_post\" --csv
  hookpoint attribute --json | jq '.maps[].cells | max_by(.effect)'

What `patch` measures with a run for each cell, two runs and one backward pass estimate for all of them.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    question: QuestionArgs,

    /// How it is estimated
    #[arg(long, value_enum, default_value_t)]
    method: Method,

    /// For --method integrated: over how many steps from the corrupted to the clean value
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    steps: u16,

    /// Points by patterns, one number for each [default: residual stream, attention and mlp by position, and heads]; may be said
    /// several times
    #[arg(long, value_name = "PATTERN")]
    points: Vec<String>,

    #[command(flatten)]
    format: Format,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Method {
    /// What patching the clean value into the corrupted run would change: gradient times difference
    #[default]
    Patching,
    /// The same with the gradient averaged on the way: closer, and a run for each step and point
    Integrated,
    /// What setting the value to zero would take away: gradient times activation, for one prompt
    Gradient,
}

/// Attributes, and prints what it found.
///
/// # Errors
///
/// If the model cannot be loaded or given the prompts.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.model.run(args)?.print(args.format)?;
    Ok(ExitCode::SUCCESS)
}

/// What is attributed to where nothing is said: name, site, and what its cells are.
const USUAL: [(&str, Site, &str); 4] = [
    ("residual stream before each block", Site::ResidPre, "position"),
    ("attention", Site::AttnOut, "position"),
    ("mlp", Site::MlpOut, "position"),
    ("heads", Site::HeadOut, "head"),
];

impl Task for &Args {
    type Output = Result<Maps>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<Maps> {
        let question = self.question.ask(&subject)?;
        let model = &subject.model;
        let points =
            |site: Site| (0..model.n_layers()).map(|layer| model.point(site, layer)).collect::<Vec<_>>();
        let asked: Vec<String> = match self.points.is_empty() {
            true => USUAL.iter().flat_map(|(_, site, _)| points(*site)).collect(),
            false => self.points.clone(),
        };
        let found = self.attribute(&subject, &question, &asked)?;
        let method = match self.method {
            Method::Patching => "attribute patching",
            Method::Integrated => "attribute integrated",
            Method::Gradient => "attribute gradient",
        };
        let mut maps = Maps::new(&subject, method, &question);
        maps.clean = found.clean_metric.unwrap_or(found.metric);
        maps.corrupted = found.clean_metric.map(|_| found.metric);
        if self.points.is_empty() {
            for (name, site, cells) in USUAL {
                // Names of the peers are found by `select`, which gives them as they are here.
                maps.maps.push(by_cell(name, &found, &points(site), cells)?);
            }
        } else {
            let cell = |(name, sum): (&str, f64)| cell_of(name.to_string(), sum, &found);
            let labels = found.sums().map(|(name, _)| name.to_string()).collect();
            let axes = vec![MapAxis { name: "point".to_string(), labels }];
            let name = self.points.join(", ");
            maps.maps.push(Map { name, axes, cells: found.sums().map(cell).collect() });
        }
        Ok(maps)
    }
}

impl Args {
    fn attribute<M: LanguageModel + Transformer>(
        &self,
        subject: &Subject<M>,
        question: &Question,
        points: &[String],
    ) -> Result<Attribution> {
        let (answer, wrong) = (question.answer() as usize, question.wrong() as usize);
        // [1, pos, vocab]
        let metric = move |logits: &Tensor| -> candle_core::Result<Tensor> {
            let last = logits.get(0)?.get(logits.dim(1)? - 1)?.to_dtype(DType::F32)?;
            (last.narrow(0, answer, 1)? - last.narrow(0, wrong, 1)?)?.sum_all()
        };
        let (model, ids) = (&subject.model, subject.ids(question.prompt())?);
        if self.method == Method::Gradient {
            return Ok(attribution::gradient_x_activation(model, |m| m.logits(&ids), metric, points)?);
        }
        let Some(corrupted) = question.corrupted() else {
            bail!(
                "this compares two prompts\n  give another of as many tokens with --corrupt, or choose --method gradient"
            );
        };
        let corrupted = subject.ids(corrupted)?;
        Ok(match self.method {
            Method::Integrated => attribution::integrated_gradients(
                model,
                |m| m.logits(&ids),
                |m| m.logits(&corrupted),
                metric,
                points,
                usize::from(self.steps),
            )?,
            _ => attribution::patching(model, |m| m.logits(&ids), |m| m.logits(&corrupted), metric, points)?,
        })
    }
}

fn cell_of(name: String, sum: f64, found: &Attribution) -> Cell {
    let finite = |number: f64| number.is_finite().then_some(number);
    let between = found.clean_metric.map(|clean| clean - found.metric).filter(|between| *between != 0.);
    Cell {
        name,
        value: None,
        effect: finite(sum),
        recovered: between.and_then(|between| finite(sum / between)),
    }
}

/// One row for each point, and one column for each position of `[1, pos, ..]` or head of `[1, pos, head, ..]`.
fn by_cell(name: &str, found: &Attribution, points: &[String], cells: &str) -> Result<Map> {
    let (mut all, mut columns, mut labels) = (Vec::new(), 0, Vec::new());
    for point in points {
        let selected = found.tensors.select(point.as_str())?;
        for (key, tensor) in selected.iter() {
            // Sums of f32 would depend on the order.
            let tensor = tensor.get(0)?.to_dtype(DType::F64)?;
            let sums: Vec<f64> = match cells {
                "head" => tensor.sum(0)?.flatten_from(1)?.sum(1)?.to_vec1()?,
                _ => tensor.flatten_from(1)?.sum(1)?.to_vec1()?,
            };
            columns = sums.len();
            for (at, sum) in sums.into_iter().enumerate() {
                let index = if cells == "head" { format!("[:, :, {at}]") } else { format!("[:, {at}]") };
                all.push(cell_of(format!("{key}{index}"), sum, found));
            }
            labels.push(key.to_string());
        }
    }
    let numbers = (0..columns).map(|at| at.to_string()).collect();
    let axes = vec![
        MapAxis { name: "layer".to_string(), labels },
        MapAxis { name: cells.to_string(), labels: numbers },
    ];
    Ok(Map { name: name.to_string(), axes, cells: all })
}
