//! How much a tracker keeps.

use std::collections::VecDeque;

use candle_core::Tensor;

use crate::error::{ErrorKind, Result};
use crate::memory::bytes_of;

/// How many of the recorded values are kept, and what happens to the others. What is dropped is counted:
/// [`Tracked::dropped`](super::Tracked::dropped).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// All of them.
    All,
    /// At each point the first so many; later ones are dropped.
    First(usize),
    /// At each point the last so many; older ones are dropped.
    Last(usize),
    /// As many as fit into so many bytes, over all points of the request: the oldest steps are dropped. A
    /// step that does not fit by itself is an error.
    LastBytes(usize),
    /// All of them; more than so many bytes, over all points of the request, are an error, and the step
    /// that led to it is not recorded.
    UpToBytes(usize),
}

/// A value that was recorded.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub step: usize,
    pub tensor: Tensor,
}

/// What was recorded at one point.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffer {
    pub name: String,
    pub values: VecDeque<Kept>,
    pub dropped: usize,
}

/// The points of one request, which share a budget.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    pub keep: Keep,
    pub points: Vec<Buffer>,
}

impl Buffers {
    pub fn bytes(&self) -> usize {
        self.points.iter().flat_map(|point| &point.values).map(|kept| bytes_of(&kept.tensor)).sum()
    }

    /// Is there room for the values of one step?
    pub fn check(&self, values: &[(String, Tensor)]) -> Result<()> {
        let new: usize = values.iter().map(|(_, tensor)| bytes_of(tensor)).sum();
        let (before, limit, remedy) = match self.keep {
            Keep::All | Keep::First(_) | Keep::Last(_) => return Ok(()),
            Keep::LastBytes(limit) => (0, limit, "raise the limit, record fewer points, or an index of them"),
            Keep::UpToBytes(limit) => {
                (self.bytes(), limit, "raise the limit, clear the tracker, or keep `Keep::LastBytes`")
            }
        };
        if before + new <= limit {
            return Ok(());
        }
        Err(ErrorKind::TrackerFull { limit, needed: new, kept: before, remedy: remedy.to_string() }.into())
    }

    /// Adds the values of one step, for which there is room.
    pub fn add(&mut self, step: usize, values: Vec<(String, Tensor)>) {
        for (name, tensor) in values {
            let at = self.points.iter().position(|point| point.name == name).unwrap_or_else(|| {
                self.points.push(Buffer { name, ..Buffer::default() });
                self.points.len() - 1
            });
            let Some(point) = self.points.get_mut(at) else { continue };
            let (room, oldest_goes) = match self.keep {
                Keep::First(most) => (point.values.len() < most, false),
                Keep::Last(most) => (most > 0, point.values.len() >= most),
                Keep::All | Keep::LastBytes(_) | Keep::UpToBytes(_) => (true, false),
            };
            if !room {
                point.dropped += 1;
                continue;
            }
            if oldest_goes {
                point.dropped += usize::from(point.values.pop_front().is_some());
            }
            point.values.push_back(Kept { step, tensor });
        }
        if let Keep::LastBytes(limit) = self.keep {
            self.shrink(limit, step);
        }
    }

    /// Drops whole steps, the oldest first, until the rest fits; never the newest.
    fn shrink(&mut self, limit: usize, newest: usize) {
        while self.bytes() > limit {
            let steps = self.points.iter().filter_map(|point| point.values.front()).map(|kept| kept.step);
            let Some(oldest) = steps.min().filter(|oldest| *oldest < newest) else { return };
            for point in &mut self.points {
                while point.values.front().is_some_and(|kept| kept.step == oldest) {
                    point.values.pop_front();
                    point.dropped += 1;
                }
            }
        }
    }
}
