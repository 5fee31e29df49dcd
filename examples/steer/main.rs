//! Steering: a direction between two sets of prompts, added while the model writes:
//!
//! ```sh
//! cargo run --release --example steer
//! cargo run --release --example steer -- "The birds" --strength=-1 --strength 0.5 --layer 1
//! cargo run --release --example steer -- --model path/to/gpt2 "I think that" \
//!     --towards "I love this" --away "I hate this" --strength 4
//! ```
//!
//! Without arguments the direction is that from one to many: added to the singular, verbs become plural.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{bail, ensure, Result};
use candle_core::{DType, Tensor, D};
use clap::{Parser, ValueEnum};
use hookpoint::{Hooked, Steps};
use hookpoint_examples::{exit, words, ModelArgs, Progress, Screen, Subject, Task};
use hookpoint_interp::{Site, SteeringVector, Transformer};
use hookpoint_models::language::{Generation, LanguageModel};

/// Many of what is one in the other.
const MANY: &[&str] = &["The dogs", "The girls", "The doctors", "The birds", "The boys", "The teachers"];
const ONE: &[&str] = &["The dog", "The girl", "The doctor", "The bird", "The boy", "The teacher"];
const STRENGTHS: &[f64] = &[-1., 0., 0.5, 1., 1.5];

/// Adds a steering vector, the difference of the means of two sets of prompts, while a model writes.
#[derive(Parser, Clone, Debug)]
#[command(name = "steer")]
struct Args {
    /// What the text begins with
    #[arg(default_value = "The farmer")]
    prompt: String,

    #[command(flatten)]
    model: ModelArgs,

    /// A prompt to steer towards; may be said several times [default: prompts with a plural]
    #[arg(long, value_name = "TEXT")]
    towards: Vec<String>,

    /// A prompt to steer away from; may be said several times [default: the same in the singular]
    #[arg(long, value_name = "TEXT")]
    away: Vec<String>,

    /// How many times the direction is added; may be said several times [default: -1, 0, 0.5, 1, 1.5]
    #[arg(long, allow_negative_numbers = true)]
    strength: Vec<f64>,

    /// The layer before which it is found and added [default: the middle one]
    #[arg(long)]
    layer: Option<usize>,

    /// At which tokens it is added
    #[arg(long, value_enum, default_value_t = At::Prompt)]
    at: At,

    /// How many tokens to add to the prompt
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    tokens: usize,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum At {
    /// The tokens of the prompt
    Prompt,
    /// All tokens, also those that are written
    Every,
}

/// What came of it.
#[derive(Debug)]
struct Steered {
    model: String,
    prompt: String,
    point: String,
    norm: f64,
    texts: Vec<Text>,
}

#[derive(Debug)]
struct Text {
    strength: f64,
    added: String,
    /// The most likely next tokens behind the prompt.
    next: Vec<(String, f32)>,
    same_without_cache: bool,
}

impl Task for &Args {
    type Output = Steered;

    fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<Steered> {
        let model = &subject.model;
        let (layers, layer) = (model.n_layers(), self.layer.unwrap_or(model.n_layers() / 2));
        ensure!(layer < layers, "there is no layer {layer}: this model has {layers}, counted from 0");
        let point = model.point(Site::ResidPre, layer);
        let (towards, away) = self.sets()?;
        let ids = |texts: &[String]| -> hookpoint::Result<Vec<Tensor>> {
            texts.iter().map(|text| subject.ids(&subject.encode(text, 0)?)).collect()
        };
        // At the last token, which knows all of the prompt.
        let at_last = format!("{point}[:, -1]");
        let direction =
            SteeringVector::between(model, at_last, ids(&towards)?, ids(&away)?, |m, ids| m.logits(&ids))?;

        let prompt = subject.encode(&self.prompt, self.tokens.saturating_sub(1))?;
        let strengths = if self.strength.is_empty() { STRENGTHS } else { &self.strength };
        let progress = Progress::new();
        progress.begin("writing", strengths.len() * 2);
        let mut texts = Vec::new();
        for strength in strengths {
            let write = |generation: Generation| {
                progress.run();
                write(model, &direction, *strength, self.at, &prompt, (&point, &generation))
            };
            let (tokens, next) = write(Generation::new(self.tokens))?;
            let (again, _) = write(Generation::new(self.tokens).without_kv_cache())?;
            let text = |(token, share): (u32, f32)| (subject.text(token), share);
            texts.push(Text {
                strength: *strength,
                added: subject.written(tokens.get(prompt.len()..).unwrap_or_default())?,
                next: next.into_iter().map(text).collect(),
                same_without_cache: again == tokens,
            });
        }
        let (model, prompt) = (subject.name.clone(), self.prompt.clone());
        Ok(Steered { model, prompt, point, norm: direction.norm()?, texts })
    }
}

impl Args {
    fn sets(&self) -> Result<(Vec<String>, Vec<String>)> {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        match (self.towards.is_empty(), self.away.is_empty()) {
            (true, true) => Ok((owned(MANY), owned(ONE))),
            (false, false) => Ok((self.towards.clone(), self.away.clone())),
            _ => bail!("a direction has two ends\n  give prompts with --towards and with --away"),
        }
    }
}

/// What is most likely next, with probabilities.
type Next = Vec<(u32, f32)>;

/// Writes with the direction added. Gives the text and what was most likely behind the prompt.
fn write<M: LanguageModel + Transformer>(
    model: &Hooked<M>,
    direction: &SteeringVector,
    strength: f64,
    at: At,
    prompt: &[u32],
    (point, generation): (&str, &Generation),
) -> Result<(Vec<u32>, Next)> {
    let push = direction.hook(strength);
    let plan = match at {
        At::Every => model.plan().hook(point, push)?,
        At::Prompt => model.plan().hook(point, Steps::prompt().limit(push))?,
    };
    // The logits of the first new token: [batch, vocab]
    let run = plan.cache("unembed#0[:, -1]")?.run(|m| m.generate(&[prompt], generation))?;
    let logits = run.cache.try_get("unembed#0[:, -1]")?.get(0)?.to_dtype(DType::F32)?;
    let shares: Vec<f32> = candle_nn::ops::softmax(&logits, D::Minus1)?.to_vec1()?;
    let mut next: Vec<(u32, f32)> = (0..).zip(shares).collect();
    next.sort_by(|a, b| b.1.total_cmp(&a.1));
    next.truncate(2);
    Ok((run.output.into_iter().next().unwrap_or_default(), next))
}

fn main() -> ExitCode {
    exit(run(&Args::parse(), &Screen::of_stdout()))
}

fn run(args: &Args, screen: &Screen) -> Result<()> {
    let steered = args.model.run(args)?;
    Ok(io::stdout().write_all(text(&steered, args, screen).as_bytes())?)
}

fn text(steered: &Steered, args: &Args, screen: &Screen) -> String {
    let mut text = screen.opening(&steered.model) + "\n";
    let quoted = |texts: &[String]| {
        let shown: Vec<String> = texts.iter().take(3).map(|text| words::quoted(text)).collect();
        let more = if texts.len() > 3 { format!(" and {} more", texts.len() - 3) } else { String::new() };
        shown.join(", ") + &more
    };
    if let Ok((towards, away)) = args.sets() {
        text += &screen.note(&format!("towards  {}", quoted(&towards)));
        text += &screen.note(&format!("away     {}", quoted(&away)));
    }
    let meaning = format!(
        "The direction between the two at {}, of length {:.2}, is added so many times while the model writes. Beside \
         each text: what was likely behind the prompt, in %.",
        steered.point, steered.norm
    );
    let _ = write!(text, "\n{}", screen.heading("Steering", &meaning));
    let room = screen.width.saturating_sub(38).max(20);
    for line in &steered.texts {
        let next =
            line.next.iter().map(|(token, share)| format!("{} {:.0}", words::bare(token), share * 100.));
        let whole = format!("{}{}", words::visible(&steered.prompt), words::visible(&line.added));
        let shown = words::padded(&whole, room);
        // What the model wrote stands out, as far as it is shown.
        let (given, added) =
            shown.split_at_checked(words::visible(&steered.prompt).len()).unwrap_or((&shown, ""));
        let strength = screen.heat(&words::right(&format!("{:+} ", line.strength), 7), line.strength / 2.);
        let next = next.collect::<Vec<_>>().join(", ");
        let row =
            format!("  {strength} {given}{} {}", screen.bold(added), screen.dim(&words::padded(&next, 26)));
        let _ = writeln!(text, "{}", row.trim_end());
    }
    let same = match steered.texts.iter().all(|text| text.same_without_cache) {
        true => "Each text is the same with the KV cache and without.",
        false => "WITHOUT THE KV CACHE SOME TEXTS ARE OTHERS.",
    };
    let _ = write!(text, "\n{}", screen.note(same));
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn args(list: &[&str]) -> Args {
        Args::try_parse_from(["steer"].iter().chain(list)).unwrap()
    }

    fn steered(list: &[&str]) -> Steered {
        let args = args(list);
        args.model.run(&args).unwrap()
    }

    fn mistake(list: &[&str]) -> String {
        let args = args(list);
        format!("{:#}", args.model.run(&args).unwrap_err())
    }

    #[test]
    fn one_becomes_many_and_the_kv_cache_does_not_matter() {
        for at in ["every", "prompt"] {
            let steered = steered(&["--strength", "0", "--strength", "2", "--at", at]);
            let [alone, pushed] = steered.texts.as_slice() else { unreachable!() };
            assert!(alone.same_without_cache && pushed.same_without_cache, "{at}");
            assert_ne!(alone.next[0].0, pushed.next[0].0, "{at}: {alone:?} and {pushed:?}");
        }
    }

    #[test]
    fn nothing_added_is_nothing_changed() {
        let steered = steered(&["--strength", "0"]);
        let args = args(&[]);
        let model = hookpoint_models::gpt2::Gpt2::embedded(&args.model.device().unwrap()).unwrap();
        let alone = model.complete(&args.prompt, &Generation::new(4)).unwrap();
        assert_eq!(steered.texts[0].added, alone.trim_end_matches("<|endoftext|>"));
    }

    #[test]
    fn tables_fit_and_are_plain_where_they_have_to_be() {
        let list = ["--strength", "-1", "--strength", "1"];
        let plain = text(&steered(&list), &args(&list), &Screen::plain(80));
        assert!(!plain.contains('\u{1b}'));
        assert!(plain.lines().all(|line| words::width(line) <= 80), "{plain}");
        assert!(plain.contains("-1 ") && plain.contains("+1 "), "{plain}");
    }

    #[test]
    fn mistakes_are_explained() {
        assert!(mistake(&["--towards", "The dog"]).contains("--away"));
        assert!(mistake(&["--layer", "3"]).contains("this model has 3"));
        assert!(mistake(&["--towards", "The unicorn", "--away", "The dog"]).contains("unicorn"));
    }
}
