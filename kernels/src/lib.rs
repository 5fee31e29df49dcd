//! Kernels for the CPU: what a transformer computes most, quicker than candle does it.
//!
//! Candle's kernels for the CPU are compiled for the oldest processors, read the weights of a linear layer
//! without regard to how they lie in memory, compute the half of an attention that is masked, and set every
//! result to zero first. The operations here are for numbers in f32 on the CPU: they use the vectors that the
//! processor has, found out at run time by the crate `pulp`, and all of its cores.
//!
//! | operation | is |
//! | --- | --- |
//! | [`linear`] | `x · weight + bias`, for weights stored as `[out, in]` or as `[in, out]` |
//! | [`attention`] | the three below, at once, without what is masked |
//! | [`attention_scores`], [`softmax`], [`weighted_sum`] | its parts, for those who look at them |
//! | [`gelu`] | the approximation with `tanh` |
//! | [`layer_norm`] | |
//!
//! - On other devices and for other numbers they are candle's operations, as [`hookpoint_grad`] has them.
//! - All have gradients, of which only those are computed that are wanted.
//! - A number of the result depends on the numbers that it is computed from, not on how many others are
//!   computed beside it: a row of a batch gives what it gives alone, bit by bit, and an attention in parts
//!   what it gives at once.
//!
//! Nothing here knows of hooks or of models.
//!
//! ```
//! use candle_core::{Device, Tensor, D};
//! use hookpoint_kernels as kernels;
//!
//! let scores = Tensor::new(&[[0f32, f32::NEG_INFINITY, 1.]], &Device::Cpu)?;
//! let pattern = kernels::softmax(&scores)?;
//! assert_eq!(pattern.to_vec2::<f32>()?[0][1], 0.);
//! assert!((pattern.sum(D::Minus1)?.to_vec1::<f32>()?[0] - 1.).abs() < 1e-6);
//! # Ok::<(), candle_core::Error>(())
//! ```

mod attention;
mod exp;
mod gelu;
mod layer_norm;
mod linear;
mod numbers;
mod pack;
mod product;
mod softmax;
mod tile;

#[cfg(test)]
mod tests;

pub use attention::{attention, attention_scores, weighted_sum};
pub use gelu::gelu;
pub use layer_norm::layer_norm;
pub use linear::linear;
pub use softmax::softmax;
