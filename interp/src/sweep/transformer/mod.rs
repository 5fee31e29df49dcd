//! Sweeps that are made all the time: the parts of a transformer, by layer, position and head.
//!
//! | part | cells, by [`Cells::Each`] | by [`Cells::All`] |
//! | --- | --- | --- |
//! | [`Part::ResidPre`], [`ResidMid`](Part::ResidMid), [`AttnOut`](Part::AttnOut), [`MlpOut`](Part::MlpOut) | layer, position | layer |
//! | [`Part::HeadOut`], [`Query`](Part::Query), [`Key`](Part::Key), [`Value`](Part::Value) | layer, position, head | layer, head |
//! | [`Part::Pattern`] | layer, head, query | layer, head |
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::gpt2::{Config, Gpt2};
//! use hookpoint_interp::lens::Target;
//! use hookpoint_interp::sweep::transformer::{self, Cells, LogitMetric, Part};
//!
//! let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
//! let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
//! let clean = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
//! let corrupted = Tensor::new(&[[1u32, 5, 3]], &Device::Cpu)?;
//! // How much more likely is 4 than 7?
//! let metric = LogitMetric::of(&*model, Target::token(4).against(7))?;
//!
//! let heads = transformer::over(&model, Part::HeadOut, Cells::All)?;
//! let found = metric.patch(heads, &clean, &corrupted)?;
//! assert_eq!(found.shape(), [2, 2]);
//! println!("{found}");
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! [`LogitMetric`] is the usual metric, without the cost of all logits. [`Sweep::patch`] takes any other.
//! [`PathPatching`] is about what one part tells another.

mod metric;
mod path;

use hookpoint::{Hooked, Result};

use super::Sweep;
use crate::{Site, Transformer};
pub use metric::LogitMetric;
pub use path::{PathPatching, Receiver};

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The residual stream before a block.
    ResidPre,
    /// The residual stream between attention and mlp.
    ResidMid,
    /// What attention adds.
    AttnOut,
    /// What the mlp adds.
    MlpOut,
    /// What a head found, `z`.
    HeadOut,
    /// What a head asks for.
    Query,
    /// What a head is found by.
    Key,
    /// What a head hands over.
    Value,
    /// Where a head looks.
    Pattern,
}

/// How finely a part is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cells {
    /// Every position by itself.
    Each,
    /// All positions at once.
    All,
}

impl Part {
    /// Where it is, or what it is beside.
    fn site(self) -> Site {
        match self {
            Part::ResidPre => Site::ResidPre,
            Part::ResidMid => Site::ResidMid,
            Part::AttnOut => Site::AttnOut,
            Part::MlpOut => Site::MlpOut,
            Part::HeadOut | Part::Query | Part::Key | Part::Value => Site::HeadOut,
            Part::Pattern => Site::Pattern,
        }
    }
}

/// A sweep over a part of every layer. It can be told more before it is run with
/// [`patch`](Sweep::patch) or [`edit`](Sweep::edit).
///
/// Queries, keys and values are found beside [`Site::HeadOut`], as `q`, `k` and `v` in the place of `z`; where
/// fewer heads have keys and values, as in grouped attention, they have fewer cells.
pub fn over<M: Transformer>(model: &Hooked<M>, part: Part, cells: Cells) -> Result<Sweep<'_, M>> {
    Ok(Sweep::over(model, patterns(&**model, part, cells))?.axes(axes(part, cells).iter().copied()))
}

/// The names of the axes of a part.
fn axes(part: Part, cells: Cells) -> &'static [&'static str] {
    match (part.site(), cells) {
        (Site::Pattern, Cells::Each) => &["layer", "head", "query"],
        (Site::HeadOut, Cells::Each) => &["layer", "position", "head"],
        (Site::Pattern | Site::HeadOut, Cells::All) => &["layer", "head"],
        (_, Cells::Each) => &["layer", "position"],
        (_, Cells::All) => &["layer"],
    }
}

/// The patterns of a part, one for each layer, with a `*` for every axis but the layer: for the caches and means that
/// cells are given.
pub fn patterns(model: &impl Transformer, part: Part, cells: Cells) -> Vec<String> {
    let site = part.site();
    let index = match (site, cells) {
        (Site::Pattern, Cells::Each) | (Site::HeadOut, Cells::Each) => "[:, *, *]",
        (Site::Pattern, Cells::All) => "[:, *]",
        (Site::HeadOut, Cells::All) => "[:, :, *]",
        (_, Cells::Each) => "[:, *]",
        (_, Cells::All) => "",
    };
    let point = |layer: usize| match part {
        Part::Query => beside(model, layer, "q"),
        Part::Key => beside(model, layer, "k"),
        Part::Value => beside(model, layer, "v"),
        _ => model.point(site, layer),
    };
    (0..model.n_layers()).map(|layer| point(layer) + index).collect()
}

/// A value of the attention of a layer that has another letter than `z`.
fn beside(model: &impl Transformer, layer: usize, letter: &str) -> String {
    let z = model.point(Site::HeadOut, layer);
    format!("{}{letter}", z.strip_suffix('z').unwrap_or(&z))
}
