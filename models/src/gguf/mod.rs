//! GGUF files, as llama.cpp writes them: metadata, a tokenizer, and tensors that may be quantized.
//!
//! Candle has a reader of its own. This one is stricter: every length is compared with that of the file before
//! memory is asked for, and what it does not understand it says.

mod file;
mod header;
mod metadata;
mod tokenizer;

pub use file::Gguf;
pub use metadata::Metadata;
pub use tokenizer::{tokenizer, Unsupported};
