//! Where weights come from: the folder of a checkpoint, the hub, a GGUF file, or a seed.

mod checkpoint;
mod folder;
#[cfg(feature = "hub")]
pub mod hub;
mod random;

pub use folder::Folder;
pub use random::seeded;
