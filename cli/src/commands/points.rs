//! `hookpoint points`: what can be hooked, and what a pattern selects of it.

use std::process::ExitCode;

use anyhow::Result;
use hookpoint::{ErrorKind, HookDict};
use hookpoint_interp::look::Point;
use hookpoint_interp::Transformer;
use hookpoint_models::language::LanguageModel;
use hookpoint_models::open::{Subject, Task};
use serde::Serialize;

use crate::args::ModelArgs;
use crate::render::{self, screen::Screen};

/// The arguments of `hookpoint points`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint points
  hookpoint points --match \"blocks.*.attn:pattern\"
  hookpoint points model.gguf --match \"blocks.{0,5}.mlp:in[:, -1]\" --prompt \"The cat\"
  hookpoint points --json | jq -r '.points[] | select(.kind == \"value\") | .name'

Patterns: `*` inside one segment, `**` any number of segments, `{a,b}` alternatives, `:value`, `#call`, `[index]`.

Exit codes: 0 done, 1 the pattern selects nothing, 2 an error.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Show what this pattern selects, with the shapes of the parts that its index takes
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,

    /// What the model is given, so that values have shapes [default: a few tokens]
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The points of a model.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Points {
    /// What was looked into.
    pub model: String,
    /// How many tokens the run was given.
    pub tokens: usize,
    /// All of them; with a pattern, those that it selects.
    pub points: Vec<Point>,
    /// None without a pattern.
    pub matched: Option<Matched>,
}

/// What a pattern selects.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Matched {
    /// The pattern.
    pub pattern: String,
    /// What the run gave there: each part that the index takes, call by call.
    pub values: Vec<Value>,
    /// The names that come closest, where it selects nothing.
    pub nearest: Vec<String>,
}

/// A value of the run.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Value {
    /// Its point, with the index.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub dtype: String,
    /// How often the run came by.
    pub calls: usize,
}

/// Lists points.
///
/// # Errors
///
/// If the model cannot be loaded, or the pattern cannot be parsed.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (points, dict) = args.model.run(args)?;
    let selects_nothing = points.matched.is_some() && points.points.is_empty();
    if args.json {
        render::json(&points)?;
    } else {
        render::print(&render::points::text(&points, &dict, &Screen::of_stdout()))?;
    }
    Ok(if selects_nothing { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

impl Task for &Args {
    type Output = Result<(Points, HookDict)>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Self::Output {
        let model = &subject.model;
        let tokens = match &self.prompt {
            Some(text) => subject.encode(text, 0)?,
            // Any will do, and there need not be a tokenizer.
            None => (0..model.vocab_size().min(model.n_positions()).min(4) as u32).collect(),
        };
        let ids = subject.ids(&tokens)?;
        let scan = model.scan(|m| m.logits(&ids))?;
        let all = |dict: &HookDict| dict.iter().map(Point::from).collect::<Vec<_>>();
        let found =
            |points, matched| Points { model: subject.name.clone(), tokens: tokens.len(), points, matched };
        let Some(pattern) = &self.pattern else {
            return Ok((found(all(&scan.dict), None), scan.dict));
        };
        let matched = |values, nearest| Some(Matched { pattern: pattern.clone(), values, nearest });
        let selected = match scan.dict.select(pattern.as_str()) {
            Ok(selected) => selected,
            Err(error) => match error.kind() {
                ErrorKind::NoMatch { nearest, .. } => {
                    return Ok((
                        found(Vec::new(), matched(Vec::new(), nearest.clone())),
                        HookDict::default(),
                    ));
                }
                _ => return Err(error.into()),
            },
        };
        let cache = model.plan().cache(pattern.as_str())?.allow_unfired().run(|m| m.logits(&ids))?.cache;
        let value = |name: &str| {
            let calls = cache.calls(name);
            let last = calls.last()?;
            let (shape, dtype) = (last.dims().to_vec(), last.dtype().as_str().to_string());
            Some(Value { name: name.to_string(), shape, dtype, calls: calls.len() })
        };
        let values = cache.keys().filter_map(value).collect();
        Ok((found(all(&selected), matched(values, Vec::new())), selected))
    }
}
