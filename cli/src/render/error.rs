//! Errors on standard error.

use std::io;

use super::paint;

/// Prints an error with its causes. Of source that is not Rust every file has a line, so that editors find the places.
pub fn print(error: &anyhow::Error) {
    let label = paint(&io::stderr(), "1;31", "error:");
    match error.downcast_ref::<hookpoint_annotate::Error>() {
        Some(hookpoint_annotate::Error::Syntax(errors)) => {
            for error in &errors.0 {
                eprintln!("{label} {error}");
            }
            eprintln!("nothing was written; mend these files, or leave them out with `--only`");
        }
        _ => eprintln!("{label} {error:#}"),
    }
}
