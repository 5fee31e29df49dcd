//! Runs every model of the zoo, untouched and annotated, and prints one line of JSON for each: whether
//! the outputs are equal bit by bit in every way of running it, and which points were reached.
//!
//! With `gradients` as the first argument it prints instead how far the gradients of models are from finite
//! differences. Further arguments are the names of models; without them, all are meant.

mod annotated;
mod bits;
mod differences;
mod plain;

use std::io::Write;

fn main() -> std::io::Result<()> {
    // Panics in models are reported as errors of these models.
    std::panic::set_hook(Box::new(|_| {}));
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let lines = match wanted.split_first() {
        Some((first, wanted)) if first == "gradients" => differences::compare(wanted),
        _ => annotated::compare(&wanted, &plain::outputs(&wanted)),
    };
    for line in lines {
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(())
}
