//! Adds [hookpoint](https://crates.io/crates/hookpoint)'s annotations to Rust source that somebody else wrote.
//!
//! A model can be looked into when its types have `#[derive(AutoHook)]` and its `impl` blocks `#[auto_hook]`.
//! Nobody has to write these lines by hand: which types are modules shows in the source. This crate reads it,
//! decides, and inserts the lines. Nothing is ever printed back from a syntax tree, so whatever is not inserted
//! stays as it was, byte for byte.
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
//! let annotated = hookpoint_annotate::annotate_source(source)?;
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
//! # Ok::<(), hookpoint_annotate::SyntaxError>(())
//! ```
//!
//! # In a build script
//!
//! A model that is somebody else's need not be changed where it is. A build script writes an annotated copy, and the
//! crate compiles that one:
//!
//! ```
//! // build.rs
//! use std::path::PathBuf;
//! use hookpoint_annotate::Sources;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # std::fs::create_dir_all(place.path().join("vendor/net"))?;
//! # std::fs::write(place.path().join("vendor/net/mod.rs"), "pub mod head;\n")?;
//! # std::fs::write(place.path().join("vendor/net/head.rs"), "pub struct Head(candle_nn::Linear);\n")?;
//! # std::fs::create_dir(place.path().join("out"))?;
//! # std::env::set_current_dir(place.path())?;
//! # std::env::set_var("OUT_DIR", place.path().join("out"));
//!     let out = PathBuf::from(std::env::var("OUT_DIR")?);
//!     let mut annotation = Sources::folder("vendor/net")?.annotate()?;
//!     annotation.write_to(&out.join("net"))?;
//!     for note in annotation.notes() {
//!         println!("cargo::warning={note}");
//!     }
//!     // The copy is a module of the crate: `include!(concat!(env!("OUT_DIR"), "/net.rs"));`
//!     let module = format!("#[path = {:?}]\npub mod net;\n", out.join("net/mod.rs"));
//!     std::fs::write(out.join("net.rs"), module)?;
//!     println!("cargo::rerun-if-changed=vendor/net");
//! #   assert!(std::fs::read_to_string(out.join("net/head.rs"))?.contains("#[derive(AutoHook)]"));
//! #   assert_eq!(annotation.counts().modules, 1);
//!     Ok(())
//! }
//! ```
//!
//! # What gets an annotation
//!
//! | | if |
//! | --- | --- |
//! | `#[derive(AutoHook)]` on a struct or enum | it has forward code (a method named `forward*`, or one that calls a module), implements `Module`, holds a layer of candle or another module, or uses tensors of its own in its methods |
//! | `#[derive(HookValue)]` on a struct | forward code returns it, with tensors in it, and no module holds it |
//! | `#[auto_hook]` on an `impl` block | its type is a module, and there is a method with `self`; traits of the standard library are left out |
//! | `#[auto_hook]` on a function | it is given tensors |
//! | `AutoHook` as a supertrait of a trait | a module holds trait objects of it (`Vec<Box<dyn Block>>`), and all types that implement it can have the derive, which they get. A [`Note`] says so, or why not |
//! | `use hookpoint::..` | a file or an inline module needs it |
//!
//! Types with `Config` at the end of their name, types for serde and builders of variables are no modules. What
//! is annotated already is left alone, and so are macros, function bodies and `#[cfg(test)]`. Files that belong
//! together are annotated together ([`annotate_sources`], [`Sources::folder`]): a type that is a module in one
//! file makes modules of the types that hold it in the others.
//!
//! # Files are safe
//!
//! [`Annotation::write_back`] and [`Annotation::write_to`] write temporary files beside the places of the new
//! ones, and rename them when all of them are on the disk. A write that fails leaves every file what it was, and the
//! [`WriteError`] says so, or names the files that were written. A process that is killed may leave a file
//! `.hookpoint-*.tmp` behind.

mod edit;
mod error;
mod read;
mod replace;
mod sources;
mod survey;
mod text;
mod walk;

pub use error::{Error, SyntaxError, SyntaxErrors};
pub use replace::{Cause, WriteError};
pub use sources::{AnnotatedFile, Annotation, Progress, Sources};
pub use text::{annotate_source, annotate_sources, Annotated, Counts, Note, Source};
