//! Small convolutional networks: a classifier, an autoencoder that unpools to where the maxima were, and saliency at
//! any layer.
//!
//! ```
//! use candle_core::{Device, Module, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::cnn::{heat, saliency, Classifier, Config};
//!
//! let config = Config { channels: 1, widths: vec![4, 6], size: 8, classes: 3 };
//! let model = Hooked::new(Classifier::random(&config, 0, &Device::Cpu)?);
//! let image = Tensor::rand(0f32, 1., (1, 1, 8, 8), &Device::Cpu)?;
//!
//! // What the pixels, and what the second layer, have to do with class 2.
//! let pixels = saliency(&model, ":in", &image, 2)?;
//! assert_eq!(heat(&pixels)?.dims(), [1, 8, 8]);
//! assert_eq!(saliency(&model, "down.1.conv", &image, 2)?.dims(), [1, 6, 4, 4]);
//!
//! // Where the first pooling found its maxima.
//! let (_, cache) = model.run_with_cache("down.0.pool:indices", |m| m.forward(&image))?;
//! assert_eq!(cache["down.0.pool:indices"].dims(), [1, 4, 4, 4]);
//! # Ok::<(), hookpoint::Error>(())
//! ```

mod config;
mod load;
mod model;
mod saliency;

pub use config::Config;
pub use model::{Classifier, ConvAutoEncoder, Down, Up};
pub use saliency::{heat, saliency};
