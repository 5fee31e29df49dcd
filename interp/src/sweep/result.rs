//! What a sweep has found.

use std::fmt;
use std::time::Duration;

use candle_core::{Device, Tensor};
use hookpoint::error::nearest;
use hookpoint::{Error, ErrorKind, Result};

/// One axis of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Axis {
    /// `point` for the first, `index 0` and so on for the others, unless
    /// [`Sweep::axes`](super::Sweep::axes) names them; `set` where cells are sets.
    pub name: String,
    /// The names of the points, or numbers.
    pub labels: Vec<String>,
}

impl Axis {
    /// An axis with these labels.
    pub fn new(name: impl Into<String>, labels: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { name: name.into(), labels: labels.into_iter().map(Into::into).collect() }
    }
}

/// What every cell of a sweep did to the metric.
///
/// Tensors have one dimension for each [axis](Self::axes): the points, in the order in which the model
/// reaches them, then one for each `*` in the index. Cells that a cancelled sweep did not get to are NaN.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepResult {
    /// The metric with nothing changed: of the corrupted input, where there are two.
    pub baseline: f64,
    /// The metric of the clean input, where there are two.
    pub clean: Option<f64>,
    /// What it took.
    pub work: Work,
    pub(super) axes: Vec<Axis>,
    /// The name of every cell.
    pub(super) names: Vec<String>,
    pub(super) values: Vec<Option<f64>>,
}

/// What a sweep took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// How often the model was run for cells.
    pub forwards: usize,
    /// Cells that were known without a run, because what they put in is what is there anyway.
    pub unchanged: usize,
    /// Calls of modules that were answered from the recording, each of them for all cells of a run.
    pub replayed: usize,
    /// The most cells that shared one run.
    pub most_cells: usize,
    /// What it took to see that cells are the same by themselves.
    pub checks: Checks,
}

/// What the [checks](super::Verify) of a sweep took, besides the runs that it needs anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checks {
    /// How often the model was run for them.
    pub forwards: usize,
    /// How many copies of the input these runs had.
    pub copies: usize,
    /// How many cells were made again by themselves.
    pub cells: usize,
    /// How long they took.
    pub time: Duration,
}

impl Checks {
    /// A run with so many copies of the input.
    pub(super) fn add(&mut self, copies: usize) {
        self.forwards += 1;
        self.copies += copies;
    }
}

/// One cell of a sweep.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SweepCell<'a> {
    /// The point with its index, as a plan would name it.
    pub name: &'a str,
    /// One label for every axis.
    pub labels: Vec<&'a str>,
    /// The metric.
    pub value: f64,
    /// The metric less that of the baseline.
    pub effect: f64,
    /// The effect as a share of what there is between the inputs; none where there are not two, or both give
    /// the same.
    pub normalized: Option<f64>,
}

impl SweepResult {
    /// The axes: the points, then one for every `*`.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// How long the axes are.
    pub fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.labels.len()).collect()
    }

    /// Are all cells there? A sweep that was cancelled lacks some.
    pub fn is_complete(&self) -> bool {
        self.values.iter().all(Option::is_some)
    }

    /// The metric of every cell.
    pub fn values(&self) -> Result<Tensor> {
        self.tensor(|value| value)
    }

    /// The metric of every cell less that of the baseline.
    pub fn effects(&self) -> Result<Tensor> {
        self.tensor(|value| value - self.baseline)
    }

    /// `(value - corrupted) / (clean - corrupted)` of every cell: 0 as corrupted, 1 as clean. An error where
    /// there are not two inputs, or where both give the same.
    pub fn normalized(&self) -> Result<Tensor> {
        let Some(clean) = self.clean else {
            return Err(ErrorKind::NothingToNormalize.into());
        };
        let whole = clean - self.baseline;
        if whole == 0. {
            return Err(ErrorKind::NothingToRecover { value: clean }.into());
        }
        self.tensor(|value| (value - self.baseline) / whole)
    }

    fn tensor(&self, f: impl Fn(f64) -> f64) -> Result<Tensor> {
        let values: Vec<f64> = self.values.iter().map(|value| value.map_or(f64::NAN, &f)).collect();
        Ok(Tensor::from_vec(values, self.shape(), &Device::Cpu)?)
    }

    /// The metric at one place, counted along the axes.
    pub fn at(&self, place: &[usize]) -> Option<f64> {
        let shape = self.shape();
        if place.len() != shape.len() || place.iter().zip(&shape).any(|(at, size)| at >= size) {
            return None;
        }
        let flat = place.iter().zip(&shape).fold(0, |flat, (at, size)| flat * size + at);
        self.values.get(flat).copied().flatten()
    }

    /// The metric of the cell with this name, as in `blocks.3:resid_pre[:, 5]`.
    pub fn get(&self, name: &str) -> Result<f64> {
        let missing = || {
            let nearest = nearest(name, self.names.iter().map(String::as_str));
            Error::from(ErrorKind::MissingKey { key: name.to_string(), nearest })
        };
        let at = self.names.iter().position(|cell| cell == name).ok_or_else(missing)?;
        let unfinished = || ErrorKind::Cancelled { cell: Some(name.to_string()) }.into();
        self.values.get(at).copied().flatten().ok_or_else(unfinished)
    }

    /// Every cell that is there, the last axis running fastest.
    pub fn cells(&self) -> impl Iterator<Item = SweepCell<'_>> {
        let whole = self.clean.map(|clean| clean - self.baseline).filter(|whole| *whole != 0.);
        self.names.iter().zip(&self.values).enumerate().filter_map(move |(at, (name, value))| {
            let effect = (*value)? - self.baseline;
            let normalized = whole.map(|whole| effect / whole);
            Some(SweepCell { name, labels: self.labels(at), value: (*value)?, effect, normalized })
        })
    }

    /// The cells whose metric is NaN or infinite. Unless the sweep [checks nothing](super::Verify::Nothing), the first and
    /// the last such cell of every run were made again by themselves, up to eight of them, and gave no number there
    /// either: one that was spoilt by others is an error.
    pub fn not_finite(&self) -> impl Iterator<Item = SweepCell<'_>> {
        self.cells().filter(|cell| !cell.value.is_finite())
    }

    /// The cells with the largest effects first.
    pub fn ranked(&self) -> Vec<SweepCell<'_>> {
        let mut cells: Vec<_> = self.cells().collect();
        cells.sort_by(|a, b| b.effect.abs().total_cmp(&a.effect.abs()));
        cells
    }

    /// The same cells along other axes, the last running fastest: sets that are a table.
    pub fn arranged(mut self, axes: impl IntoIterator<Item = Axis>) -> Result<Self> {
        self.axes = axes.into_iter().collect();
        let (shape, cells) = (self.shape(), self.values.len());
        if shape.iter().product::<usize>() != cells {
            let argument = format!("the axes of {cells} cells");
            let (got, remedy) =
                (format!("of {shape:?} places"), "give axes whose places multiply to that number");
            return Err(ErrorKind::InvalidArgument { argument, got, remedy: remedy.to_string() }.into());
        }
        Ok(self)
    }

    fn labels(&self, at: usize) -> Vec<&str> {
        let mut rest = at;
        let mut labels: Vec<&str> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            let size = axis.labels.len().max(1);
            labels.push(axis.labels.get(rest % size).map_or("", String::as_str));
            rest /= size;
        }
        labels.reverse();
        labels
    }

    /// Gives an axis other labels: the tokens for the positions.
    pub fn relabel(
        &mut self,
        axis: usize,
        labels: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<()> {
        let labels: Vec<String> = labels.into_iter().map(Into::into).collect();
        let count = self.axes.len();
        let Some(axis) = self.axes.get_mut(axis) else {
            let (what, index) = ("axis".to_string(), axis.to_string());
            return Err(ErrorKind::NoSuchNumber { what, index, count }.into());
        };
        if labels.len() != axis.labels.len() {
            let (what, of) = ("labels".to_string(), format!("places of the axis `{}`", axis.name));
            let (given, expected) = (labels.len(), axis.labels.len());
            return Err(ErrorKind::CountDiffers { what, given, of, expected }.into());
        }
        axis.labels = labels;
        Ok(())
    }
}

impl fmt::Display for SweepResult {
    /// A table: shares of what there is between the inputs where there are two, effects where not. The last
    /// axis runs to the right.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = self.clean.is_some_and(|clean| clean != self.baseline);
        match self.clean {
            Some(clean) => write!(f, "clean {clean:.4}, corrupted {:.4}; ", self.baseline)?,
            None => write!(f, "baseline {:.4}; ", self.baseline)?,
        }
        f.write_str(if shares { "share that is recovered" } else { "effect" })?;
        if !self.is_complete() {
            let done = self.values.iter().flatten().count();
            write!(f, "; cancelled after {done} of {} cells", self.values.len())?;
        }
        let not_finite = self.not_finite().count();
        if not_finite > 0 {
            write!(f, "; {not_finite} without a number: the metric is NaN or infinite")?;
            if self.work.checks.cells > 0 {
                f.write_str(", by itself, too")?;
            }
        }
        let whole = self.clean.map_or(1., |clean| if shares { clean - self.baseline } else { 1. });
        let text = |value: &Option<f64>| match value {
            Some(value) => format!("{:.3}", (value - self.baseline) / whole),
            None => "-".to_string(),
        };
        let columns: Vec<&str> = match self.axes.as_slice() {
            [_, .., last] => last.labels.iter().map(String::as_str).collect(),
            _ => vec!["value"],
        };
        let wide = |label: &&str| label.chars().count().max(7);
        let widths: Vec<usize> = columns.iter().map(wide).collect();
        let count = columns.len().max(1);
        let row_name = |row: usize| {
            let labels = self.labels(row * count);
            let rows = if self.axes.len() > 1 { labels.len() - 1 } else { labels.len() };
            labels.iter().take(rows).copied().collect::<Vec<_>>().join(" ")
        };
        let rows: Vec<String> = (0..self.values.len() / count).map(row_name).collect();
        let first = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
        write!(f, "\n{:first$}", "")?;
        for (column, width) in columns.iter().zip(&widths) {
            write!(f, "  {column:>width$}")?;
        }
        for (row, values) in rows.iter().zip(self.values.chunks(count)) {
            write!(f, "\n{row:first$}")?;
            for (value, width) in values.iter().zip(&widths) {
                write!(f, "  {:>width$}", text(value))?;
            }
        }
        Ok(())
    }
}
