//! Text from a model, token by token, with hooks in force at every step:
//!
//! ```sh
//! cargo run --release --example generate
//! cargo run --release --example generate -- "Monday Tuesday Wednesday" --tokens 3
//! cargo run --release --example generate -- "After Nora and Hugo went to" --temperature 0.9 --top-k 20 --seed 3
//! cargo run --release --example generate -- --model path/to/gpt2 "The capital of France is"
//! ```
//!
//! The plan is that of a single forward pass; the cache keeps every step. With a KV cache each step computes only
//! the new token, without one the whole text anew: hooks that ask for the last position see the same.

mod steps;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use hookpoint::Run;
use hookpoint_examples::{exit, words, ModelArgs, Screen, Subject, Task};
use hookpoint_interp::Transformer;
use hookpoint_models::language::{Generation, LanguageModel, Sampling};

use steps::Step;

/// Continues a text, and shows what the model expected and which head wrote most at every step.
#[derive(Parser, Clone, Debug)]
#[command(name = "generate")]
struct Args {
    /// What the text begins with
    #[arg(default_value = "When Mary and John went to the store, John gave a drink to")]
    prompt: String,

    #[command(flatten)]
    model: ModelArgs,

    /// How many tokens to add, if the text does not end before
    #[arg(long, value_name = "COUNT", default_value_t = 12)]
    tokens: usize,

    /// Choose at random; below 1 rather the likely tokens, above 1 also unlikely ones
    #[arg(long)]
    temperature: Option<f64>,

    /// Choose at random, among so many of the most likely tokens
    #[arg(long, value_name = "COUNT")]
    top_k: Option<usize>,

    /// Choose at random, among the most likely tokens that together have this probability
    #[arg(long, value_name = "SHARE")]
    top_p: Option<f64>,

    /// Choose at random; equal seeds give equal texts
    #[arg(long)]
    seed: Option<u64>,
}

impl Args {
    /// Greedy unless something is said that only makes sense otherwise.
    fn generation(&self) -> Generation {
        let Self { temperature, top_k, top_p, seed, .. } = *self;
        let random = temperature.is_some() || top_k.is_some() || top_p.is_some() || seed.is_some();
        let sampling = match random {
            false => Sampling::Greedy,
            true => Sampling::Random {
                temperature: temperature.unwrap_or(1.),
                top_k,
                top_p,
                seed: seed.unwrap_or(0),
            },
        };
        Generation::new(self.tokens).sampling(sampling)
    }
}

/// A text, and how it came about.
#[derive(Debug)]
struct Story {
    model: String,
    prompt: String,
    added: String,
    steps: Vec<Step>,
    /// How many positions were computed, with a KV cache and without.
    computed: [usize; 2],
    /// Whether the text without a KV cache is the same, and how far its logits are off.
    same_without: bool,
    apart: f32,
}

impl Task for &Args {
    type Output = Story;

    fn with<M: LanguageModel + Transformer>(self, subject: &Subject<M>) -> Result<Story> {
        let prompt = subject.encode(&self.prompt, self.tokens.saturating_sub(1))?;
        let plan = steps::plan(&subject.model)?;
        let write = |generation: Generation| plan.run(|m| m.generate(&[&prompt], &generation));
        let run = write(self.generation())?;
        let anew = write(self.generation().without_kv_cache())?;
        let added = &run.output[0][prompt.len()..];
        Ok(Story {
            model: subject.name.clone(),
            prompt: self.prompt.clone(),
            added: subject.written(added)?,
            steps: steps::all(subject, &run.cache, &run.output[0], prompt.len())?,
            computed: [seen(&run), seen(&anew)],
            same_without: anew.output == run.output,
            apart: steps::apart(&run.cache, &anew.cache)?,
        })
    }
}

/// How many positions all steps together have seen.
fn seen<T>(run: &Run<T>) -> usize {
    let steps = run.cache.calls(steps::POSITIONS);
    steps.iter().filter_map(|ids| ids.dims().last()).sum()
}

fn main() -> ExitCode {
    exit(run(&Args::parse(), &Screen::of_stdout()))
}

fn run(args: &Args, screen: &Screen) -> Result<()> {
    let story = args.model.run(args)?;
    Ok(io::stdout().write_all(text(&story, screen).as_bytes())?)
}

fn text(story: &Story, screen: &Screen) -> String {
    let mut text = screen.opening(&story.model) + "\n";
    let whole = format!("{}{}", words::visible(&story.prompt), words::visible(&story.added));
    for line in words::wrapped(&whole, screen.width.saturating_sub(4)) {
        let _ = writeln!(text, "  {}", screen.bold(&line));
    }
    text.push('\n');
    let meaning =
        "What the model expected, in %, and the head that wrote most into the residual stream at the \
                   last token, with the token that it looked at.";
    text += &screen.heading("Step by step", meaning);
    text += &steps::table(&story.steps, screen);
    text.push('\n');
    let [with, without] = story.computed;
    let same = match story.same_without {
        true => "the same text",
        false => "ANOTHER TEXT",
    };
    text += &screen.note(&format!(
        "With a KV cache {with} positions were computed; without one {without} for {same}, with logits that differ by at \
         most {:.0e}.",
        story.apart
    ));
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn args(list: &[&str]) -> Args {
        Args::try_parse_from(["generate"].iter().chain(list)).unwrap()
    }

    fn story(list: &[&str]) -> Story {
        let args = args(list);
        args.model.run(&args).unwrap()
    }

    fn mistake(list: &[&str]) -> String {
        let args = args(list);
        format!("{:#}", args.model.run(&args).unwrap_err())
    }

    #[test]
    fn it_writes_the_indirect_object_with_and_without_a_kv_cache() {
        let story = story(&["--tokens", "2"]);
        assert_eq!(story.added, " Mary.");
        assert!(story.same_without && story.apart < 1e-3, "{}", story.apart);
        assert_eq!(story.steps.len(), 2);
        assert_eq!(story.computed, [14 + 1, 14 + 15]);
        assert_eq!(story.steps[0].token, " Mary");
        assert_eq!((story.steps[0].position, story.steps[1].position), (13, 14));
        assert!(story.steps[0].share > 0.9);
    }

    #[test]
    fn equal_seeds_give_equal_texts_and_others_do_not() {
        let list = ["The", "--temperature", "1.5", "--tokens", "8", "--seed"];
        let with = |seed: &'static str| story(&[&list[..], &[seed]].concat());
        let texts: Vec<String> = ["1", "1", "2", "3"].map(|seed| with(seed).added).to_vec();
        assert_eq!(texts[0], texts[1]);
        assert!(texts[1..].iter().any(|text| *text != texts[0]), "{texts:?}");
        assert!(with("1").same_without);
    }

    #[test]
    fn tables_fit_and_are_plain_where_they_have_to_be() {
        let story = story(&["--tokens", "4", "--seed", "1"]);
        let plain = text(&story, &Screen::plain(80));
        assert!(!plain.contains('\u{1b}'));
        assert!(plain.lines().all(|line| words::width(line) <= 80), "{plain}");
        assert!(plain.contains("the same text"), "{plain}");
    }

    #[test]
    fn mistakes_are_explained() {
        assert!(mistake(&["--temperature", "0"]).contains("above 0"));
        assert!(mistake(&["--top-k", "0"]).contains("at least 1"));
        assert!(mistake(&["--tokens", "100"]).contains("shorten it"));
        assert!(mistake(&["The xylophone"]).contains("xylophone"));
        assert!(mistake(&[""]).contains("empty"));
        assert!(mistake(&["--device", "abacus"]).contains("abacus"));
    }
}
