//! Runs every model of the zoo, untouched and annotated, and prints one line of JSON for each: whether
//! the outputs are equal bit by bit in every way of running it, and which points were reached.

mod annotated;
mod bits;
mod plain;

use std::io::Write;

fn main() -> std::io::Result<()> {
    // Panics in models are reported as errors of these models.
    std::panic::set_hook(Box::new(|_| {}));
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let outputs = plain::outputs(&wanted);
    for line in annotated::compare(&wanted, &outputs) {
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(())
}
