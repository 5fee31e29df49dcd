//! Tests that need more than one crate of the workspace. What is here is in the test targets of the
//! manifest, each of which says in its first lines what it checks. The library itself holds what the code in
//! the pages under `docs` needs, and compiles that code; and what the tests of several models share.
//!
//! Tests that compute something take their device from `HOOKPOINT_DEVICE`, so that the same tests run on
//! a GPU:
//!
//! ```
//! use candle_core::{DType, Tensor};
//!
//! let device = hookpoint::device_from_env()?; // the CPU, unless the variable says otherwise
//! let x = Tensor::zeros((2, 3), DType::F32, &device)?;
//! assert!(x.device().same_device(&device));
//! # Ok::<(), hookpoint::Error>(())
//! ```

pub mod compare;
pub mod example;
pub mod language;
pub mod made_gguf;
pub mod spoil;

/// Compiles and runs the code of the page.
#[cfg(doctest)]
#[doc = include_str!("../../docs/coming-from.md")]
pub struct ComingFrom;
