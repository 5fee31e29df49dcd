//! The cells of a sweep: every point that the patterns select, and every element of its index; or sets that
//! the user has put together.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use candle_core::Tensor;

use super::result::Axis;
use crate::error::{Error, ErrorKind, Result};
use crate::pattern::{Index, Pattern};
use crate::recording::{Reached, Recording};

/// A part of a value, at one call of its point.
#[derive(Clone)]
pub(super) struct Place {
    /// The point without index: `blocks.3:resid_pre`, or `block#2` where it is reached several times.
    pub point: String,
    /// The same without the number of the call.
    pub every_call: String,
    /// Which call of the point.
    pub call: usize,
    /// The part that is changed; none where all of it is.
    pub index: Option<Index>,
    /// When the point is reached.
    pub time: u32,
}

impl Place {
    /// The point with its index.
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

    /// The part that is meant of what is at the point.
    pub fn part_of(&self, value: &Tensor) -> Result<Tensor> {
        match &self.index {
            Some(index) => index.read(&self.point, value),
            None => Ok(value.clone()),
        }
    }
}

/// What is changed together.
pub(super) struct Cell {
    pub name: String,
    /// For every `*` of the pattern, which element.
    pub element: Vec<usize>,
    pub places: Vec<Arc<Place>>,
    /// When the first of its places is reached.
    pub time: u32,
}

impl Cell {
    pub fn new(name: String, element: Vec<usize>, places: Vec<Arc<Place>>) -> Self {
        let time = places.iter().map(|place| place.time).min().unwrap_or(u32::MAX);
        Self { name, element, places, time }
    }
}

/// A set of the user's: a name, and what is put in where.
pub(super) type Set = (String, Vec<(Pattern, Tensor)>);

pub(super) struct Grid {
    pub axes: Vec<Axis>,
    /// The last axis runs fastest.
    pub cells: Vec<Cell>,
}

impl Grid {
    /// The cells of these patterns, as a run has reached them.
    pub fn of(patterns: &[Pattern], recording: &Recording, names: &[String]) -> Result<Self> {
        let (mut cells, mut labels) = (Vec::new(), Vec::new());
        let mut sizes: Option<(String, Vec<usize>)> = None;
        for pattern in patterns {
            let before = labels.len();
            for point in recording.reached(pattern) {
                for (place, dims) in visited(&point, pattern) {
                    let (size, elements) = elements(pattern, &point.name, dims)?;
                    match &sizes {
                        Some((_, others)) if *others == size => {}
                        Some((other, others)) => {
                            return Err(different_axes((other, others), (&place.point, &size)));
                        }
                        None => sizes = Some((place.point.clone(), size)),
                    }
                    labels.push(place.point.clone());
                    cells.extend(elements.into_iter().map(|(index, element)| {
                        let place = Place { index, ..place.clone() };
                        Cell::new(place.name(), element, vec![Arc::new(place)])
                    }));
                }
            }
            if labels.len() == before {
                return Err(unreached(pattern));
            }
        }
        let mut seen = HashSet::new();
        if let Some(twice) = labels.iter().find(|label| !seen.insert(label.as_str())) {
            return Err(Error::msg(format!(
                "`{twice}` is selected twice\n  give patterns that have no points in common"
            )));
        }
        let sizes = sizes.map(|(_, sizes)| sizes).unwrap_or_default();
        let mut axes = vec![Axis::new("point", labels)];
        let numbered = |(at, size): (usize, &usize)| {
            Axis::new(format!("index {at}"), (0..*size).map(|place| place.to_string()))
        };
        axes.extend(sizes.iter().enumerate().map(numbered));
        Ok(Self { axes: named(axes, names)?, cells })
    }

    /// One cell for each set, and what is put into its places.
    pub fn of_sets(
        sets: Vec<Set>,
        recording: &Recording,
        names: &[String],
    ) -> Result<(Self, Vec<Vec<Tensor>>)> {
        // Sets that freeze most of a model name the same points again and again.
        let mut known: HashMap<String, Vec<Arc<Place>>> = HashMap::new();
        let (mut cells, mut parts) = (Vec::with_capacity(sets.len()), Vec::with_capacity(sets.len()));
        for (name, entries) in sets {
            let (mut places, mut tensors) = (Vec::new(), Vec::new());
            for (pattern, tensor) in entries {
                let text = pattern.to_string();
                let found = match known.get(&text) {
                    Some(found) => found,
                    None => known.entry(text).or_insert(places_of(&pattern, recording)?),
                };
                tensors.extend(std::iter::repeat_n(tensor, found.len()));
                places.extend(found.iter().cloned());
            }
            cells.push(Cell::new(name, Vec::new(), places));
            parts.push(tensors);
        }
        let axes = vec![Axis::new("set", cells.iter().map(|cell| cell.name.clone()))];
        Ok((Self { axes: named(axes, names)?, cells }, parts))
    }
}

/// The places that a pattern names: one for every call.
fn places_of(pattern: &Pattern, recording: &Recording) -> Result<Vec<Arc<Place>>> {
    let mut places = Vec::new();
    for point in recording.reached(pattern) {
        for (place, dims) in visited(&point, pattern) {
            let (_, elements) = elements(pattern, &point.name, dims)?;
            let at = |(index, _)| Arc::new(Place { index, ..place.clone() });
            places.extend(elements.into_iter().map(at));
        }
    }
    if places.is_empty() {
        return Err(unreached(pattern));
    }
    Ok(places)
}

/// The calls of a point that a pattern takes, each with the shape of the value.
fn visited<'p>(
    point: &'p Reached,
    pattern: &Pattern,
) -> impl Iterator<Item = (Place, &'p [usize])> + use<'p> {
    let (several, wanted) = (point.visits.len() > 1, pattern.call());
    let visits = point.visits.iter().enumerate();
    visits.filter(move |(call, _)| wanted.is_none_or(|wanted| wanted == *call)).map(
        move |(call, (time, dims))| {
            let named = if several { format!("{}#{call}", point.name) } else { point.name.clone() };
            let place =
                Place { point: named, every_call: point.name.clone(), call, index: None, time: *time };
            (place, dims.as_slice())
        },
    )
}

fn named(mut axes: Vec<Axis>, names: &[String]) -> Result<Vec<Axis>> {
    if names.len() > axes.len() {
        return Err(Error::msg(format!(
            "{} names for {} axes: there is one for the points, and one for every `*` in the index",
            names.len(),
            axes.len()
        )));
    }
    axes.iter_mut().zip(names).for_each(|(axis, name)| axis.name.clone_from(name));
    Ok(axes)
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

fn unreached(pattern: &Pattern) -> Error {
    ErrorKind::Unfired {
        request: format!("sweep(\"{pattern}\")"),
        points: vec![pattern.without_index().to_string()],
        remedy: "sweep over points that this input reaches".to_string(),
    }
    .into()
}

fn different_axes((one, of_one): (&str, &[usize]), (other, of_other): (&str, &[usize])) -> Error {
    Error::msg(format!(
        "the points of a sweep must have the same axes: `{one}` has {of_one:?} elements, `{other}` has \
         {of_other:?}\n  make a sweep of each kind"
    ))
}
