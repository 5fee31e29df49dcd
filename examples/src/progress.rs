//! A bar for work that takes long, and nothing for work that does not.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// So long nobody wonders what is going on.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Appears on stderr, if that is a terminal, once patience is over.
pub struct Progress {
    bar: ProgressBar,
    begun: Instant,
}

impl Progress {
    /// A bar that nobody sees yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let style = ProgressStyle::with_template("{msg}  {wide_bar}  {pos}/{len}  {eta} left");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, begun: Instant::now() }
    }

    /// So many runs of the model, or cells of a sweep, are to come.
    pub fn begin(&self, what: &'static str, runs: usize) {
        self.bar.set_message(what);
        self.bar.set_length(runs as u64);
    }

    /// One of them begins.
    pub fn run(&self) {
        self.show();
        self.bar.inc(1);
    }

    /// So many of them are done.
    pub fn reach(&self, done: usize) {
        self.show();
        self.bar.set_position(done as u64);
    }

    fn show(&self) {
        if self.bar.is_hidden() && self.begun.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
