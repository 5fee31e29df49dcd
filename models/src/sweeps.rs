//! Sweeps that are made all the time: the parts of a transformer, by layer, position and head.
//!
//! | part | cells, by [`Cells::Each`] | by [`Cells::All`] |
//! | --- | --- | --- |
//! | [`Part::ResidPre`], [`ResidMid`](Part::ResidMid), [`AttnOut`](Part::AttnOut), [`MlpOut`](Part::MlpOut) | layer, position | layer |
//! | [`Part::HeadOut`], [`Query`](Part::Query), [`Key`](Part::Key), [`Value`](Part::Value) | layer, position, head | layer, head |
//! | [`Part::Pattern`] | layer, head, query | layer, head |
//!
//! ```
//! use candle_core::{Device, IndexOp, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::gpt2::{Config, Gpt2};
//! use hookpoint_models::sweeps::{self, Cells, Part};
//!
//! let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
//! let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
//! let clean = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
//! let corrupted = Tensor::new(&[[1u32, 5, 3]], &Device::Cpu)?;
//! // How much more likely is 4 than 7?
//! let metric = |logits: &Tensor| (logits.i((0, 2, 4))? - logits.i((0, 2, 7))?)?.to_scalar::<f32>().map(f64::from);
//!
//! let heads = sweeps::over(&model, Part::HeadOut, Cells::All)?;
//! let found = heads.patch(&clean, &corrupted, |m, ids| m.forward(ids), metric)?;
//! assert_eq!(found.shape(), [2, 2]);
//! println!("{found}");
//! # Ok::<(), hookpoint::Error>(())
//! ```

use hookpoint::{Hooked, Result, Sweep};

use crate::lens::{Site, Transformer};

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

/// A sweep over a part of every layer. It can be told more before it is run with
/// [`patch`](Sweep::patch) or [`edit`](Sweep::edit).
///
/// Queries, keys and values are found beside [`Site::HeadOut`], as `q`, `k` and `v` in the place of `z`; where
/// fewer heads have keys and values, as in grouped attention, they have fewer cells.
pub fn over<M: Transformer>(model: &Hooked<M>, part: Part, cells: Cells) -> Result<Sweep<'_, M>> {
    let (site, letter) = match part {
        Part::ResidPre => (Site::ResidPre, None),
        Part::ResidMid => (Site::ResidMid, None),
        Part::AttnOut => (Site::AttnOut, None),
        Part::MlpOut => (Site::MlpOut, None),
        Part::HeadOut => (Site::HeadOut, None),
        Part::Query => (Site::HeadOut, Some("q")),
        Part::Key => (Site::HeadOut, Some("k")),
        Part::Value => (Site::HeadOut, Some("v")),
        Part::Pattern => (Site::Pattern, None),
    };
    let of_heads = matches!(site, Site::HeadOut);
    let (index, axes): (&str, &[&str]) = match (site, cells) {
        (Site::Pattern, Cells::Each) => ("[:, *, *]", &["layer", "head", "query"]),
        (Site::Pattern, Cells::All) => ("[:, *]", &["layer", "head"]),
        (_, Cells::Each) if of_heads => ("[:, *, *]", &["layer", "position", "head"]),
        (_, Cells::All) if of_heads => ("[:, :, *]", &["layer", "head"]),
        (_, Cells::Each) => ("[:, *]", &["layer", "position"]),
        (_, Cells::All) => ("", &["layer"]),
    };
    let point = |layer: usize| {
        let point = model.point(site, layer);
        let point = match letter {
            Some(letter) => format!("{}{letter}", point.strip_suffix('z').unwrap_or(&point)),
            None => point,
        };
        format!("{point}{index}")
    };
    let patterns: Vec<String> = (0..model.n_layers()).map(point).collect();
    Ok(Sweep::over(model, patterns)?.axes(axes.iter().copied()))
}
