//! Sparse autoencoders: what a value of a model is made of, as few of many learned features.
//!
//! | | with |
//! | --- | --- |
//! | ReLU, TopK and JumpReLU, every value in them a point | [`Sae`], [`Architecture`] |
//! | files of SAELens, read and written | [`Sae::from_dir`], [`Sae::save`] |
//! | in the place of a value of a running model, with edited features | [`Splice`] |
//! | training on the activations of any point, with checkpoints | [`Trainer`], [`ActivationSource`] |
//! | how good it is | [`Metrics`], [`LossRecovered`] |
//! | what features stand for | [`Strongest`], [`logit_effects`] |
//!
//! Trained on a store of [`hookpoint_harvest`], stopped, and continued:
//!
//! ```
//! # use candle_core::{Device, Tensor};
//! # use hookpoint::ActivationCache;
//! # use hookpoint_harvest::{Reading, Recorder};
//! use std::ops::ControlFlow;
//! use hookpoint_sae::{Architecture, Config, Sae, TrainOptions, Trainer};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let run = |x: &Tensor| Ok(ActivationCache::from_iter([("x", x.clone())]));
//! # let rows = Tensor::rand(0f32, 1., (200, 6), &Device::Cpu)?;
//! # let store = Recorder::new("none").record_caches(folder.path(), [rows], run)?;
//! // A store of 200 rows `[6]`, which are read again and again, each time in another order.
//! let mut source = store.read("x", &Reading::new(1).endless())?;
//! let architecture = Architecture::TopK { k: 2 };
//! let sae = Sae::random(Config::new(6, 12, architecture), 0, &Device::Cpu)?;
//! // The batches are those of the training.
//! let options = TrainOptions { batch: 32, ..TrainOptions::new(architecture, 20) };
//!
//! let mut trainer = Trainer::new(&sae, options.clone())?;
//! trainer.train(&mut source, |_, at| Ok(if at.step == 9 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }))?;
//! # let saved = tempfile::tempdir().unwrap();
//! # let saved = saved.path();
//! trainer.save(saved)?;
//!
//! // Later: the training makes the source go to where it was.
//! let mut trainer = Trainer::resume(saved, options)?;
//! trainer.train(&mut source, |_, _| Ok(ControlFlow::Continue(())))?;
//! assert_eq!(trainer.steps_done(), 20);
//! # Ok::<(), hookpoint::Error>(())
//! ```

mod config;
mod features;
mod metrics;
mod model;
mod normalize;
mod recovered;
mod saelens;
mod splice;
mod top_k;
mod train;

pub use config::{Architecture, Config, Normalization};
pub use features::{logit_effects, Place, Strongest};
pub use hookpoint_harvest::ActivationSource;
pub use metrics::{LossRecovered, Metrics};
pub use model::{Sae, Weights};
pub use recovered::next_token_loss;
pub use splice::Splice;
pub use train::{Live, Numbered, Progress, Resample, Rows, TrainOptions, Trainer};
