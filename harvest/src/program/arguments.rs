//! The arguments of the commands.

use clap::{Args, Subcommand};

/// What can be done with a harvest.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Decide what is computed, from what, in which pieces
    ///
    /// Loads the model to resolve the points, cuts the corpus into units, and writes job.json under the root. Prints what
    /// that comes to, stored and computed.
    Plan(Box<Plan>),
    /// Compute all missing units here, in this process
    Run(Root),
    /// Have an engine compute the missing units
    ///
    /// May be called again at any time: units that are committed are not computed again.
    Submit(Submit),
    /// Compute some units; what engines start
    ///
    /// Exit codes: 0 all of them are committed; 1 some have failed by themselves, which `status` shows; 2 program, model or
    /// corpus are not those of the plan, and no worker like this one can do any; 75 start it again.
    Worker(Worker),
    /// Show how far it is
    Status(Status),
    /// Make a store that can be read of all units
    Seal(Seal),
    /// Remove what the sealed store does not need
    Gc(Root),
}

/// Where a harvest is.
#[derive(Clone, Debug, Args)]
pub struct Root {
    /// A folder, or a URL such as s3://bucket/run
    pub root: String,
}

/// What to plan.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// A folder, or a URL such as s3://bucket/run
    pub root: String,
    /// The folder of a checkpoint, a GGUF file, or `embedded`; what your own program makes of it
    #[arg(long)]
    pub model: String,
    /// A tokenizer.json, if the model has none
    #[arg(long)]
    pub tokenizer: Option<String>,
    /// Files with documents, as paths or URLs, also with `*`
    #[arg(long, required = true, num_args = 1..)]
    pub corpus: Vec<String>,
    /// The corpus is plain text, with an empty line between documents, instead of JSON lines
    #[arg(long, conflicts_with_all = ["text", "token_ids"])]
    pub plain: bool,
    /// The field of a JSON line that has the text
    #[arg(long, value_name = "FIELD", conflicts_with = "token_ids")]
    pub text: Option<String>,
    /// The field of a JSON line that has token ids, instead of text
    #[arg(long, value_name = "FIELD")]
    pub token_ids: Option<String>,
    /// A pattern that selects points of shape [batch, pos, ..]
    #[arg(long = "point", required = true, num_args = 1..)]
    pub points: Vec<String>,
    /// Tokens in a sequence
    #[arg(long, default_value_t = 1024)]
    pub context: usize,
    /// Sequences that are run at once
    #[arg(long, default_value_t = 8)]
    pub batch: usize,
    /// What the model computes in and what is stored: f32, f16, bf16 or f64
    #[arg(long, default_value = "f32")]
    pub dtype: String,
    /// The token before every document, or `none`
    #[arg(long)]
    pub separator: Option<String>,
    /// Tokens in a unit, about
    #[arg(long, default_value_t = 1 << 18)]
    pub unit_tokens: u64,
    /// Bytes of a shard, at most
    #[arg(long, default_value_t = 512 << 20)]
    pub shard_bytes: usize,
    /// Take the units in a random order
    #[arg(long)]
    pub seed: Option<u64>,
    /// Stop after so many tokens, about, as in 1e9
    #[arg(long)]
    pub tokens: Option<f64>,
}

/// How to submit.
#[derive(Clone, Debug, Args)]
pub struct Submit {
    /// A folder that all nodes see, or a URL such as s3://bucket/run
    pub root: String,
    /// To Slurm, as a job array
    #[arg(long, required = true)]
    pub slurm: bool,
    /// How many workers run at a time
    #[arg(long, default_value_t = 8)]
    pub workers: usize,
    /// Units of one element of the array; worked out unless this is given
    #[arg(long)]
    pub units_per_element: Option<usize>,
    /// Show the script instead of submitting it
    #[arg(long)]
    pub print: bool,
    /// Options of sbatch
    #[arg(last = true)]
    pub options: Vec<String>,
}

/// What a worker computes.
#[derive(Clone, Debug, Args)]
pub struct Worker {
    /// A folder, or a URL such as s3://bucket/run
    pub root: String,
    /// Numbers and ranges of units, as in 0-9,12
    #[arg(long, required_unless_present = "stdin")]
    pub units: Option<String>,
    /// Read the number of a unit from each line, and answer each with a line of JSON; end when there are no more
    #[arg(long, conflicts_with = "units")]
    pub stdin: bool,
}

/// How to show it.
#[derive(Clone, Debug, Args)]
pub struct Status {
    /// A folder, or a URL such as s3://bucket/run
    pub root: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Again every few seconds, until all units are committed
    #[arg(long)]
    pub watch: bool,
}

/// What to seal.
#[derive(Clone, Debug, Args)]
pub struct Seal {
    /// A folder, or a URL such as s3://bucket/run
    pub root: String,
    /// Seal what is there; what is missing stays missing
    #[arg(long)]
    pub allow_missing: bool,
}
