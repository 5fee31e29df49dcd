//! Activations in a file: what a run had at some points, saved as safetensors, read back and compared:
//!
//! ```sh
//! cargo run --release --example cache_to_disk
//! cargo run --release --example cache_to_disk -- "blocks.*.attn.hook_pattern[:, 0]" "blocks.1.mlp.hook_post"
//! cargo run --release --example cache_to_disk -- "**" --dtype f16 --out all.safetensors
//! cargo run --release --example cache_to_disk -- --tokens 5 "blocks.*.hook_resid_post"   # every step of a generation
//! ```
//!
//! Whatever reads safetensors reads the file; its tensors have the names of the points.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{ensure, Context, Result};
use candle_core::{DType, Device, Tensor};
use clap::{Parser, ValueEnum};
use hookpoint::ActivationCache;
use hookpoint_examples::{exit, words, ModelArgs, Screen, Subject, Task};
use hookpoint_interp::Transformer;
use hookpoint_models::language::{Generation, LanguageModel};

/// What is kept where nothing is said.
const POINTS: &[&str] =
    &["hook_embed", "blocks.*.hook_resid_post", "blocks.*.attn.hook_pattern", "unembed[:, -1]"];

/// Runs a model, keeps what it has at some points, writes that to a safetensors file and reads it back.
#[derive(Parser, Clone, Debug)]
#[command(name = "cache_to_disk")]
struct Args {
    /// Which points; `*`, `**`, `{a,b}` select several, `[:, -1]` a part [default: the residual stream, the attention
    /// patterns and the last logits]
    #[arg(value_name = "PATTERN")]
    points: Vec<String>,

    #[command(flatten)]
    model: ModelArgs,

    /// What the model is given
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "When Mary and John went to the store, John gave a drink to"
    )]
    prompt: String,

    /// Also generate so many tokens, and keep what every step had
    #[arg(long, value_name = "COUNT")]
    tokens: Option<usize>,

    /// The numbers in the file
    #[arg(long, value_enum, default_value_t = Numbers::AsComputed)]
    dtype: Numbers,

    /// The file
    #[arg(long, value_name = "FILE", default_value = "target/activations.safetensors")]
    out: PathBuf,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum Numbers {
    /// As the model computes them
    AsComputed,
    /// In half of the space, with three digits
    F16,
    /// In half of the space, with two digits
    Bf16,
}

/// What was written.
#[derive(Debug)]
struct Saved {
    model: String,
    cache: ActivationCache,
    file_bytes: u64,
}

impl Task for &Args {
    type Output = Saved;

    fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<Saved> {
        let prompt = subject.encode(&self.prompt, self.tokens.unwrap_or(1).saturating_sub(1))?;
        let points: Vec<&str> = match self.points.is_empty() {
            true => POINTS.to_vec(),
            false => self.points.iter().map(String::as_str).collect(),
        };
        let plan = subject.model.plan().cache(points)?;
        let ids = subject.ids(&prompt)?;
        let cache = match self.tokens {
            // Stops as soon as everything is there.
            None => plan.collect(|m| m.logits(&ids))?,
            Some(tokens) => plan.run(|m| m.generate(&[&prompt], &Generation::new(tokens)))?.cache,
        };
        let cache = match self.dtype {
            Numbers::AsComputed => cache,
            Numbers::F16 => cache.to_dtype(DType::F16)?,
            Numbers::Bf16 => cache.to_dtype(DType::BF16)?,
        };
        if let Some(folder) = self.out.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        cache.save(&self.out)?;
        let file_bytes = std::fs::metadata(&self.out)?.len();
        let back = ActivationCache::load(&self.out, subject.model.device())?;
        compare(&cache, &back)?;
        Ok(Saved { model: subject.name.clone(), cache, file_bytes })
    }
}

/// An error unless both have the same names in the same order, as many calls of each, and the same bits.
fn compare(saved: &ActivationCache, read: &ActivationCache) -> Result<()> {
    ensure!(saved.keys().eq(read.keys()), "the file has other names than the cache");
    for name in saved.keys() {
        let (one, other) = (saved.calls(name), read.calls(name));
        ensure!(
            one.len() == other.len(),
            "the file has {} calls of `{name}`, not {}",
            other.len(),
            one.len()
        );
        for (one, other) in one.into_iter().zip(other) {
            ensure!(bits(one)? == bits(other)?, "the file has other numbers for `{name}`");
        }
    }
    Ok(())
}

/// Shape, type and content, to the last bit.
fn bits(tensor: &Tensor) -> Result<(Vec<usize>, DType, Vec<u8>)> {
    let mut bytes = Vec::new();
    tensor.to_device(&Device::Cpu)?.flatten_all()?.write_bytes(&mut bytes)?;
    Ok((tensor.dims().to_vec(), tensor.dtype(), bytes))
}

fn main() -> ExitCode {
    exit(run(&Args::parse(), &Screen::of_stdout()))
}

fn run(args: &Args, screen: &Screen) -> Result<()> {
    let saved = args.model.run(args)?;
    Ok(io::stdout().write_all(text(&saved, &args.out, screen).as_bytes())?)
}

fn text(saved: &Saved, path: &Path, screen: &Screen) -> String {
    let Saved { model, cache, file_bytes } = saved;
    let mut text = screen.opening(model) + "\n";
    text += &screen.heading("Activations", "Point by point, in the order in which the model computed them.");
    let largest = cache.keys().map(|name| size(cache, name)).max().unwrap_or(1).max(1);
    for name in cache.keys() {
        let calls = cache.calls(name);
        let shape =
            calls.first().map_or(String::new(), |value| format!("{:?} {:?}", value.dims(), value.dtype()));
        let times = if calls.len() > 1 { format!(" × {}", calls.len()) } else { String::new() };
        let bytes = size(cache, name);
        let bar = "█".repeat((8 * bytes).div_ceil(largest));
        let shown = if name.is_empty() { "(the model)" } else { name };
        let line = format!(
            "  {}  {} {:>9}  {}",
            words::padded(shown, 30),
            words::padded(&(shape + &times), 24),
            readable(bytes as u64),
            screen.accent(&bar)
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let count: usize = cache.keys().map(|name| cache.calls(name).len()).sum();
    let _ = writeln!(
        text,
        "\n{count} tensors, {}, in {}: {}",
        readable(cache.bytes() as u64),
        screen.bold(&path.display().to_string()),
        readable(*file_bytes)
    );
    text += "Read back: the same names, shapes and bits.\n\n";
    let key = cache.keys().find(|name| !name.is_empty()).unwrap_or_default();
    text += &screen.note(&format!("in Rust    ActivationCache::load({path:?}, &device)?[{key:?}]"));
    text += &screen.note(&format!("in Python  safetensors.torch.load_file({path:?})"));
    text
}

fn size(cache: &ActivationCache, name: &str) -> usize {
    let bytes = |value: &&Tensor| value.elem_count() * value.dtype().size_in_bytes();
    cache.calls(name).iter().map(bytes).sum()
}

fn readable(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=999_999 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn args(list: &[&str], folder: &tempfile::TempDir) -> Args {
        let out = folder.path().join("below/there.safetensors");
        let list = list.iter().copied().chain(["--out", out.to_str().unwrap()]);
        Args::try_parse_from(["cache_to_disk"].into_iter().chain(list)).unwrap()
    }

    fn saved(list: &[&str]) -> (Saved, ActivationCache) {
        let folder = tempfile::tempdir().unwrap();
        let args = args(list, &folder);
        let saved = args.model.run(&args).unwrap();
        let back = ActivationCache::load(&args.out, &Device::Cpu).unwrap();
        (saved, back)
    }

    fn mistake(list: &[&str]) -> String {
        let args = args(list, &tempfile::tempdir().unwrap());
        format!("{:#}", args.model.run(&args).unwrap_err())
    }

    #[test]
    fn what_is_read_is_what_was_kept() {
        let (saved, back) = saved(&[]);
        assert_eq!(back.len(), 8);
        assert_eq!(back["blocks.2.attn.hook_pattern"].dims(), [1, 4, 14, 14]);
        assert!(saved.file_bytes as usize > back.bytes());
    }

    #[test]
    fn a_generation_has_every_step() {
        let (_, back) = saved(&["blocks.0.hook_resid_post", "--tokens", "3", "--prompt", "Monday Tuesday"]);
        assert_eq!(back.calls("blocks.0.hook_resid_post").len(), 3);
        assert_eq!(back.join("blocks.0.hook_resid_post", 1).unwrap().dims(), [1, 4, 96]);
    }

    #[test]
    fn half_the_digits_take_half_the_space() {
        let ((whole, _), (half, _)) = (saved(&["blocks.*"]), saved(&["blocks.*", "--dtype", "f16"]));
        assert_eq!(whole.cache.bytes(), 2 * half.cache.bytes());
    }

    #[test]
    fn other_bits_are_noticed() {
        let (saved, mut back) = saved(&["hook_embed"]);
        let name = back.keys().next().unwrap().to_string();
        let other = (&back[name.as_str()] * 1.0000001).unwrap();
        back = ActivationCache::new();
        back.insert(&name, other);
        assert!(compare(&saved.cache, &back).unwrap_err().to_string().contains("other numbers"));
        assert!(compare(&saved.cache, &ActivationCache::new())
            .unwrap_err()
            .to_string()
            .contains("other names"));
    }

    #[test]
    fn tables_fit_and_are_plain_where_they_have_to_be() {
        let (saved, _) = saved(&["**"]);
        let plain = text(&saved, Path::new("some.safetensors"), &Screen::plain(80));
        assert!(!plain.contains('\u{1b}'));
        assert!(plain.lines().all(|line| words::width(line) <= 80), "{plain}");
    }

    #[test]
    fn mistakes_are_explained() {
        let error = mistake(&["blocks.*.attn.hook_patern"]);
        assert!(error.contains("patern") && error.contains("did you mean"), "{error}");
        assert!(mistake(&["blocks.["]).contains("blocks.["));
    }
}
