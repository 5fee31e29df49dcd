//! A progress bar on standard error, where that is a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that is gone when it is dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar without a length. It is drawn when it is first shown.
    pub fn new() -> Self {
        let bar = ProgressBar::no_length();
        if !io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template("{prefix:>8} {bar:30} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows what is done to which thing, and how many of them are done.
    pub fn show(&self, doing: &'static str, what: &str, done: usize, all: usize) {
        self.0.set_prefix(doing);
        self.0.set_length(all as u64);
        self.0.set_position(done as u64);
        self.0.set_message(what.to_string());
    }

    /// Takes it away, so that lines can be printed.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
