//! The cells of a sweep: every point that the patterns select, and every element of its index; or sets that
//! the user has put together.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use candle_core::Tensor;
use hookpoint::{ActivationCache, Error, ErrorKind, Index, Pattern, Recording, Result};

use super::result::Axis;

/// A point at one of its calls.
pub(super) struct Point {
    /// `blocks.3:resid_pre`, or `block#2` where it is reached several times.
    pub name: String,
    /// The same as a plan is asked for it.
    pub pattern: Pattern,
    /// The name without the number of the call.
    pub every_call: String,
    /// Which call of the point.
    pub call: usize,
    /// When it is reached.
    pub time: u32,
    /// What is there when nothing is changed.
    pub there: Tensor,
}

/// A part of what is at a point.
#[derive(Clone)]
pub(super) struct Place {
    pub point: Arc<Point>,
    /// The part that is changed; none where all of it is.
    pub index: Option<Index>,
}

impl Place {
    /// The point with its index.
    pub fn name(&self) -> String {
        self.indexed(&self.point.name)
    }

    /// The name that a hook is told, which has the number of the call besides.
    pub fn path(&self) -> String {
        self.indexed(&self.point.every_call)
    }

    /// As a plan is asked for it.
    pub fn pattern(&self) -> Pattern {
        match &self.index {
            Some(index) => self.point.pattern.with_index(index.clone()),
            None => self.point.pattern.clone(),
        }
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
            Some(index) => index.read(&self.point.name, value),
            None => Ok(value.clone()),
        }
    }

    /// What is there when nothing is changed.
    pub fn there(&self) -> Result<Tensor> {
        self.part_of(&self.point.there)
    }
}

/// What runs with nothing changed have shown: when points are reached, and what is there.
pub(super) struct Ground {
    pub recording: Recording,
    pub base: ActivationCache,
}

impl Ground {
    /// The calls of points that a pattern takes.
    fn points(&self, pattern: &Pattern) -> Result<Vec<Arc<Point>>> {
        let mut points = Vec::new();
        for reached in self.recording.reached(pattern)? {
            let of_any_call = &reached.pattern;
            let values = self.base.calls(&reached.name);
            let several = reached.visits.len() > 1;
            for (call, visit) in reached.visits.iter().enumerate() {
                if pattern.call().is_some_and(|wanted| wanted != call) {
                    continue;
                }
                let name = if several { format!("{}#{call}", reached.name) } else { reached.name.clone() };
                let missing = || {
                    let (request, points) = (format!("sweep(\"{name}\")"), vec![name.clone()]);
                    let remedy =
                        "a second run with the same input did not reach it: start every run from the same \
                                  state"
                            .to_string();
                    Error::from(ErrorKind::Unfired { request, points, remedy })
                };
                let there = values.get(call).copied().ok_or_else(missing)?.clone();
                let pattern = if several { of_any_call.with_call(call) } else { of_any_call.clone() };
                let (every_call, time) = (reached.name.clone(), visit.time);
                points.push(Arc::new(Point { name, pattern, every_call, call, time, there }));
            }
        }
        Ok(points)
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
        let time = places.iter().map(|place| place.point.time).min().unwrap_or(u32::MAX);
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
    pub fn of(patterns: &[Pattern], ground: &Ground, names: &[String]) -> Result<Self> {
        let (mut cells, mut labels) = (Vec::new(), Vec::new());
        let mut sizes: Option<(String, Vec<usize>)> = None;
        for pattern in patterns {
            let before = labels.len();
            for point in ground.points(pattern)? {
                let (size, elements) = elements(pattern, &point)?;
                match &sizes {
                    Some((_, others)) if *others == size => {}
                    Some((other, others)) => {
                        return Err(different_axes((other, others), (&point.name, &size)));
                    }
                    None => sizes = Some((point.name.clone(), size)),
                }
                labels.push(point.name.clone());
                cells.extend(elements.into_iter().map(|(index, element)| {
                    let place = Place { point: point.clone(), index };
                    Cell::new(place.name(), element, vec![Arc::new(place)])
                }));
            }
            if labels.len() == before {
                return Err(unreached(pattern));
            }
        }
        let mut seen = HashSet::new();
        if let Some(twice) = labels.iter().find(|label| !seen.insert(label.as_str())) {
            return Err(ErrorKind::SelectedTwice { point: twice.clone() }.into());
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
    pub fn of_sets(sets: Vec<Set>, ground: &Ground, names: &[String]) -> Result<(Self, Vec<Vec<Tensor>>)> {
        // Sets that freeze most of a model name the same points again and again.
        let mut known: HashMap<Pattern, Vec<Arc<Place>>> = HashMap::new();
        let (mut cells, mut parts) = (Vec::with_capacity(sets.len()), Vec::with_capacity(sets.len()));
        for (name, entries) in sets {
            let (mut places, mut tensors) = (Vec::new(), Vec::new());
            for (pattern, tensor) in entries {
                let found = match known.get(&pattern) {
                    Some(found) => found,
                    None => {
                        let found = places_of(&pattern, ground)?;
                        known.entry(pattern).or_insert(found)
                    }
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
fn places_of(pattern: &Pattern, ground: &Ground) -> Result<Vec<Arc<Place>>> {
    let mut places = Vec::new();
    for point in ground.points(pattern)? {
        let (_, elements) = elements(pattern, &point)?;
        let at = |(index, _)| Arc::new(Place { point: point.clone(), index });
        places.extend(elements.into_iter().map(at));
    }
    if places.is_empty() {
        return Err(unreached(pattern));
    }
    Ok(places)
}

fn named(mut axes: Vec<Axis>, names: &[String]) -> Result<Vec<Axis>> {
    if names.len() > axes.len() {
        let (what, of) = ("names".to_string(), "axes (the points, and every `*` in the index)".to_string());
        return Err(ErrorKind::CountDiffers { what, given: names.len(), of, expected: axes.len() }.into());
    }
    axes.iter_mut().zip(names).for_each(|(axis, name)| axis.name.clone_from(name));
    Ok(axes)
}

type Element = (Option<Index>, Vec<usize>);

/// How many places every `*` stands for, and all combinations of them.
fn elements(pattern: &Pattern, point: &Point) -> Result<(Vec<usize>, Vec<Element>)> {
    let Some(index) = pattern.index() else { return Ok((Vec::new(), vec![(None, Vec::new())])) };
    let elements: Vec<Element> = index
        .elements(&point.every_call, point.there.dims())?
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
    let (one, other) = (one.to_string(), other.to_string());
    ErrorKind::AxesDiffer { one, of_one: of_one.to_vec(), other, of_other: of_other.to_vec() }.into()
}
