//! What models that continue texts have in common.
//!
//! [`LanguageModel`] is implemented by [`Gpt2`](crate::gpt2::Gpt2) and [`Llama`](crate::llama::Llama), so that a
//! tool can be written for both:
//!
//! ```
//! use candle_core::Device;
//! use hookpoint_models::gpt2::Gpt2;
//! use hookpoint_models::language::{Generation, LanguageModel};
//!
//! /// The next word.
//! fn next(model: &impl LanguageModel, text: &str) -> hookpoint::Result<String> {
//!     model.complete(text, &Generation::new(1))
//! }
//! let model = Gpt2::embedded(&Device::Cpu)?;
//! assert_eq!(next(&model, "When Mary and John went to the store, John gave a drink to")?, " Mary");
//! # Ok::<(), hookpoint::Error>(())
//! ```

mod generate;
mod model;
mod past;
mod prompt;
mod sample;
mod tokenizer;

pub use generate::Generation;
pub use model::LanguageModel;
pub use past::Past;
pub use sample::Sampling;
pub use tokenizer::Tokenizer;

pub(crate) use model::{layer_of, no_tokenizer};
pub(crate) use prompt::{check as check_prompt, Limits};
