//! Source that cannot be read, and places that cannot be written to.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::replace::WriteError;

/// Why source is not annotated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Files that are not Rust.
    #[error(transparent)]
    Syntax(#[from] SyntaxErrors),
    /// A file or a folder that cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file or the folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that is no text.
    #[error("{path} is not UTF-8 text, as Rust source must be")]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// A folder without any Rust file that could be annotated.
    #[error("there are no Rust files in {root}")]
    NoRust {
        /// The folder.
        root: PathBuf,
        /// What is left alone in it because `.gitignore` or `.ignore` names it.
        ignored: Vec<PathBuf>,
    },
    /// A text without a file that is to be written back.
    #[error("{path} is no file that could be written back; name a file to write to")]
    NoFile {
        /// What the text is called.
        path: PathBuf,
    },
    /// A text without a file name that is to be written into a folder.
    #[error("{out} is a folder, and {path} has no file name: name a file in it")]
    NoFileName {
        /// The folder.
        out: PathBuf,
        /// What the text is called.
        path: PathBuf,
    },
    /// A folder that is to be copied to a file.
    #[error("{root} is a folder, so its copy must be one, and {out} is a file")]
    OutIsFile {
        /// The folder that is read.
        root: PathBuf,
        /// The file.
        out: PathBuf,
    },
    /// A folder that is to be copied over itself.
    #[error("{out} is the folder that is read; write back into it, or choose another")]
    OutIsSource {
        /// The folder.
        out: PathBuf,
    },
    /// A folder that is to be copied into itself.
    #[error("{out} is inside the folder that is read; choose one outside")]
    OutIsInside {
        /// The folder that is to be written to.
        out: PathBuf,
    },
    /// A write that failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A file that is not Rust, and where that shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {message}", path.display())]
pub struct SyntaxError {
    /// The file, as it was named to [`annotate_sources`](crate::annotate_sources).
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What was expected there.
    pub message: String,
}

/// Every file that could not be read: one report names them all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxErrors(pub Vec<SyntaxError>);

impl fmt::Display for SyntaxErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SyntaxErrors {}
