//! The sizes of a network.

use hookpoint::{Error, Result};
use serde::Deserialize;

use crate::weights::check_sizes;

/// The sizes of a network, as `config.json` has them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Config {
    /// Of an image.
    pub channels: usize,
    /// How many channels there are behind each block, which halves height and width.
    pub widths: Vec<usize>,
    /// Height and width of an image.
    pub size: usize,
    /// How many classes there are; an autoencoder has no use for them.
    pub classes: usize,
}

impl Config {
    /// Reads and checks a `config.json`.
    pub fn from_json(text: &str) -> Result<Self> {
        let config: Self = serde_json::from_str(text).map_err(|error| {
            Error::msg(format!("{error}\n  a network needs channels, widths, size and classes"))
        })?;
        config.check()?;
        Ok(config)
    }

    /// An error if no network has these sizes.
    pub fn check(&self) -> Result<()> {
        let sizes = [("channels", self.channels), ("size", self.size), ("classes", self.classes)];
        check_sizes(&sizes)?;
        self.widths.iter().try_for_each(|width| check_sizes(&[("a width", *width)]))?;
        let (blocks, size) = (self.widths.len(), self.size);
        match u32::try_from(blocks).ok().and_then(|blocks| 1usize.checked_shl(blocks)) {
            Some(parts) if blocks > 0 && size % parts == 0 => Ok(()),
            _ => Err(Error::msg(format!(
                "images of {size} × {size} cannot be halved {blocks} times\n  give at least one width, and a size that can"
            ))),
        }
    }

    /// How many channels go into a block and come out.
    pub(super) fn block(&self, number: usize) -> (usize, usize) {
        let width = |number: usize| self.widths.get(number).copied().unwrap_or(self.channels);
        (number.checked_sub(1).map_or(self.channels, width), width(number))
    }

    /// How many numbers the last block gives.
    pub(super) fn features(&self) -> usize {
        let size = self.size >> self.widths.len();
        self.widths.last().copied().unwrap_or(self.channels).saturating_mul(size * size)
    }
}
