//! A progress bar for work that takes long, on standard error, where that is a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long nobody wonders what is going on.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar that appears once the work has taken a while, and is gone when it is dropped.
///
/// ```
/// let bar = hookpoint_cli::render::bar::Bar::new();
/// bar.begin("patching", 2);
/// bar.reach(1);
/// bar.clear();
/// ```
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    begun: Instant,
}

impl Bar {
    /// A bar without a length, which nobody sees yet.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{prefix:>8} {bar:30} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        Self { bar, begun: Instant::now() }
    }

    /// So many steps of this kind are to come.
    pub fn begin(&self, doing: &'static str, steps: usize) {
        self.bar.set_prefix(doing);
        self.bar.set_length(steps as u64);
    }

    /// One of the steps begins.
    pub fn run(&self) {
        self.draw();
        self.bar.inc(1);
    }

    /// So many of the steps are done.
    pub fn reach(&self, done: usize) {
        self.draw();
        self.bar.set_position(done as u64);
    }

    /// How it goes.
    pub fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Shows what is done to which thing, and how many of them are done.
    pub fn show(&self, doing: &'static str, what: &str, done: usize, all: usize) {
        self.begin(doing, all);
        self.reach(done);
        self.say(what.to_string());
    }

    /// Takes it away, so that lines can be printed.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Draws nothing where standard error is no terminal.
    fn draw(&self) {
        if self.bar.is_hidden() && self.begun.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
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
