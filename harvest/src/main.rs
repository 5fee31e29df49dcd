//! `hookpoint-harvest`: activations of a corpus, by one machine or by many, for the models that come with hookpoint.

use std::process::ExitCode;

fn main() -> ExitCode {
    hookpoint_harvest::program::main_bundled()
}
