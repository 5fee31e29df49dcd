//! How texts are written.

use anyhow::{bail, Result};
use clap::ValueEnum;
use hookpoint::Steps;
use hookpoint_models::language::{Generation, Sampling};

/// The arguments that say how tokens are chosen.
#[derive(clap::Args, Clone, Debug)]
pub struct WritingArgs {
    /// How many tokens to add, if the text does not end before
    #[arg(long, value_name = "COUNT", default_value_t = 12)]
    pub tokens: usize,

    /// Choose at random; below 1 rather the likely tokens, above 1 also unlikely ones
    #[arg(long, value_name = "NUMBER")]
    pub temperature: Option<f64>,

    /// Choose at random, among so many of the most likely tokens
    #[arg(long, value_name = "COUNT")]
    pub top_k: Option<usize>,

    /// Choose at random, among the most likely tokens that together have this probability
    #[arg(long, value_name = "SHARE")]
    pub top_p: Option<f64>,

    /// Choose at random; equal seeds give equal texts
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

impl WritingArgs {
    /// Greedy unless something is said that only makes sense otherwise.
    pub fn generation(&self) -> Generation {
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

/// At which tokens something is done while a text is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// The tokens of the prompt, and those that are written.
    Every,
    /// The tokens of the prompt.
    Prompt,
    /// Those that are written.
    New,
    /// These steps; 0 is the prompt.
    Between(usize, usize),
}

impl std::str::FromStr for At {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = |from: &str, to: &str| Some((from.parse().ok()?, to.parse().ok()?));
        Ok(match text {
            "every" => Self::Every,
            "prompt" => Self::Prompt,
            "new" => Self::New,
            _ => match text.split_once("..").and_then(|(from, to)| numbers(from, to)) {
                Some((from, to)) if from < to => Self::Between(from, to),
                _ => bail!("steps are `every`, `prompt`, `new`, or numbers such as `1..4`, from the first to before the last"),
            },
        })
    }
}

impl At {
    /// The same for the library.
    pub fn steps(&self) -> Steps {
        match self {
            Self::Every => Steps::every(),
            Self::Prompt => Steps::prompt(),
            Self::New => Steps::between(1..usize::MAX),
            Self::Between(from, to) => Steps::between(*from..*to),
        }
    }
}

/// Whether a step remembers the ones before it.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Past {
    /// Keys and values are kept: each step computes one token
    #[default]
    Kept,
    /// Each step computes the whole text anew
    Anew,
}

impl Past {
    /// The generation with or without a KV cache.
    pub fn of(self, generation: Generation) -> Generation {
        match self {
            Self::Kept => generation,
            Self::Anew => generation.without_kv_cache(),
        }
    }
}
