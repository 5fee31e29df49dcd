//! A store of format 2: a harvest that was sealed. A short manifest names pages, pages speak of units and their shards,
//! and all of it is read when it is needed first.

mod collect;
mod manifest;
mod seal;
mod store;

pub use collect::{collect_garbage, Collected};
pub use seal::{seal, Seal};
pub(crate) use store::Sealed;
