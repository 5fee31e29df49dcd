//! Errors on standard error.

use std::io::{self, Write};

use super::{paint, Stream};

/// Prints an error with its causes. Of source that is not Rust every file has a line, so that editors find the places.
pub fn print(error: &anyhow::Error) {
    let label = paint(Stream::Err, "1;31", "error:");
    let text = match error.downcast_ref::<hookpoint_annotate::Error>() {
        Some(hookpoint_annotate::Error::Syntax(errors)) => {
            let lines = errors.0.iter().map(|error| format!("{label} {error}\n"));
            let lines: String = lines.collect();
            lines + "nothing was written; mend these files, or leave them out with `--only`\n"
        }
        _ => format!("{label} {error:#}\n"),
    };
    // If nobody can be told, the exit status still tells.
    let _ = io::stderr().write_all(text.as_bytes());
}
