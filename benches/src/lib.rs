//! What hooks cost.
//!
//! Two models ([`tiny`], [`gpt2`]) are written once and compiled twice: `plain`, without any macro,
//! and `annotated`. A [`Subject`] holds both twins with the same weights, and runs either under every
//! [`Config`]. The criterion benchmark (`overhead`), the program that compares interleaved runs
//! (`ratios`) and the one that is counted in instructions (`one_forward`) share all of this.
//!
//! ```
//! use hookpoint_benches::{tiny_sized, Config};
//!
//! let tiny = tiny_sized()?;
//! let plain = tiny.runner(Config::Plain)?()?;
//! let cached = tiny.runner(Config::CacheAll)?()?;
//! assert_eq!(plain.to_vec2::<f32>()?, cached.to_vec2::<f32>()?);
//! # Ok::<(), hookpoint::Error>(())
//! ```

mod config;
mod subject;
mod weights;

pub mod bare;
pub mod gpt2;
pub mod tiny;

pub use config::Config;
pub use subject::{bare_sized, gpt2_sized, tiny_sized, BareSized, Counts, Gpt2Sized, Subject, TinySized};
pub use weights::Weights;

/// Writes a model twice: as it is, and inside `#[auto_hook]`, which annotates everything. One source,
/// so the twins cannot drift apart.
macro_rules! twins {
    ($($items:tt)*) => {
        /// The model without any macro.
        pub mod plain {
            $($items)*
        }

        /// The same source, annotated.
        #[hookpoint::auto_hook]
        pub mod annotated {
            $($items)*
        }
    };
}
use twins;
