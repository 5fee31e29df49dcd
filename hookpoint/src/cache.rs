//! What a run keeps: tensors by the names of their points.

mod activations;
mod algebra;
mod file;
mod join;
mod lookup;
mod parts;

use std::fmt;
use std::ops::Index;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use candle_core::{Device, Tensor};

pub use activations::Activations;

use crate::error::Result;
use crate::lookup::FastMap;
use crate::pattern::Pattern;
use crate::run::{Capture, CaptureAny, Kept, Labels, NamedCall};
use crate::value::AnyValue;
use parts::Parts;

/// The values that a run met at the points it was asked for, in the order in which they were completed.
///
/// A point that is reached several times keeps every value: [`calls`](Self::calls) gives them all,
/// [`get`](Self::get) the last, `cache["path#0"]` the first.
///
/// ```
#[doc = include_str!("two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let (_, a) = model.run_with_cache("{up,down}", |m| m.forward(&x))?;
/// let (_, b) = model.run_with_cache("{up,down}", |m| m.forward(&(&x * 3.)?))?;
/// assert_eq!(a.keys().collect::<Vec<_>>(), ["up", "down"]);
/// assert_eq!(a["up"].to_vec2::<f32>()?, [[1., -2.]]);
///
/// // A part of what is there can be asked for.
/// assert_eq!(a["up[:, -1]"].to_vec1::<f32>()?, [-2.]);
/// assert!(a.get("up[:, 2]").is_none() && a.get("sideways").is_none());
///
/// // The difference of two runs, and several points as one tensor.
/// let difference = (&b - &a)?;
/// assert_eq!(difference["up"].to_vec2::<f32>()?, [[2., -4.]]);
/// assert_eq!(difference.stack(["up", "down"])?.dims(), [2, 1, 2]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct ActivationCache {
    /// What a run has kept, as it kept it: sorted by name when it is first looked at.
    kept: Kept,
    table: OnceLock<Table>,
    /// Parts that were asked for by index, made when first asked for.
    parts: Parts,
    /// The gradients of a run with a backward pass.
    grads: Option<Arc<ActivationCache>>,
}

/// Entries by name.
#[derive(Clone, Default)]
struct Table {
    entries: Vec<Entry>,
    by_name: FastMap<Arc<str>, usize>,
}

#[derive(Clone)]
struct Entry {
    name: Arc<str>,
    /// Was one call asked for, as in `name#0`, so that there may have been others?
    by_call: bool,
    calls: Vec<Call>,
    any: Vec<(usize, AnyValue)>,
}

#[derive(Clone)]
struct Call {
    number: usize,
    tensor: Tensor,
}

impl Table {
    fn of(kept: &Kept) -> Self {
        let many = kept.tensors.len();
        let mut table = Self {
            entries: Vec::with_capacity(many),
            by_name: FastMap::with_capacity_and_hasher(many, Default::default()),
        };
        let mut others = kept.others.iter().peekable();
        for (at, Capture { label, call, tensor }) in kept.tensors.iter().enumerate() {
            while let Some(other) = others.next_if(|other| other.after <= at) {
                table.add_any(&kept.labels, other);
            }
            let number = *call as usize;
            table.with_label(&kept.labels, *label, |entry| {
                // Two requests may select one point.
                if entry.calls.last().is_none_or(|last| last.number != number) {
                    entry.calls.push(Call { number, tensor: tensor.clone() });
                }
            });
        }
        others.for_each(|other| table.add_any(&kept.labels, other));
        table
    }

    fn remove(&mut self, name: &str) -> bool {
        let Some(at) = self.by_name.remove(name) else { return false };
        self.entries.remove(at);
        self.by_name.values_mut().filter(|place| **place > at).for_each(|place| *place -= 1);
        true
    }

    fn add_any(&mut self, labels: &Labels, other: &CaptureAny) {
        let number = other.call as usize;
        self.with_label(labels, other.label, |entry| {
            if entry.any.last().is_none_or(|(last, _)| *last != number) {
                entry.any.push((number, other.value.clone()));
            }
        });
    }

    fn with_label(&mut self, labels: &Labels, label: u32, f: impl FnOnce(&mut Entry)) {
        let Some((name, by_call)) = labels.get(label) else { return };
        self.with_entry(name.clone(), |entry| {
            entry.by_call |= by_call;
            f(entry);
        });
    }

    fn with_entry(&mut self, name: Arc<str>, f: impl FnOnce(&mut Entry)) {
        let next = self.entries.len();
        let at = *self.by_name.entry(name.clone()).or_insert(next);
        if at == next {
            self.entries.push(Entry { name, by_call: false, calls: Vec::with_capacity(1), any: Vec::new() });
        }
        if let Some(entry) = self.entries.get_mut(at) {
            f(entry);
        }
    }
}

impl ActivationCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn of(kept: Kept) -> Self {
        Self { kept, ..Self::default() }
    }

    pub(crate) fn of_calls(calls: impl IntoIterator<Item = NamedCall>) -> Self {
        let mut cache = Self::default();
        cache.change(|table| {
            for NamedCall { name, call: number, by_call, tensor } in calls {
                table.with_entry(name, |entry| {
                    entry.by_call |= by_call;
                    // Two requests may select one point.
                    if entry.calls.last().is_none_or(|last| last.number != number) {
                        entry.calls.push(Call { number, tensor });
                    }
                });
            }
        });
        cache
    }

    fn entries(&self) -> &[Entry] {
        &self.table().entries
    }

    fn table(&self) -> &Table {
        self.table.get_or_init(|| Table::of(&self.kept))
    }

    /// Changes the entries, after which what was made from them no longer holds.
    fn change<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.take().unwrap_or_else(|| Table::of(&self.kept));
        self.kept = Kept::default();
        self.parts = Parts::default();
        let result = f(&mut table);
        self.table = OnceLock::from(table);
        result
    }

    fn with_entry(&mut self, name: Arc<str>, f: impl FnOnce(&mut Entry)) {
        self.change(|table| table.with_entry(name, f));
    }

    /// Adds a tensor under a name, as one more call where the name is there already.
    pub fn insert(&mut self, name: impl AsRef<str>, tensor: Tensor) {
        self.with_entry(name.as_ref().into(), |entry| {
            let number = entry.calls.last().map_or(0, |last| last.number + 1);
            entry.calls.push(Call { number, tensor });
        });
    }

    /// Takes out all that is kept under a name; says whether there was anything.
    pub fn remove(&mut self, name: &str) -> bool {
        self.change(|table| table.remove(name))
    }

    /// The names, in the order in which their values were completed: children before parents, the root last.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries().iter().map(|entry| &*entry.name)
    }

    /// Names and tensors; of a point that was reached several times, the last.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries().iter().filter_map(|entry| Some((&*entry.name, &entry.calls.last()?.tensor)))
    }

    /// Every tensor, under a name that stands for it alone: `name#call` where there are several, or
    /// where that call was asked for.
    pub(crate) fn named_calls(&self) -> impl Iterator<Item = (String, &Tensor)> {
        self.entries().iter().flat_map(|entry| {
            let numbered = entry.by_call || entry.calls.len() > 1;
            entry.calls.iter().map(move |call| {
                let name = match numbered {
                    true => with_call(&entry.name, call.number),
                    false => entry.name.to_string(),
                };
                (name, &call.tensor)
            })
        })
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Is there nothing in it?
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// How many bytes the tensors take; a tensor that stands under several names counts once.
    pub fn bytes(&self) -> usize {
        let mut seen = std::collections::HashSet::new();
        let tensors = self.entries().iter().flat_map(|entry| &entry.calls).map(|call| &call.tensor);
        let own = tensors.filter(|tensor| seen.insert(tensor.id()));
        own.map(|tensor| tensor.elem_count() * tensor.dtype().size_in_bytes()).sum()
    }

    /// Writes the tensors to a safetensors file; of repeated calls, each as `name#call`. Values that are
    /// not tensors are left out.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        file::save(self, path.as_ref())
    }

    /// Reads what [`save`](Self::save) has written, or any safetensors file whose names are points.
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        file::load(path.as_ref(), device)
    }
}

/// `a#1[0]` of `a[0]`.
fn with_call(name: &str, call: usize) -> String {
    match name.parse::<Pattern>() {
        Ok(pattern) => {
            let index = pattern.index().map_or(String::new(), |index| format!("[{index}]"));
            format!("{}#{call}{index}", pattern.without_index())
        }
        Err(_) => format!("{name}#{call}"),
    }
}

impl Index<&str> for ActivationCache {
    type Output = Tensor;

    /// The tensor at a point.
    ///
    /// # Panics
    /// As a map does, where there is no such point; [`try_get`](ActivationCache::try_get) gives an error.
    #[allow(clippy::panic)]
    fn index(&self, name: &str) -> &Tensor {
        match self.try_get(name) {
            Ok(tensor) => tensor,
            Err(error) => panic!("{error}"),
        }
    }
}

impl fmt::Debug for ActivationCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for entry in self.entries() {
            let shapes: Vec<&[usize]> = entry.calls.iter().map(|call| call.tensor.dims()).collect();
            map.entry(&entry.name, &shapes);
        }
        map.finish()
    }
}

impl<K: AsRef<str>> FromIterator<(K, Tensor)> for ActivationCache {
    fn from_iter<I: IntoIterator<Item = (K, Tensor)>>(entries: I) -> Self {
        let mut cache = Self::new();
        for (name, tensor) in entries {
            cache.insert(name, tensor);
        }
        cache
    }
}
