//! Source that cannot be read.

use std::fmt;
use std::path::PathBuf;

/// A file that is not Rust, and where that shows.
#[derive(Debug, Clone, PartialEq, Eq)]
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

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.path.display(), self.line, self.column, self.message)
    }
}

impl std::error::Error for SyntaxError {}

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
