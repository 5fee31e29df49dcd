//! Which parts of a transformer, and how finely they are divided.

use clap::ValueEnum;
use hookpoint_interp::sweep::transformer::{Cells, Part};

/// A part of a transformer, by its name on the command line.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartName {
    /// The residual stream before each block
    Resid,
    /// The residual stream between attention and mlp
    ResidMid,
    /// What attention adds
    Attn,
    /// What the mlp adds
    Mlp,
    /// What each head found
    Head,
    /// What each head asks for
    Query,
    /// What each head is found by
    Key,
    /// What each head hands over
    Value,
    /// Where each head looks
    Pattern,
}

/// How finely a part is divided.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Division {
    /// Positions of the residual stream, attention and mlp; heads at all positions
    #[default]
    Usual,
    /// Every position by itself
    Each,
    /// All positions at once
    All,
}

/// The arguments that choose parts.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct PartsArgs {
    /// Which parts; may be said several times
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',', conflicts_with = "points")]
    pub part: Vec<PartName>,

    /// How finely they are divided
    #[arg(long, value_enum, value_name = "HOW", default_value_t, conflicts_with = "points")]
    pub cells: Division,

    /// Points by patterns instead of parts; every `*` in an index makes cells, as in "blocks.*.mlp.hook_post[:, -1, *]"; may
    /// be said several times
    #[arg(long, value_name = "PATTERN")]
    pub points: Vec<String>,
}

impl PartsArgs {
    /// The chosen parts, or these.
    pub fn or(&self, usual: &[PartName]) -> Vec<PartName> {
        if self.part.is_empty() {
            usual.to_vec()
        } else {
            self.part.clone()
        }
    }

    /// How a part is divided.
    pub fn cells_of(&self, part: PartName) -> Cells {
        match self.cells {
            Division::Each => Cells::Each,
            Division::All => Cells::All,
            Division::Usual => match part {
                PartName::Resid | PartName::ResidMid | PartName::Attn | PartName::Mlp => Cells::Each,
                _ => Cells::All,
            },
        }
    }
}

impl PartName {
    /// The same for the library.
    pub fn part(self) -> Part {
        match self {
            Self::Resid => Part::ResidPre,
            Self::ResidMid => Part::ResidMid,
            Self::Attn => Part::AttnOut,
            Self::Mlp => Part::MlpOut,
            Self::Head => Part::HeadOut,
            Self::Query => Part::Query,
            Self::Key => Part::Key,
            Self::Value => Part::Value,
            Self::Pattern => Part::Pattern,
        }
    }

    /// What a table of it is called.
    pub fn title(self) -> &'static str {
        match self {
            Self::Resid => "residual stream before each block",
            Self::ResidMid => "residual stream between attention and mlp",
            Self::Attn => "attention",
            Self::Mlp => "mlp",
            Self::Head => "heads",
            Self::Query => "queries of heads",
            Self::Key => "keys of heads",
            Self::Value => "values of heads",
            Self::Pattern => "attention patterns of heads",
        }
    }
}
