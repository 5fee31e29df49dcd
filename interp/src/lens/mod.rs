//! What a transformer thinks, and which of its parts make it think so.
//!
//! | lens | answers |
//! | --- | --- |
//! | [`LogitLens`] | what would the model say if it ended after this block? |
//! | [`Attribution`] | how much does each layer, head or group of neurons add to a logit? |
//! | [`HeadScores`] | which heads look at the previous token, at copies, at what followed a copy? |
//!
//! They work on every model that is a [`Transformer`](crate::Transformer). What needs no transformer is beside them:
//! [`SteeringVector`](crate::SteeringVector), [`Patching`](crate::Patching), [`attribution`](crate::attribution).
//!
//! Each lens runs the model once through its `Hooked`, so hooks that are registered there are in force.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::gpt2::{Config, Gpt2};
//! use hookpoint_interp::lens::{Attribution, By, Detector, HeadScores, LogitLens, Target};
//!
//! let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
//! let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
//! let ids = Tensor::new(&[[1u32, 2, 3, 1, 2, 3]], &Device::Cpu)?;
//!
//! let lens = LogitLens::of(&model, &ids)?;
//! assert_eq!(lens.labels(), ["0_pre", "1_pre", "final_post"]);
//! println!("{lens}");
//!
//! // Why token 4 and not token 7 at the last position?
//! let attribution = Attribution::of(&model, &ids, &Target::token(4).against(7), By::Head)?;
//! println!("{}", attribution.at(0, -1)?);
//!
//! let scores = HeadScores::of(&model, &ids, &Detector::Induction)?;
//! let (head, score) = scores.ranked()[0];
//! assert!(head.to_string().starts_with('L') && score <= 1.);
//! # Ok::<(), hookpoint::Error>(())
//! ```

mod attribution;
mod breakdown;
mod detector;
mod heads;
mod logit_lens;
mod target;

pub use attribution::{Attribution, By};
pub use breakdown::Breakdown;
pub use detector::{Detector, Measure};
pub use heads::{Detection, HeadScores};
pub use logit_lens::LogitLens;
pub use target::{Target, Tokens};

use hookpoint::{ErrorKind, Result};

/// A place counted from the start, or with a negative number from the end.
fn place(what: &str, index: isize, count: usize) -> Result<usize> {
    let from_start = if index < 0 { index.checked_add_unsigned(count) } else { Some(index) };
    let found = from_start.and_then(|index| usize::try_from(index).ok()).filter(|index| *index < count);
    let (what, index) = (what.to_string(), index.to_string());
    found.ok_or_else(|| ErrorKind::NoSuchNumber { what, index, count }.into())
}
