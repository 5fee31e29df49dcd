//! What matters for what a model says, estimated with gradients.
//!
//! To know what a point contributes one may patch it and see what changes: one run for each point. A
//! gradient tells, to first order, what all of these runs would show:
//!
//! | | runs | what it gives at a point |
//! | --- | --- | --- |
//! | [`patching`] | two forward, one backward | what patching the clean value into the corrupted run would change |
//! | [`integrated_gradients`] | two forward, `steps` with a backward for each point | the same, with the curvature on the way |
//! | [`gradient_x_activation`] | one forward, one backward | what setting the value to zero would take away |
//!
//! All of them use plans as everyone can.
//!
//! ```
#![doc = include_str!("../two_layers.txt")]
//! // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
//! use hookpoint_interp::attribution;
//!
//! let other = Tensor::new(&[[3f32, 4.]], &Device::Cpu)?;
//! let found = attribution::patching(
//!     &model,
//!     |m| m.forward(&other),       // clean
//!     |m| m.forward(&x),           // corrupted
//!     |output| output.sum_all(),   // metric
//!     [":hidden", "down"],
//! )?;
//! // From [[1, 0]] to [[3, 4]], and each counts once.
//! assert_eq!(found.tensors[":hidden"].to_vec2::<f32>()?, [[2., 4.]]);
//! assert_eq!(found.sum(":hidden")?, 6.);
//! assert_eq!((found.metric, found.clean_metric), (1., Some(7.)));
//! # Ok::<(), hookpoint::Error>(())
//! ```

mod first_order;
mod integrated;
mod result;

pub use first_order::{gradient_x_activation, patching};
pub use integrated::integrated_gradients;
pub use result::Attribution;
