//! Models that come with [hookpoint], written as candle-transformers writes them and annotated with
//! hookpoint's two macros. They show how a model is annotated, and every point of theirs can be read
//! and changed:
//!
//! ```
//! use candle_core::{Device, Module, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::autoencoder::{AutoEncoder, Config};
//!
//! let config = Config { d_mlp: 4, dict_mult: 8, seed: 0 };
//! let model = Hooked::new(AutoEncoder::new(&config, &Device::Cpu)?);
//! let x = Tensor::new(&[[1f32, 2., 3., 4.]], &Device::Cpu)?;
//!
//! // `acts` is a binding inside `forward`: what the hidden units do.
//! let (_, cache) = model.run_with_cache(":acts", |m| m.forward(&x))?;
//! assert_eq!(cache[":acts"].dims(), [1, 32]);
//!
//! // With all of them off, what is left is the decoder's bias, which is zero.
//! let run = model.plan().hook(":acts", |_, acts| Ok(Some(acts.zeros_like()?)))?.run(|m| m.forward(&x))?;
//! assert_eq!(run.output.to_vec2::<f32>()?, [[0.; 4]]);
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! | model | what it is |
//! | --- | --- |
//! | [`gpt2`] | GPT-2, a small one that needs no files or any Hugging Face checkpoint, with generation |
//! | [`llama`] | Llama, Qwen2 and Mistral, from Hugging Face checkpoints or GGUF files |
//! | [`bert`] | the BERT encoder, from Hugging Face checkpoints, with vectors of sentences |
//! | [`autoencoder`] | an autoencoder whose points are all parameters |
//! | [`sae`] | sparse autoencoders for the values of other models, with SAELens' files |
//!
//! [`lens`] looks into transformers: logit lens, direct logit attribution, detectors of heads. [`language`] has
//! what models that continue texts share. [`store`] keeps activations of a whole corpus on disk, for training.
//! [`english`] makes the sentences that the small GPT-2 was trained on. [`bundled`] lists all models, for tests.
//!
//! The features `cuda`, `cudnn`, `metal`, `mkl` and `accelerate` are those of hookpoint. With `hub`, models
//! can be loaded by their name on the Hugging Face hub.

pub mod autoencoder;
pub mod bert;
pub mod english;
pub mod gpt2;
pub mod language;
pub mod lens;
pub mod llama;
pub mod sae;
pub mod store;
pub mod sweeps;

mod activation;
mod attention;
mod bundled;
mod gguf;
mod init;
mod weights;

pub use bundled::{bundled, Bundled};
