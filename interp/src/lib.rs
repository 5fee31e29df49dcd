//! Tools of interpretability for any model that [`hookpoint`] hooks: what its parts do, and which of them matter.
//!
//! They use plans, listeners and caches as everybody can, so they work on models of one's own, and bring no
//! tokenizers or loaders. Tools for transformers see a model through the trait [`Transformer`], which the models of
//! `hookpoint-models` implement.
//!
//! | tool | answers |
//! | --- | --- |
//! | [`attribution`] | how much does each point add to a metric, estimated with gradients? |
//! | [`Patching`] | which activations make the difference between two inputs? |
//! | [`SteeringVector`] | in which direction is a model to be pushed? |
//! | [`lens`] | what does a transformer think at each layer, and which of its parts make it think so? |
//! | [`look`] | what does all of this say about one prompt? |
//! | [`Sweep`] | what changes when one part is changed, for one part after the other? |
//! | [`sweep::transformer`] | which layer, position or head of a transformer matters? what do they tell each other? |
//! | [`ablate`] | what does a model do without a part of itself? |
//!
//! ```
#![doc = include_str!("two_layers.txt")]
//! // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
//! use hookpoint_interp::{attribution, SteeringVector};
//!
//! // How much does each layer add to the sum of the outputs?
//! let sum = |output: &Tensor| output.sum_all();
//! let found = attribution::gradient_x_activation(&model, |m| m.forward(&x), sum, ["up", "down"])?;
//! assert_eq!(found.ranked(), [("up", 1.), ("down", 1.)]);
//!
//! // Pushed along the second feature.
//! let direction = SteeringVector::new("up", &Tensor::new(&[0f32, 1.], &Device::Cpu)?)?;
//! let run = model.plan().hook("up", direction.hook(5.))?.run(|m| m.forward(&x))?;
//! assert_eq!(run.output.to_vec2::<f32>()?, [[1., 3.]]);
//! # Ok::<(), hookpoint::Error>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod ablate;
pub mod attribution;
pub mod lens;
pub mod look;
pub mod patching;
pub mod steer;
pub mod sweep;

mod transformer;

pub use patching::{Effect, Patching};
pub use steer::SteeringVector;
pub use sweep::Sweep;
pub use transformer::{Head, Norm, Output, Site, Transformer};
