//! The command line.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use hookpoint_sae::Architecture;

/// Trains a sparse autoencoder on the small GPT-2 that comes with hookpoint, and shows what its features stand for.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "autoencoder",
    after_help = "\
Examples, after `cargo run --release --example autoencoder --`:
  --out features.html                    a page to browse; it needs no network
  --architecture jumprelu --point blocks.0.hook_mlp_out
  --save my-sae                          keeps the autoencoder, in the form of SAELens"
)]
pub struct Args {
    /// Where in the model
    #[arg(long, default_value = "blocks.1.hook_resid_post")]
    pub point: String,

    /// Which kind of autoencoder
    #[arg(long, value_enum, default_value_t = Kind::Topk)]
    pub architecture: Kind,

    /// How many features it has
    #[arg(long, value_name = "COUNT", default_value_t = 384, value_parser = RangedU64ValueParser::<usize>::new().range(1..=65536))]
    pub features: usize,

    /// For topk: how many of them may be active at once
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub k: usize,

    /// For relu and jumprelu: what an active feature costs [default: 1 for relu, 0.1 for jumprelu]
    #[arg(long, value_name = "COST")]
    pub sparsity: Option<f64>,

    /// How many steps of training
    #[arg(long, value_name = "COUNT", default_value_t = 1500)]
    pub steps: u64,

    /// In how many texts features are looked for
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub texts: usize,

    /// Equal seeds give equal features
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,

    /// How many features are shown in the terminal; the page has more
    #[arg(long, value_name = "COUNT", default_value_t = 12, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub top: usize,

    /// Write one HTML page, with everything in it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Write the autoencoder into this folder, in the form of SAELens
    #[arg(long, value_name = "FOLDER")]
    pub save: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Relu,
    Topk,
    Jumprelu,
}

impl Args {
    pub fn architecture(&self) -> Architecture {
        match self.architecture {
            Kind::Relu => Architecture::Relu,
            Kind::Topk => Architecture::TopK { k: self.k.min(self.features) },
            Kind::Jumprelu => Architecture::JumpRelu,
        }
    }

    pub fn sparsity(&self) -> f64 {
        match self.architecture {
            Kind::Topk => 0.,
            Kind::Relu => self.sparsity.unwrap_or(1.),
            Kind::Jumprelu => self.sparsity.unwrap_or(0.1),
        }
    }
}
