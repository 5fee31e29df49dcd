//! Candle's operations with right gradients.
//!
//! In candle 0.11 a gradient ends silently at a fused operation (`softmax_last_dim`, `layer_norm`,
//! `rms_norm`, `rope`, `sdpa`, a quantized product), is wrong after others (`max_pool2d`, `avg_pool2d`,
//! `scatter`, `scatter_add`, `upsample_nearest2d`, `unfold`), and is computed and kept for frozen weights. The
//! functions here have candle's names and candle's values, bit for bit where candle has a kernel, and
//! gradients that are right, for those arguments that have one.
//!
//! The crate depends on candle alone. Code that is annotated for [hookpoint] need not call it: in a run with a
//! backward pass, candle's operations in it and the layers it calls get these gradients by themselves, through
//! [`rule`] and [`layer`].
//!
//! [hookpoint]: https://docs.rs/hookpoint
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//! use hookpoint_grad as grad;
//!
//! let x = Var::randn(0f32, 1., (2, 8), &Device::Cpu)?;
//! let (weight, bias) = (Tensor::ones(8, x.dtype(), x.device())?, Tensor::zeros(8, x.dtype(), x.device())?);
//! let y = grad::layer_norm(&x, &weight, Some(&bias), 1e-5)?;
//! let grads = y.sqr()?.narrow(1, 0, 3)?.sum_all()?.backward()?;
//! assert!(grads.get(&x).is_some());
//! assert!(grads.get(&weight).is_none());
//! # Ok::<(), candle_core::Error>(())
//! ```

mod activation;
mod attention;
mod conv;
mod elementwise;
mod extreme;
mod kept;
pub mod layer;
mod node;
mod norm;
mod pool;
mod product;
mod refused;
mod resample;
mod rope;
pub mod rule;
mod rules;
mod scatter;
mod shape;
mod softmax;
mod unfold;

pub use activation::{gelu, gelu_erf};
pub use attention::sdpa;
pub use conv::{conv1d, conv2d, conv_transpose1d, conv_transpose2d};
pub use kept::cached;
pub use node::has_right_gradient;
pub use norm::{layer_norm, rms_norm};
pub use pool::{avg_pool2d, avg_pool2d_with_stride, max_pool2d, max_pool2d_with_stride};
pub use product::{broadcast_matmul, linear, matmul, quantized_matmul};
pub use refused::refused;
pub use resample::{
    upsample_bilinear2d, upsample_bilinear2d_with_scale, upsample_nearest1d, upsample_nearest2d,
};
pub use rope::{rope, rope_i, rope_thd};
pub use scatter::{scatter, scatter_add};
pub use softmax::softmax_last_dim;
pub use unfold::unfold;
