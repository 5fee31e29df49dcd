//! Sparse autoencoders: what a value of a model is made of, as few of many learned features.
//!
//! | | with |
//! | --- | --- |
//! | ReLU, TopK and JumpReLU, every value in them a point | [`Sae`], [`Architecture`] |
//! | files of SAELens, read and written | [`Sae::from_dir`], [`Sae::save`] |
//! | in the place of a value of a running model, with edited features | [`Splice`] |
//! | training on the activations of any point, with checkpoints | [`Trainer`], [`ActivationSource`] |
//! | how good it is | [`Metrics`], [`LossRecovered`] |

mod config;
mod metrics;
mod model;
mod normalize;
mod recovered;
mod saelens;
mod splice;
mod top_k;
mod train;

pub use config::{Architecture, Config, Normalization};
pub use metrics::{LossRecovered, Metrics};
pub use model::{Sae, Weights};
pub use recovered::next_token_loss;
pub use splice::Splice;
pub use train::{ActivationSource, Live, Numbered, Progress, Resample, Rows, TrainOptions, Trainer};
