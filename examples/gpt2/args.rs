//! The command line.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::Parser;
use hookpoint_cli::args::QuestionArgs;
use hookpoint_examples::ModelArgs;

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

    #[command(flatten)]
    pub question: QuestionArgs,

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
