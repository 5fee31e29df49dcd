//! GPT-2.
//!
//! `model.rs` is the model, written as candle-transformers writes models, with hookpoint's two
//! annotations. The points that matter have the names and shapes of TransformerLens:
//!
//! | point | shape |
//! | --- | --- |
//! | `hook_embed`, `hook_pos_embed` | `[batch, pos, d_model]` |
//! | `blocks.0.hook_resid_pre`, `.hook_resid_mid`, `.hook_resid_post` | `[batch, pos, d_model]` |
//! | `blocks.0.hook_attn_out`, `.hook_mlp_out` | `[batch, pos, d_model]` |
//! | `blocks.0.attn.hook_q`, `.hook_k`, `.hook_v`, `.hook_z` | `[batch, pos, head, d_head]` |
//! | `blocks.0.attn.hook_attn_scores`, `.hook_pattern` | `[batch, head, query, key]` |
//! | `blocks.0.attn.hook_result` | `[batch, pos, head, d_model]` |
//! | `blocks.0.mlp.hook_pre`, `.hook_post` | `[batch, pos, d_mlp]` |
//! | `ln_final`, `blocks.0.ln1`, `blocks.0.ln2` | `[batch, pos, d_model]` |
//! | `unembed` | `[batch, pos, vocab]` |
//!
//! `blocks.0.attn.hook_z` is another way to write `blocks.0.attn:z`. Every other module and named value
//! is a point as well; `Hooked::scan` lists them.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::gpt2::{Config, Gpt2};
//!
//! let config = Config { vocab_size: 10, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Config::default() };
//! let model = Hooked::new(Gpt2::random(&config, 0, &Device::Cpu)?);
//! let ids = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
//!
//! let (logits, cache) = model.run_with_cache("blocks.*.attn.hook_pattern", |m| m.forward(&ids))?;
//! assert_eq!(logits.dims(), [1, 3, 10]);
//! assert_eq!(cache["blocks.1.attn.hook_pattern"].dims(), [1, 2, 3, 3]);
//!
//! // Turn one head off.
//! let plan = model.plan().hook("blocks.0.attn.hook_z[:, :, 1]", |_, z| Ok(Some(z.zeros_like()?)))?;
//! let without = plan.run(|m| m.forward(&ids))?.output;
//! assert_ne!(without.to_vec3::<f32>()?, logits.to_vec3::<f32>()?);
//! # Ok::<(), hookpoint::Error>(())
//! ```

//! # Without a checkpoint
//!
//! [`Gpt2::embedded`] is a small trained model that is part of this crate: three blocks of four heads, that name
//! the indirect object, go on with what repeats, count, and know a few facts.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::gpt2::Gpt2;
//!
//! let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
//! let ids = model.tokenizer()?.encode("When Mary and John went to the store, John gave a drink to")?;
//! let ids = Tensor::new(&ids[..], &Device::Cpu)?.unsqueeze(0)?;
//! let (logits, cache) = model.run_with_cache("blocks.*.attn.hook_pattern", |m| m.forward(&ids))?;
//! assert_eq!(cache["blocks.2.attn.hook_pattern"].dims(), [1, 4, 14, 14]);
//! let said = logits.get(0)?.get(13)?.argmax(0)?.to_scalar::<u32>()?;
//! assert_eq!(model.tokenizer()?.token(said).as_deref(), Some(" Mary"));
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! # From a checkpoint
//!
//! [`Gpt2::from_dir`] takes the folder of a checkpoint as Hugging Face's `save_pretrained` writes it, and its
//! tokenizer with it. What is computed is what transformers computes, for every choice that [`Config`] has.
//!
//! ```no_run
//! use candle_core::{DType, Device};
//! use hookpoint_models::gpt2::{Generation, Gpt2};
//!
//! let model = Gpt2::from_dir("path/to/gpt2", DType::F32, &Device::Cpu)?;
//! println!("{}", model.complete("When Mary and John went to the store,", &Generation::new(20))?);
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! # Generation
//!
//! [`Gpt2::generate`] continues several prompts at once, with a KV cache. Called in the closure of a run, hooks,
//! patches and caches are in force at every step; [`Generation`] has an example. A hook that is to act on the
//! prompt, or at one step, is limited with [`hookpoint::Steps`], and then gives the same text with and without a
//! KV cache.
//!
//! # Gradients
//!
//! The forward code uses candle's fused softmax and layer norm, through which candle's own `backward` does not
//! see. It stops there without a word.

mod config;
mod embedded;
mod generate;
mod lens;
mod load;
mod model;

pub use crate::activation::Activation;
pub use crate::language::{Generation, Past, Sampling, Tokenizer};
pub use config::Config;
pub use model::{Attention, Block, Gpt2, Mlp};
