//! Where weights come from: the folder of a checkpoint, the hub, or a seed.

mod checkpoint;
mod folder;
#[cfg(feature = "hub")]
pub mod hub;
mod pieces;
mod random;

pub(crate) use checkpoint::header;
pub use checkpoint::Checkpoint;
pub use folder::{check_dtype, check_sizes, Folder};
pub use random::seeded;
