//! Where weights come from: the folder of a checkpoint, the hub, or a seed.
//!
//! ```
//! use candle_core::Device;
//! use hookpoint_models::weights::seeded;
//!
//! let weight = || seeded(7, &Device::Cpu).get_with_hints((2, 3), "weight", candle_nn::Init::Const(0.5));
//! assert_eq!(weight()?.to_vec2::<f32>()?, [[0.5; 3]; 2]);
//! # Ok::<(), candle_core::Error>(())
//! ```

mod checkpoint;
mod folder;
#[cfg(feature = "hub")]
pub mod hub;
mod pieces;
mod random;

pub use checkpoint::{header, Checkpoint};
pub use folder::{check_dtype, check_sizes, Folder};
pub use random::seeded;
