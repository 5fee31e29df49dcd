//! How many cells share a run: as many as the memory that a sweep may use has room for.
//!
//! Where a [`CountingAllocator`](crate::memory::CountingAllocator) is installed, it has been measured what a run
//! with one row and a run with two take at their peak, and what the sweep holds besides. Where none is, the
//! values that points have shown are added up: more than a run has at once, but not what it uses between them.

use crate::memory;
use crate::recording::Recording;

pub(super) struct Room {
    budget: usize,
    /// The most cells that may share a run, whatever fits.
    most: usize,
    /// What the process used before the sweep began.
    before: Option<usize>,
    /// The most that a run has taken above what was there when it began, for each copy of the input.
    peak: Option<usize>,
    /// What is held between runs.
    held: usize,
    /// What every cell of a run takes.
    each: usize,
}

impl Room {
    pub fn new(budget: usize, most: usize) -> Self {
        Self { budget, most, before: memory::in_use(), peak: None, held: 0, each: 0 }
    }

    /// Takes note of what a run with so many copies of the input has taken at its peak, where that was measured.
    pub fn note(&mut self, copies: usize, peak: Option<usize>) {
        if let Some(peak) = peak {
            // What does not depend on the rows is shared; so with more of them, each takes this or less.
            let each = peak.div_ceil(copies);
            self.peak = Some(each);
            // A run that took more than was expected is a lesson for the next.
            self.each = if self.each == 0 { 0 } else { self.each.max(each) };
        }
    }

    /// Works out what a cell takes, where cells are changed at these times: what a run takes for each copy of the
    /// input, answers that are repeated for it, and the value that is changed, which is taken apart and
    /// put together.
    pub fn expect(&mut self, recording: &Recording, times: &[u32], largest: usize) {
        let run = self.peak.unwrap_or_else(|| recording.bytes_seen());
        self.each = (run + recording.bytes_repeated(times) + 3 * largest).max(1);
        self.held = match (memory::in_use(), self.before) {
            (Some(now), Some(before)) => now.saturating_sub(before),
            _ => recording.bytes_kept(),
        };
    }

    /// How many cells may share the next run.
    pub fn cells(&self) -> usize {
        (self.budget.saturating_sub(self.held) / self.each.max(1)).clamp(1, self.most.max(1))
    }
}
