//! The Llama family: Llama, Qwen2, Mistral and what is computed as they are.
//!
//! `model.rs` is the model, written as candle-transformers writes models, with hookpoint's two
//! annotations. The points that matter have the names and shapes of TransformerLens:
//!
//! | point | shape |
//! | --- | --- |
//! | `hook_embed` | `[batch, pos, d_model]` |
//! | `blocks.0.hook_resid_pre`, `.hook_resid_mid`, `.hook_resid_post` | `[batch, pos, d_model]` |
//! | `blocks.0.hook_attn_out`, `.hook_mlp_out` | `[batch, pos, d_model]` |
//! | `blocks.0.attn.hook_q`, `.hook_rot_q`, `.hook_z` | `[batch, pos, head, d_head]` |
//! | `blocks.0.attn.hook_k`, `.hook_rot_k`, `.hook_v` | `[batch, pos, shared head, d_head]` |
//! | `blocks.0.attn.hook_attn_scores`, `.hook_pattern` | `[batch, head, query, key]` |
//! | `blocks.0.attn.hook_result` | `[batch, pos, head, d_model]` |
//! | `blocks.0.mlp.hook_pre`, `.hook_pre_linear`, `.hook_post` | `[batch, pos, d_mlp]` |
//! | `ln_final`, `blocks.0.ln1`, `blocks.0.ln2` | `[batch, pos, d_model]` |
//! | `unembed` | `[batch, pos, vocab]` |
//!
//! `hook_pre` is the gate before its activation, `hook_pre_linear` what it lets through, `hook_post` their
//! product. Every other module and named value is a point as well; `Hooked::scan` lists them.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::llama::{Config, Llama};
//!
//! let config = Config {
//!     vocab_size: 10, max_position_embeddings: 8, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 2,
//!     num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, ..Config::default()
//! };
//! let model = Hooked::new(Llama::random(&config, 0, &Device::Cpu)?);
//! let ids = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
//!
//! let points = ["blocks.*.attn.hook_pattern", "blocks.*.attn.hook_rot_k"];
//! let (logits, cache) = model.run_with_cache(points, |m| m.forward(&ids))?;
//! assert_eq!(logits.dims(), [1, 3, 10]);
//! assert_eq!(cache["blocks.1.attn.hook_pattern"].dims(), [1, 4, 3, 3]);
//! assert_eq!(cache["blocks.1.attn.hook_rot_k"].dims(), [1, 3, 2, 2]);
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! # From a checkpoint
//!
//! [`Llama::from_dir`] takes the folder of a checkpoint as Hugging Face's `save_pretrained` writes it, and its
//! tokenizer with it. What is computed is what transformers computes, for every choice that [`Config`] has.
//!
//! [`Llama::from_gguf`] takes a GGUF file, with the tokenizer in it; quantized weights become numbers, or stay
//! as they are with [`Llama::from_gguf_quantized`]. [`Llama::from_path`] takes either, a folder or a file.
//!
//! Generation, the lenses and gradients are those of [`gpt2`](crate::gpt2).

mod config;
mod config_json;
mod generate;
mod gguf;
mod lens;
mod load;
mod model;
mod projection;
mod rope;

pub use crate::language::{Generation, Past, Sampling, Tokenizer};
pub use config::{Config, Windowed};
pub use model::{Attention, Block, Llama, Mlp, Rotary};
pub use projection::Projection;
pub use rope::RopeScaling;
