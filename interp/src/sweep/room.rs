//! How many cells share a run: as many as the memory that a sweep may use has room for.
//!
//! Where a [`CountingAllocator`](hookpoint::memory::CountingAllocator) is installed, it has been measured what a run
//! with one row and a run with two take at their peak, and what the sweep holds besides. Where none is, the
//! values that points have shown are added up: more than a run has at once, but not what it uses between them.

use std::collections::BTreeMap;

use hookpoint::memory::{self, bytes_of};
use hookpoint::recording::Rows;
use hookpoint::{Recording, Result};

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
    pub fn expect(&mut self, recording: &Recording, times: &[u32], largest: usize) -> Result<()> {
        let run = match self.peak {
            Some(peak) => peak,
            None => seen(recording)?,
        };
        self.each = (run + repeated(recording, times) + 3 * largest).max(1);
        self.held = match (memory::in_use(), self.before) {
            (Some(now), Some(before)) => now.saturating_sub(before),
            _ => recording.calls().map(|call| bytes_of(call.value)).sum(),
        };
        Ok(())
    }

    /// How many cells may share the next run.
    pub fn cells(&self) -> usize {
        (self.budget.saturating_sub(self.held) / self.each.max(1)).clamp(1, self.most.max(1))
    }
}

/// Bytes of everything that points showed, added up: more than one run ever needs at once.
fn seen(recording: &Recording) -> Result<usize> {
    // Points are known by shape alone; most have the type of what modules give.
    let wide = recording.calls().map(|call| call.value.dtype().size_in_bytes()).max().unwrap_or(4);
    let points = recording.reached(&"**:*".parse()?)?;
    let visits = points.iter().flat_map(|point| &point.visits);
    Ok(visits.map(|visit| visit.shape.iter().product::<usize>() * wide).sum())
}

/// Bytes of the answers that runs get which are changed at these times, and which are repeated for every copy of the
/// input: each answer once, since it is kept for the next run.
fn repeated(recording: &Recording, times: &[u32]) -> usize {
    let (mut times, mut bytes) = (times.to_vec(), BTreeMap::new());
    times.dedup();
    for time in times {
        let mut until = 0;
        for (at, call) in recording.calls().enumerate() {
            let (begin, end) = call.time;
            if begin > until && end < time {
                until = end;
                if call.rows != Rows::Same {
                    bytes.insert(at, bytes_of(call.value));
                }
            }
        }
    }
    bytes.into_values().sum()
}
