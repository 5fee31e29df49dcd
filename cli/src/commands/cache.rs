//! `hookpoint cache`: activations of one or many prompts in safetensors files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, Context, Result};
use candle_core::DType;
use clap::ValueEnum;
use hookpoint::{ActivationCache, Plan};
use hookpoint_interp::Transformer;
use hookpoint_models::language::{Generation, LanguageModel};
use hookpoint_models::open::{Subject, Task};
use serde::Serialize;

use crate::args::{ModelArgs, Prompts, PromptsArgs, PROMPT};
use crate::pending::Pending;
use crate::render::bar::Bar;
use crate::render::{self, screen::Screen};

/// The arguments of `hookpoint cache`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  hookpoint cache --points \"blocks.*.hook_resid_post\" --out resid.safetensors
  hookpoint cache model.gguf --prompt \"The cat\" --points \"blocks.*.attn.hook_pattern[:, 0]\" --out a.safetensors
  hookpoint cache --points \"blocks.1.mlp:in[:, -1]\" --prompts lines.txt --out activations/
  zcat big.jsonl.gz | hookpoint cache --points \"blocks.1\" --prompts - --field text --out activations/

One prompt gives one file, whose tensors have the names of the points. Many prompts give a folder: files of about
--file-size, whose names begin with the prompt's line (`12.blocks.1.mlp:in[:, -1]`), and index.jsonl, which has a line
for every prompt. Prompts are read one after another, so a file of any size will do; for corpora, see `harvest`.
Files appear when they are whole.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Which points; `*`, `**`, `{a,b}` select several, `[:, -1]` a part; may be said several times
    #[arg(long, value_name = "PATTERN", required = true)]
    points: Vec<String>,

    /// What the model is given
    #[arg(long, value_name = "TEXT", conflicts_with = "prompts")]
    prompt: Option<String>,

    #[command(flatten)]
    prompts: PromptsArgs,

    /// Also generate so many tokens, and keep what every step had
    #[arg(long, value_name = "COUNT")]
    tokens: Option<usize>,

    /// The numbers in the files
    #[arg(long, value_enum, default_value_t, value_name = "DTYPE")]
    keep: Keep,

    /// The file; with --prompts, the folder
    #[arg(long, value_name = "FILE|FOLDER")]
    out: PathBuf,

    /// With --prompts: a new file begins when one has so many megabytes
    #[arg(long, value_name = "MB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=16_384))]
    file_size: u64,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Default)]
enum Keep {
    /// As the model computes them
    #[default]
    Same,
    /// Seven digits
    F32,
    /// Half of the space, with three digits
    F16,
    /// Half of the space, with two digits
    Bf16,
}

/// What was written.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Saved {
    /// The model.
    pub model: String,
    /// How many prompts were run.
    pub prompts: usize,
    /// How many tokens they have.
    pub tokens: usize,
    /// How many tensors there are.
    pub tensors: usize,
    /// How many bytes the tensors have.
    pub bytes: usize,
    /// The files.
    pub files: Vec<PathBuf>,
    /// The values of the first prompt.
    pub values: Vec<Kept>,
}

/// A value that was kept.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Kept {
    /// Its point, with the index.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub dtype: String,
    /// How many calls of the point were kept.
    pub calls: usize,
    /// How many bytes all of them have.
    pub bytes: usize,
}

/// Runs the model and writes what it had.
///
/// # Errors
///
/// If the model cannot be loaded or given a prompt, a pattern selects nothing, or a file cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let saved = args.model.run(args)?;
    if args.json {
        render::json(&saved)?;
    } else {
        render::print(&render::cache::text(&saved, &Screen::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Task for &Args {
    type Output = Result<Saved>;

    fn with<M: LanguageModel + Transformer>(self, subject: Subject<M>) -> Result<Saved> {
        let taker =
            Taker { args: self, subject: &subject, plan: subject.model.plan().cache(&self.points[..])? };
        match self.prompts.open()? {
            Some(prompts) => many(&taker, prompts, &self.out),
            None => one(&taker, self.prompt.as_deref().unwrap_or(PROMPT), &self.out),
        }
    }
}

/// Takes the activations of one prompt after another.
struct Taker<'a, M> {
    args: &'a Args,
    subject: &'a Subject<M>,
    plan: Plan<'a, M>,
}

impl<M: LanguageModel + Transformer> Taker<'_, M> {
    /// The tokens of a prompt, and what it gives.
    fn take(&self, text: &str) -> Result<(Vec<u32>, ActivationCache)> {
        let tokens = self.subject.encode(text, self.args.tokens.unwrap_or(1).saturating_sub(1))?;
        let cache = match self.args.tokens {
            // Stops as soon as everything is there.
            None => {
                let ids = self.subject.ids(&tokens)?;
                self.plan.collect(|m| m.logits(&ids))?
            }
            Some(count) => self.plan.run(|m| m.generate(&[&tokens], &Generation::new(count)))?.cache,
        };
        let cache = match self.args.keep {
            Keep::Same => cache,
            Keep::F32 => cache.to_dtype(DType::F32)?,
            Keep::F16 => cache.to_dtype(DType::F16)?,
            Keep::Bf16 => cache.to_dtype(DType::BF16)?,
        };
        Ok((tokens, cache))
    }

    fn nothing_yet(&self) -> Saved {
        let model = self.subject.name.clone();
        Saved { model, prompts: 0, tokens: 0, tensors: 0, bytes: 0, files: Vec::new(), values: Vec::new() }
    }
}

impl Saved {
    fn count(&mut self, tokens: &[u32], cache: &ActivationCache) {
        if self.prompts == 0 {
            self.values = values(cache);
        }
        self.prompts += 1;
        self.tokens += tokens.len();
        self.tensors += cache.keys().map(|name| cache.calls(name).len()).sum::<usize>();
        self.bytes += cache.bytes();
    }
}

fn values(cache: &ActivationCache) -> Vec<Kept> {
    let value = |name: &str| {
        let calls = cache.calls(name);
        let first = calls.first()?;
        let bytes = calls.iter().map(|call| call.elem_count() * call.dtype().size_in_bytes()).sum();
        let (shape, dtype) = (first.dims().to_vec(), first.dtype().as_str().to_string());
        Some(Kept { name: name.to_string(), shape, dtype, calls: calls.len(), bytes })
    };
    cache.keys().filter_map(value).collect()
}

fn one<M: LanguageModel + Transformer>(taker: &Taker<'_, M>, prompt: &str, out: &Path) -> Result<Saved> {
    let pending = Pending::file(out)?;
    let (tokens, cache) = taker.take(prompt)?;
    save(&cache, pending.path(), out)?;
    pending.finish()?;
    let mut saved = taker.nothing_yet();
    saved.count(&tokens, &cache);
    saved.files.push(out.to_path_buf());
    Ok(saved)
}

/// The error names the file that the user knows.
fn save(cache: &ActivationCache, path: &Path, out: &Path) -> Result<()> {
    cache.save(path).with_context(|| format!("cannot write {}", out.display()))
}

/// A line of `index.jsonl`.
#[derive(Serialize)]
struct Line<'a> {
    line: usize,
    file: &'a str,
    prompt: &'a str,
    tokens: &'a [u32],
}

fn many<M: LanguageModel + Transformer>(
    taker: &Taker<'_, M>,
    mut prompts: Prompts,
    out: &Path,
) -> Result<Saved> {
    let most = (taker.args.file_size as usize) << 20;
    let pending = Pending::folder(out)?;
    let cannot_write = || format!("cannot write {}", out.display());
    let index = std::fs::File::create(pending.path().join("index.jsonl")).with_context(cannot_write)?;
    let mut index = std::io::BufWriter::new(index);
    let (mut saved, mut file, bar) = (taker.nothing_yet(), ActivationCache::new(), Bar::new());
    bar.begin("caching", 0);
    let mut name = file_name(0);
    while let Some(prompt) = prompts.next().transpose()? {
        let (tokens, cache) =
            taker.take(&prompt.text).with_context(|| format!("in {}", prompts.place(&prompt)))?;
        saved.count(&tokens, &cache);
        for point in cache.keys() {
            for call in cache.calls(point) {
                file.insert(prefixed(prompt.line, point), call.clone());
            }
        }
        serde_json::to_writer(
            &mut index,
            &Line { line: prompt.line, file: &name, prompt: &prompt.text, tokens: &tokens },
        )?;
        index.write_all(b"\n").with_context(cannot_write)?;
        if file.bytes() >= most {
            save(&file, &pending.path().join(&name), &out.join(&name))?;
            saved.files.push(out.join(&name));
            (file, name) = (ActivationCache::new(), file_name(saved.files.len()));
        }
        bar.begin("caching", saved.prompts);
        bar.reach(saved.prompts);
    }
    if saved.prompts == 0 {
        bail!("there are no prompts\n  give a file with one in every line");
    }
    if !file.is_empty() {
        save(&file, &pending.path().join(&name), &out.join(&name))?;
        saved.files.push(out.join(&name));
    }
    index.flush().with_context(cannot_write)?;
    pending.finish()?;
    Ok(saved)
}

fn file_name(number: usize) -> String {
    format!("{number:05}.safetensors")
}

/// A name that `ActivationCache::select("12.**")` finds; the root has none of its own.
fn prefixed(line: usize, point: &str) -> String {
    match point.chars().next() {
        None => line.to_string(),
        Some(':' | '#' | '[') => format!("{line}{point}"),
        Some(_) => format!("{line}.{point}"),
    }
}
