//! Which part of a tensor: the index of a pattern, held against a shape.
//!
//! An [`Index`] is what was written. Held against a shape it becomes one [`Pick`] per dimension, with
//! which [`slice`](super::slice) does the rest.

use std::fmt;

use candle_core::Tensor;

use super::parse;
use super::slice::{self, Pick};
use crate::error::{Error, ErrorKind, Result};

/// Which part of a tensor is meant, as in `[:, -1]`.
///
/// The items stand for the dimensions from the first on; dimensions without an item are taken whole.
///
/// * `3` is one place and drops the dimension; `-1` is the last place.
/// * `a:b` is a range without its end; either bound may be left out or count from the end.
/// * `a:b:step` takes every `step`-th place of the range.
/// * `:` is the whole dimension.
/// * `*` is every place by itself: a hook is called once per place ([`Index::elements`]).
/// * `...` is as many whole dimensions as are left over.
///
/// A bound that lies outside of its dimension, and a range that holds nothing, are errors.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint::Index;
///
/// let x = Tensor::arange(0f32, 6., &Device::Cpu)?.reshape((2, 3))?;
/// let last = Index::parse(":, -1")?;
/// assert_eq!(last.read("x", &x)?.to_vec1::<f32>()?, [2., 5.]);
///
/// let part = Tensor::new(&[20f32, 50.], &Device::Cpu)?;
/// let changed = last.write("x", &x, &part)?;
/// assert_eq!(changed.to_vec2::<f32>()?, [[0., 1., 20.], [3., 4., 50.]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Index {
    items: Vec<Item>,
}

/// One item as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    At(i64),
    /// The step is at least 1.
    Range {
        start: Option<i64>,
        end: Option<i64>,
        step: usize,
    },
    /// `*`
    Each,
    /// `...`, at most once.
    Rest,
}

impl Index {
    pub(super) fn new(items: Vec<Item>) -> Self {
        Self { items }
    }

    /// Parses what stands between the brackets.
    ///
    /// ```
    /// use hookpoint::Index;
    ///
    /// assert_eq!(Index::parse("0:4 , -1")?.to_string(), "0:4, -1");
    /// assert!(Index::parse("0..4").is_err());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Index> {
        parse::index(text)
    }

    /// Whether the index has a `*`.
    pub fn has_each(&self) -> bool {
        self.items.contains(&Item::Each)
    }

    /// One index per element of the `*` dimensions, the last of them running fastest, or the index
    /// itself if there is no `*`. The other items stay as they are written.
    ///
    /// ```
    /// use hookpoint::Index;
    ///
    /// let elements = Index::parse("*, -1")?.elements("x", &[2, 5])?;
    /// let texts: Vec<String> = elements.iter().map(Index::to_string).collect();
    /// assert_eq!(texts, ["0, -1", "1, -1"]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn elements(&self, point: &str, shape: &[usize]) -> Result<Vec<Index>> {
        self.resolve(point, shape)?;
        let mut elements = vec![self.clone()];
        for (position, (item, dim)) in self.dims(shape.len()).enumerate() {
            if item != Item::Each {
                continue;
            }
            let size = shape.get(dim).copied().unwrap_or(0);
            if size == 0 {
                let reason = format!("dimension {dim} is empty, so `*` stands for nothing; write `:`");
                return Err(self.out_of_range(point, shape, reason));
            }
            elements = elements
                .iter()
                .flat_map(|element| (0..size).map(move |place| element.with_place(position, place)))
                .collect();
        }
        Ok(elements)
    }

    /// The places that stand where this index has a `*`, in one of its [elements](Index::elements).
    ///
    /// ```
    /// use hookpoint::Index;
    ///
    /// let index = Index::parse("*, 0, *")?;
    /// let elements = index.elements("up", &[2, 1, 2])?;
    /// assert_eq!(elements[1].to_string(), "0, 0, 1");
    /// assert_eq!(index.element_numbers(&elements[1]), [0, 1]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn element_numbers(&self, element: &Index) -> Vec<usize> {
        let pairs = self.items.iter().zip(&element.items);
        let place = |(item, place): (&Item, &Item)| match (item, place) {
            (Item::Each, Item::At(place)) => usize::try_from(*place).ok(),
            _ => None,
        };
        pairs.filter_map(place).collect()
    }

    /// The shape of what [`read`](Index::read) gives.
    pub fn selected_shape(&self, point: &str, shape: &[usize]) -> Result<Vec<usize>> {
        Ok(slice::selected_shape(&self.resolve(point, shape)?))
    }

    /// The selected part: a view, unless a step makes a copy necessary. A `*` is read as `:`, which
    /// gives all its elements at once.
    pub fn read(&self, point: &str, tensor: &Tensor) -> Result<Tensor> {
        Ok(slice::read(tensor, &self.resolve(point, tensor.dims())?)?)
    }

    /// A new contiguous tensor that is `tensor` with the selected part replaced by `part`, which has
    /// the [selected shape](Index::selected_shape) and the same dtype and device. Gradients flow to
    /// both, and neither is changed. A `*` is written as `:`.
    pub fn write(&self, point: &str, tensor: &Tensor, part: &Tensor) -> Result<Tensor> {
        let picks = self.resolve(point, tensor.dims())?;
        let expected = slice::selected_shape(&picks);
        let what = || format!("the part for `[{self}]`");
        if part.dims() != expected {
            return Err(ErrorKind::Shape {
                point: point.to_string(),
                what: what(),
                expected,
                found: part.dims().to_vec(),
                remedy: "give the part the shape that the index selects; an int drops its dimension"
                    .to_string(),
            }
            .into());
        }
        if part.dtype() != tensor.dtype() {
            return Err(ErrorKind::DType {
                point: point.to_string(),
                what: what(),
                expected: tensor.dtype().as_str().to_string(),
                found: part.dtype().as_str().to_string(),
            }
            .into());
        }
        Ok(slice::write(tensor, &picks, part)?)
    }

    /// The index with the item at `position` replaced by an int.
    fn with_place(&self, position: usize, place: usize) -> Index {
        let mut index = self.clone();
        if let Some(item) = index.items.get_mut(position) {
            *item = Item::At(place as i64);
        }
        index
    }

    /// The items with the dimension of each; `...` comes with the first of its dimensions.
    fn dims(&self, rank: usize) -> impl Iterator<Item = (Item, usize)> + '_ {
        let rest = (rank + 1).saturating_sub(self.items.len());
        let mut dim = 0;
        self.items.iter().map(move |&item| {
            let first = dim;
            dim += if item == Item::Rest { rest } else { 1 };
            (item, first)
        })
    }

    /// One pick per dimension.
    fn resolve(&self, point: &str, shape: &[usize]) -> Result<Vec<Pick>> {
        let wanted = self.items.iter().filter(|&&item| item != Item::Rest).count();
        if wanted > shape.len() {
            let (rank, extra) = (shape.len(), wanted - shape.len());
            let reason = format!("{wanted} items are too many for rank {rank}; leave {extra} of them out");
            return Err(self.out_of_range(point, shape, reason));
        }
        let mut picks: Vec<Pick> = shape.iter().map(|&size| Pick::whole(size)).collect();
        for (item, dim) in self.dims(shape.len()) {
            // After the last dimension there can only be a `...` that stands for none.
            if let (Some(pick), Some(&size)) = (picks.get_mut(dim), shape.get(dim)) {
                *pick = item.resolve(dim, size).map_err(|reason| self.out_of_range(point, shape, reason))?;
            }
        }
        Ok(picks)
    }

    fn out_of_range(&self, point: &str, shape: &[usize], reason: String) -> Error {
        let (point, shape) = (point.to_string(), shape.to_vec());
        ErrorKind::IndexOutOfRange { point, index: self.to_string(), shape, reason }.into()
    }
}

impl Item {
    /// What the item takes of a dimension, or why it does not fit.
    fn resolve(self, dim: usize, size: usize) -> Result<Pick, String> {
        match self {
            Item::Each | Item::Rest | Item::Range { start: None, end: None, step: 1 } => {
                Ok(Pick::whole(size))
            }
            Item::At(place) => match from_start(place, size) {
                Some(start) if start < size => Ok(Pick { start, step: 1, len: 1, dropped: true }),
                _ if size == 0 => Err(format!("dimension {dim} is empty, it has no {place}; write `:`")),
                _ => {
                    let last = size - 1;
                    Err(format!("dimension {dim} has size {size}; write -{size} to {last}, not {place}"))
                }
            },
            Item::Range { start, end, step } => {
                let bound = |bound: i64| match from_start(bound, size) {
                    Some(place) if place <= size => Ok(place),
                    _ => Err(format!(
                        "dimension {dim} has size {size}; write -{size} to {size} or nothing, not {bound}"
                    )),
                };
                let start = start.map_or(Ok(0), bound)?;
                let end = end.map_or(Ok(size), bound)?;
                if start >= end {
                    return Err(format!(
                        "`{self}` holds nothing of dimension {dim}, which has size {size}; \
                         write a start below the end"
                    ));
                }
                let len = (end - start - 1) / step + 1;
                // One place has no step.
                Ok(Pick { start, step: if len == 1 { 1 } else { step }, len, dropped: false })
            }
        }
    }
}

/// The place counted from the start, if it does not lie before it.
fn from_start(place: i64, size: usize) -> Option<usize> {
    match usize::try_from(place) {
        Ok(place) => Some(place),
        Err(_) => size.checked_sub(usize::try_from(place.unsigned_abs()).ok()?),
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, item) in self.items.iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            item.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Item::At(place) => write!(f, "{place}"),
            Item::Each => f.write_str("*"),
            Item::Rest => f.write_str("..."),
            Item::Range { start, end, step } => {
                if let Some(start) = start {
                    write!(f, "{start}")?;
                }
                f.write_str(":")?;
                if let Some(end) = end {
                    write!(f, "{end}")?;
                }
                if step != 1 {
                    write!(f, ":{step}")?;
                }
                Ok(())
            }
        }
    }
}
