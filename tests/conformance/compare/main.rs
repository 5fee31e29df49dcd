//! Runs every model of the zoo, untouched and annotated, and prints one line of JSON for each: whether
//! the outputs are equal bit by bit in every way of running it, and which points were reached.
//!
//! With `gradients` as the first argument it prints instead how far the gradients of models are from finite
//! differences. Further arguments are the names of models, or `--without` and the names of those that are not
//! meant; without any, all are meant.

mod annotated;
mod bits;
mod differences;
mod plain;

use std::io::Write;

fn main() {
    // Panics in models are reported as errors of these models.
    std::panic::set_hook(Box::new(|_| {}));
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut tell = |line: serde_json::Value| {
        // Nobody to tell is no reason to stop.
        let _ = writeln!(std::io::stdout(), "{line}");
    };
    match wanted.split_first() {
        Some((first, wanted)) if first == "gradients" => differences::compare(wanted, &mut tell),
        _ => annotated::compare(&wanted, &plain::outputs(&wanted)).into_iter().for_each(tell),
    }
}
