//! Adds hookpoint's annotations to Rust source that somebody else wrote.
//!
//! The work is three steps, one module each: `read` turns the text of a file into the few facts that
//! matter (types, `impl` blocks, imports, and where they stand), `survey` decides over all files which
//! types are modules, and `annotate` inserts text at byte offsets. Nothing is ever printed back from a
//! syntax tree, so whatever is not inserted stays as it was, byte for byte.
//!
//! ```
//! let source = "\
//! use candle_nn::Linear;
//!
//! /// Two layers.
//! struct Mlp { up: Linear, down: Linear }
//!
//! impl Mlp {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> { x.apply(&self.up)?.apply(&self.down) }
//! }
//! ";
//! let annotated = hookpoint_cli::annotate_source(source)?;
//! assert_eq!(annotated.text, "\
//! use hookpoint::{auto_hook, AutoHook};
//!
//! use candle_nn::Linear;
//!
//! /// Two layers.
//! #[derive(AutoHook)]
//! struct Mlp { up: Linear, down: Linear }
//!
//! #[auto_hook]
//! impl Mlp {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> { x.apply(&self.up)?.apply(&self.down) }
//! }
//! ");
//! assert_eq!((annotated.counts.modules, annotated.counts.impls), (1, 1));
//! # Ok::<(), hookpoint_cli::SyntaxError>(())
//! ```

mod annotate;
pub mod diff;
mod error;
pub mod output;
mod read;
pub mod registry;
mod replace;
pub mod source;
mod survey;
mod walk;

pub use annotate::{annotate_each, annotate_source, annotate_sources, Annotated, Counts, Source};
pub use error::{SyntaxError, SyntaxErrors};
pub use replace::{Cause, WriteError};
