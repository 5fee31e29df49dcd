//! The command `hookpoint`, as a library: what its subcommands do, and how it is shown.
//!
//! A subcommand is one file in [`commands`]: its arguments, and a function that does it with the libraries of the
//! workspace. How something looks in a terminal is in [`render`].
//!
//! ```
//! use hookpoint_cli::target::Target;
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("head.rs");
//! std::fs::write(&file, "struct Head(Linear);\n")?;
//!
//! let sources = Target::find(&file.display().to_string())?.sources(&[])?;
//! let annotation = sources.annotate()?;
//! let AnnotatedFile { source, annotated } = &annotation.files()[0];
//! let diff = hookpoint_cli::render::diff::unified("head.rs", &source.text, &annotated.text);
//! assert!(diff.contains("+#[derive(AutoHook)]"));
//! # use hookpoint_annotate::AnnotatedFile;
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod args;
pub mod commands;
pub mod map;
pub mod pending;
pub mod registry;
pub mod render;
pub mod schema;
pub mod steering;
pub mod target;
