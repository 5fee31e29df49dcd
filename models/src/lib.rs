//! Models that come with [hookpoint], written as candle-transformers writes them and annotated with
//! hookpoint's two macros. They show how a model is annotated, and every point of theirs can be read
//! and changed:
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use hookpoint_interp::ablate;
//! use hookpoint::prelude::*;
//! use hookpoint_models::gpt2::{Generation, Gpt2};
//!
//! // A small GPT-2 that is part of the crate; `Gpt2::from_dir` loads any other.
//! let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
//! let prompt = "When Mary and John went to the store, John gave a drink to";
//! assert_eq!(model.complete(prompt, &Generation::new(1))?, " Mary");
//!
//! // Where do its heads look? [batch, head, query, key]
//! let ids = Tensor::new(model.tokenizer()?.encode(prompt)?, &Device::Cpu)?.unsqueeze(0)?;
//! let (_, cache) = model.run_with_cache("blocks.*.attn.hook_pattern", |m| m.forward(&ids))?;
//! assert_eq!(cache["blocks.1.attn.hook_pattern"].dims(), [1, 4, 14, 14]);
//!
//! // Without them it cannot know.
//! let blind = model.plan().hook("blocks.*.hook_attn_out", ablate::zero())?;
//! let run = blind.run(|m| m.complete(prompt, &Generation::new(1)))?;
//! assert_ne!(run.output, " Mary");
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! | model | what it is |
//! | --- | --- |
//! | [`gpt2`] | GPT-2, a small one that needs no files or any Hugging Face checkpoint, with generation |
//! | [`llama`] | Llama, Qwen2 and Mistral, from Hugging Face checkpoints or GGUF files |
//! | [`bert`] | the BERT encoder, from Hugging Face checkpoints, with vectors of sentences |
//! | [`cnn`] | small convolutional networks with pooling and unpooling, and saliency at any layer |
//! | [`autoencoder`] | an autoencoder whose points are all parameters |
//!
//! The tools of [`hookpoint_interp`] look into every [`Transformer`] of them. [`language`] has
//! what models that continue texts share, and [`open`] finds out from its files which of them one is.
//! [`layers`] compute with the kernels of [`hookpoint_kernels`].
//! [`english`] makes the sentences that the small GPT-2 was trained on. [`bundled`] lists all models, for tests.
//!
//! The features `cuda`, `cudnn`, `metal`, `mkl` and `accelerate` are those of hookpoint. With `hub`, models
//! can be loaded by their name on the Hugging Face hub.

pub mod autoencoder;
pub mod bert;
pub mod cnn;
pub mod english;
pub mod gpt2;
pub mod init;
pub mod language;
pub mod layers;
pub mod llama;
pub mod open;
pub mod weights;

mod activation;
mod attention;
mod bundled;
mod gguf;

pub use bundled::{bundled, Bundled};
pub use hookpoint_interp::Transformer;

/// What [`bundle!`] calls. Not part of the public surface.
#[doc(hidden)]
pub mod __private {
    pub use hookpoint;
    pub use inventory;
}
