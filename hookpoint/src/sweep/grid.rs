//! The cells of a sweep: every point that the patterns select, and every element of its index.

use super::result::Axis;
use crate::error::{Error, ErrorKind, Result};
use crate::hooked::Hooked;
use crate::pattern::{Index, Pattern};
use crate::recording::Recording;
use crate::run::select_nodes;
use crate::tree::AutoHook;

/// One thing to be changed.
pub(super) struct Cell {
    /// The point without index: `blocks.3:resid_pre`, or `block#2` where it is reached several times.
    pub point: String,
    /// The same without the number of the call.
    pub every_call: String,
    /// Which call of the point.
    pub call: usize,
    /// The part that is changed; none where all of it is.
    pub index: Option<Index>,
    /// For every `*` of the pattern, which place.
    pub places: Vec<usize>,
    /// When the point is reached.
    pub time: u32,
}

impl Cell {
    /// The cell's name: its point with its index.
    pub fn name(&self) -> String {
        self.indexed(&self.point)
    }

    /// The name that a hook is told, which has the number of the call besides.
    pub fn path(&self) -> String {
        self.indexed(&self.every_call)
    }

    fn indexed(&self, point: &str) -> String {
        match &self.index {
            Some(index) => format!("{point}[{index}]"),
            None => point.to_string(),
        }
    }
}

pub(super) struct Grid {
    pub axes: Vec<Axis>,
    /// The last axis runs fastest.
    pub cells: Vec<Cell>,
}

impl Grid {
    /// The cells of these patterns, as a run has reached them.
    pub fn of<M: AutoHook>(
        model: &Hooked<M>,
        patterns: &[Pattern],
        recording: &Recording,
        names: &[String],
    ) -> Result<Self> {
        let (mut cells, mut labels) = (Vec::new(), Vec::new());
        let mut sizes: Option<(String, Vec<usize>)> = None;
        for pattern in patterns {
            select_nodes(&model.tree(), pattern)?;
            let reached = recording.reached(pattern);
            for point in &reached {
                let several = point.visits.len() > 1;
                for (call, (time, dims)) in point.visits.iter().enumerate() {
                    if pattern.call().is_some_and(|wanted| wanted != call) {
                        continue;
                    }
                    let named = if several { format!("{}#{call}", point.name) } else { point.name.clone() };
                    let (size, elements) = elements(pattern, &point.name, dims)?;
                    match &sizes {
                        Some((_, others)) if *others == size => {}
                        Some((other, others)) => {
                            return Err(different_axes((other, others), (&named, &size)));
                        }
                        None => sizes = Some((named.clone(), size)),
                    }
                    cells.extend(elements.into_iter().map(|(index, places)| {
                        let (point, every_call) = (named.clone(), point.name.clone());
                        Cell { point, every_call, call, index, places, time: *time }
                    }));
                    labels.push(named);
                }
            }
            if !cells.iter().any(|cell: &Cell| reached.iter().any(|point| cell.every_call == point.name)) {
                return Err(ErrorKind::Unfired {
                    request: format!("sweep(\"{pattern}\")"),
                    points: vec![pattern.without_index().to_string()],
                    remedy: "sweep over points that this input reaches".to_string(),
                }
                .into());
            }
        }
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = labels.iter().find(|label| !seen.insert(label.as_str())) {
            return Err(Error::msg(format!(
                "`{twice}` is selected twice\n  give patterns that have no points in common"
            )));
        }
        let sizes = sizes.map(|(_, sizes)| sizes).unwrap_or_default();
        let mut axes = vec![Axis { name: "point".to_string(), labels }];
        let numbered = |(at, size): (usize, &usize)| Axis {
            name: format!("index {at}"),
            labels: (0..*size).map(|place| place.to_string()).collect(),
        };
        axes.extend(sizes.iter().enumerate().map(numbered));
        if names.len() > axes.len() {
            return Err(Error::msg(format!(
                "{} names for {} axes: there is one for the points, and one for every `*` in the index",
                names.len(),
                axes.len()
            )));
        }
        axes.iter_mut().zip(names).for_each(|(axis, name)| axis.name.clone_from(name));
        Ok(Self { axes, cells })
    }
}

type Element = (Option<Index>, Vec<usize>);

/// How many places every `*` stands for, and all combinations of them.
fn elements(pattern: &Pattern, point: &str, dims: &[usize]) -> Result<(Vec<usize>, Vec<Element>)> {
    let Some(index) = pattern.index() else { return Ok((Vec::new(), vec![(None, Vec::new())])) };
    let elements: Vec<Element> = index
        .elements(point, dims)?
        .into_iter()
        .map(|element| {
            let places = index.element_numbers(&element);
            (Some(element), places)
        })
        .collect();
    let last = elements.last().map_or(&[][..], |(_, places)| places);
    Ok((last.iter().map(|place| place + 1).collect(), elements))
}

fn different_axes((one, of_one): (&str, &[usize]), (other, of_other): (&str, &[usize])) -> Error {
    Error::msg(format!(
        "the points of a sweep must have the same axes: `{one}` has {of_one:?} elements, `{other}` has \
         {of_other:?}\n  make a sweep of each kind"
    ))
}
