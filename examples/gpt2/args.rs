//! The command line.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::Parser;
use hookpoint_examples::ModelArgs;

/// What is looked at where nothing is said.
pub const PROMPT: &str = "When Mary and John went to the store, John gave a drink to";
/// The same with another giver, and so another answer.
pub const CORRUPTED: &str = "When Mary and John went to the store, Mary gave a drink to";

/// Takes a transformer apart: what it says next, how it gets there layer by layer, which heads are responsible and
/// where they look, and which activations carry the answer.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "gpt2",
    after_help = "\
Without arguments, the small GPT-2 that comes with hookpoint is given a prompt that it was trained for.

Examples, after `cargo run --release --example gpt2 --`:
  --out gpt2.html                        a page to browse; it needs no network
  --json                                 everything as one JSON document
  --prompt \"Anna and Bob ..\" --corrupt \"Anna and Eve ..\"
  --model path/to/gpt2 --answer Mary --wrong John
  --model path/to/model.gguf             Llama, Qwen2 or Mistral, as llama.cpp writes them"
)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,

    /// What the model is given
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,

    /// Another prompt of as many tokens, that leads elsewhere; needed for activation patching
    #[arg(long, value_name = "TEXT")]
    pub corrupt: Option<String>,

    /// The next token to explain [default: the most likely]
    #[arg(long, value_name = "TOKEN")]
    pub answer: Option<String>,

    /// The token that it is compared with [default: what the corrupted prompt leads to, or else the next likely]
    #[arg(long, value_name = "TOKEN")]
    pub wrong: Option<String>,

    /// How many tokens and heads are shown in lists
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=50))]
    pub top: usize,

    /// Print one JSON document instead of tables
    #[arg(long)]
    pub json: bool,

    /// Write one HTML page, with everything in it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl Args {
    /// The prompt, and the corrupted one: the default's own only goes with the default.
    pub fn prompts(&self) -> (&str, Option<&str>) {
        match &self.prompt {
            Some(prompt) => (prompt, self.corrupt.as_deref()),
            None => (PROMPT, Some(self.corrupt.as_deref().unwrap_or(CORRUPTED))),
        }
    }
}
