//! BERT, the encoder.
//!
//! `model.rs` is the model, written as candle-transformers writes models, with hookpoint's two
//! annotations. The points that matter have the names and shapes of TransformerLens' `HookedEncoder`:
//!
//! | point | shape |
//! | --- | --- |
//! | `hook_embed`, `hook_token_type_embed`, `hook_pos_embed`, their normalized sum `hook_full_embed` | `[batch, pos, d_model]` |
//! | `blocks.0.hook_resid_pre`, `.hook_resid_mid`, `.hook_resid_post` | `[batch, pos, d_model]` |
//! | `blocks.0.hook_normalized_resid_mid`, `.hook_normalized_resid_post` | `[batch, pos, d_model]` |
//! | `blocks.0.hook_attn_out`, `.hook_mlp_out` | `[batch, pos, d_model]` |
//! | `blocks.0.attn.hook_q`, `.hook_k`, `.hook_v`, `.hook_z` | `[batch, pos, head, d_head]` |
//! | `blocks.0.attn.hook_attn_scores`, `.hook_pattern` | `[batch, head, query, key]` |
//! | `blocks.0.attn.hook_result` | `[batch, pos, head, d_model]` |
//! | `blocks.0.mlp.hook_pre`, `.hook_post` | `[batch, pos, d_mlp]` |
//!
//! The residual stream is normalized behind attention and behind the mlp: `resid_mid` and `resid_post` are the
//! sums before that. Every other module and named value is a point as well; `Hooked::scan` lists them.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use hookpoint::prelude::*;
//! use hookpoint_models::bert::{Bert, Config};
//!
//! let config = Config {
//!     vocab_size: 10, max_position_embeddings: 8, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 2,
//!     num_attention_heads: 2, ..Config::default()
//! };
//! let model = Hooked::new(Bert::random(&config, 0, &Device::Cpu)?);
//! let ids = Tensor::new(&[[1u32, 2, 3]], &Device::Cpu)?;
//!
//! let (hidden, cache) = model.run_with_cache("blocks.*.attn.hook_pattern", |m| m.forward(&ids))?;
//! assert_eq!(hidden.dims(), [1, 3, 8]);
//! let pattern = cache["blocks.1.attn.hook_pattern"].get(0)?.to_vec3::<f32>()?;
//! // A token looks at those behind it, too.
//! assert!(pattern[0][0][2] > 0.);
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! # Sentences as vectors
//!
//! [`Bert::sentence_embeddings`] makes vectors of sentences as sentence-transformers does, of a checkpoint that was
//! trained for it:
//!
//! ```no_run
//! use candle_core::{DType, Device};
//! use hookpoint_models::bert::Bert;
//!
//! let model = Bert::from_dir("path/to/all-MiniLM-L6-v2", DType::F32, &Device::Cpu)?;
//! let vectors = model.sentence_embeddings(&["A cat sits on the mat.", "A dog lies on the rug."])?;
//! let cosine = (vectors.get(0)? * vectors.get(1)?)?.sum_all()?.to_scalar::<f32>()?;
//! # Ok::<(), hookpoint::Error>(())
//! ```

mod batch;
mod config;
mod load;
mod model;
mod prompt;
mod sentences;
mod word_piece;

pub use crate::language::Tokenizer;
pub use batch::Batch;
pub use config::Config;
pub use model::{Attention, Bert, Block, Mlp};
pub use sentences::mean;
