//! Which cells of a sweep are made again by themselves.

use std::collections::{HashMap, HashSet};

use candle_core::Tensor;
use hookpoint::{ActivationCache, Result};

use super::result::Checks;

/// Which cells of a sweep are made again by themselves, to see that they are the same there.
///
/// A number stands for [`Verify::Cells`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verify {
    /// None, and no cell is put beside an unchanged row. Two copies of the input still have to give its output twice.
    Nothing,
    /// The first and the last of the sweep and of its runs, and the one with the largest effect: about nine runs.
    #[default]
    Telling,
    /// These, and so many others, evenly spread.
    Cells(usize),
    /// Every cell. That takes as many runs as there are cells, through the whole model.
    All,
}

impl From<usize> for Verify {
    fn from(cells: usize) -> Self {
        Verify::Cells(cells)
    }
}

/// What comes of a cell, as far as checks need to know.
pub(super) trait Outcome: Clone {
    /// The metric, if it is a number.
    fn number(&self) -> Option<f64>;
}

impl Outcome for f64 {
    fn number(&self) -> Option<f64> {
        Some(*self)
    }
}

impl Outcome for ActivationCache {
    fn number(&self) -> Option<f64> {
        None
    }
}

const MOST_NOT_FINITE: usize = 8;

/// What a cell gave in the sweep, kept until it has been made again.
pub(super) struct Kept {
    /// Its number among the cells.
    pub cell: usize,
    /// Its place among the copies, and how many there were.
    pub place: (usize, usize),
    pub values: Vec<Tensor>,
}

/// Which cells are made again, and which have been.
pub(super) struct Verifier {
    verify: Verify,
    /// Those that were asked for.
    wanted: HashSet<usize>,
    pub done: HashSet<usize>,
    most_cells: usize,
    /// The largest effect so far, and who had it.
    pub largest: Option<(f64, Kept)>,
    not_finite: usize,
    /// What cells have given by themselves.
    pub alone: HashMap<usize, Vec<Tensor>>,
    pub checks: Checks,
}

impl Verifier {
    /// `cells` are those that will be made, in their order.
    pub fn new(verify: Verify, cells: &[usize]) -> Self {
        let wanted = match verify {
            Verify::Nothing | Verify::Telling => HashSet::new(),
            Verify::Cells(count) => {
                let step = cells.len().div_ceil(count.max(1)).max(1);
                cells.iter().copied().step_by(step).take(count).collect()
            }
            Verify::All => cells.iter().copied().collect(),
        };
        let (done, alone, checks) = (HashSet::new(), HashMap::new(), Checks::default());
        Self { verify, wanted, done, most_cells: 0, largest: None, not_finite: 0, alone, checks }
    }

    pub fn is_off(&self) -> bool {
        self.verify == Verify::Nothing
    }

    /// Which of the cells of a run are to be kept, because they will be made again: `numbers` is what they gave.
    pub fn telling(&mut self, batch: &[usize], numbers: &[Option<f64>], is_last: bool) -> Vec<usize> {
        let mut telling: Vec<usize> = (0..batch.len())
            .filter(|copy| batch.get(*copy).is_some_and(|cell| self.wanted.contains(cell)))
            .collect();
        let last = batch.len().saturating_sub(1);
        if batch.len() > self.most_cells {
            self.most_cells = batch.len();
            telling.extend([0, last]);
        } else if is_last {
            telling.push(last);
        }
        let is_bad = |number: &Option<f64>| number.is_some_and(|number| !number.is_finite());
        for bad in [numbers.iter().position(is_bad), numbers.iter().rposition(is_bad)].into_iter().flatten() {
            if self.not_finite < MOST_NOT_FINITE && !telling.contains(&bad) {
                self.not_finite += 1;
                telling.push(bad);
            }
        }
        telling.sort_unstable();
        telling.dedup();
        telling
    }
}

impl Kept {
    /// How it was made.
    pub fn way(&self) -> String {
        match self.place {
            (_, 1) => "with what comes before it replayed".to_string(),
            (0, copies) => format!("as the first of {copies} cells side by side"),
            (copy, copies) if copy + 1 == copies => format!("as the last of {copies} cells side by side"),
            (copy, copies) => format!("as number {} of {copies} cells side by side", copy + 1),
        }
    }

    /// With its numbers by themselves: rows of a run would keep all of it.
    pub fn by_itself(mut self) -> Result<Self> {
        self.values = self.values.iter().map(Tensor::force_contiguous).collect::<candle_core::Result<_>>()?;
        Ok(self)
    }
}
