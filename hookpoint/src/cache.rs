//! What a run keeps: tensors by the names of their points.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::{Add, Index, Sub};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use candle_core::{DType, Device, Tensor};

use crate::error::{Error, ErrorKind, Result};
use crate::pattern::Pattern;
use crate::run::{Capture, Captured};
use crate::select::{nearest, no_match, IntoPatterns};
use crate::value::AnyValue;

/// The values that a run met at the points it was asked for, in the order in which they were completed.
///
/// A point that is reached several times keeps every value: [`calls`](Self::calls) gives them all,
/// [`get`](Self::get) the last, `cache["path#0"]` the first.
#[derive(Clone, Default)]
pub struct ActivationCache {
    entries: Vec<Entry>,
    by_name: HashMap<Arc<str>, usize>,
    /// Parts that were asked for by index, made when first asked for.
    derived: Derived,
}

#[derive(Clone)]
struct Entry {
    name: Arc<str>,
    calls: Vec<Call>,
    any: Vec<(usize, AnyValue)>,
}

#[derive(Clone)]
struct Call {
    number: usize,
    tensor: Tensor,
}

/// A list that grows behind a shared reference, so that `cache["a[0]"]` can hand out a reference.
#[derive(Clone, Default)]
struct Derived(OnceLock<Box<(String, Tensor, Derived)>>);

impl Derived {
    fn get(&self, key: &str) -> Option<&Tensor> {
        let mut at = self;
        while let Some(found) = at.0.get() {
            if found.0 == key {
                return Some(&found.1);
            }
            at = &found.2;
        }
        None
    }

    /// Adds a part at the end, unless another thread was quicker.
    fn add(&self, key: &str, tensor: &Tensor) -> &Tensor {
        let mut at = self;
        loop {
            let new = || Box::new((key.to_string(), tensor.clone(), Derived::default()));
            let found = at.0.get_or_init(new);
            if found.0 == key {
                return &found.1;
            }
            at = &found.2;
        }
    }
}

impl Drop for Derived {
    /// One after the other: a long list must not fill the stack.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut one) = next {
            next = one.2 .0.take();
        }
    }
}

impl ActivationCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn of_captures(captures: Vec<Capture>) -> Self {
        let mut cache = Self {
            entries: Vec::with_capacity(captures.len()),
            by_name: HashMap::with_capacity(captures.len()),
            derived: Derived::default(),
        };
        for capture in captures {
            let entry = cache.entry(capture.name);
            match capture.value {
                // Two requests may select one point.
                Captured::Tensor(_) if entry.calls.last().is_some_and(|last| last.number == capture.call) => {
                }
                Captured::Tensor(tensor) => entry.calls.push(Call { number: capture.call, tensor }),
                Captured::Any(value) => entry.any.push((capture.call, value)),
            }
        }
        cache
    }

    fn entry(&mut self, name: Arc<str>) -> &mut Entry {
        let next = self.entries.len();
        let at = *self.by_name.entry(name.clone()).or_insert(next);
        if at == next {
            self.entries.push(Entry { name, calls: Vec::with_capacity(1), any: Vec::new() });
        }
        &mut self.entries[at]
    }

    /// Adds a tensor under a name, as one more call where the name is there already.
    pub fn insert(&mut self, name: impl AsRef<str>, tensor: Tensor) {
        self.derived = Derived::default();
        let entry = self.entry(name.as_ref().into());
        let number = entry.calls.last().map_or(0, |last| last.number + 1);
        entry.calls.push(Call { number, tensor });
    }

    /// The tensor at a point, the last one where it was reached several times; none where there is no
    /// such point or the name stands for several.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.try_get(name).ok()
    }

    /// As [`get`](Self::get), with an error that says what is wrong with the name.
    pub fn try_get(&self, name: &str) -> Result<&Tensor> {
        if let Some(call) = self.exact(name).and_then(|entry| entry.calls.last()) {
            return Ok(&call.tensor);
        }
        let pattern: Pattern = name.parse()?;
        if let Some(call) = self.exact(&pattern.to_string()).and_then(|entry| entry.calls.last()) {
            return Ok(&call.tensor);
        }
        let entry = self.one(name, &pattern)?;
        let call = match pattern.call() {
            Some(number) => entry.calls.iter().find(|call| call.number == number),
            None => entry.calls.last(),
        };
        let tensor = call.map(|call| &call.tensor).ok_or_else(|| self.missing(name))?;
        let Some(index) = pattern.index() else { return Ok(tensor) };
        if index.has_each() {
            let candidates = index.elements(name, tensor.dims())?;
            let candidates = candidates.iter().map(|element| format!("{}[{element}]", entry.name)).collect();
            return Err(ErrorKind::Ambiguous { key: name.to_string(), candidates }.into());
        }
        let key = pattern.to_string();
        if let Some(part) = self.derived.get(&key) {
            return Ok(part);
        }
        let part = index.read(&entry.name, tensor)?.force_contiguous()?;
        Ok(self.derived.add(&key, &part))
    }

    fn exact(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).and_then(|at| self.entries.get(*at))
    }

    /// The one entry that a pattern without its index and call selects.
    fn one(&self, name: &str, pattern: &Pattern) -> Result<&Entry> {
        let mut found = self.entries.iter().filter(|entry| entry.is_selected(pattern, Indexed::Without));
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(self.missing(name)),
            (Some(_), Some(_)) => {
                let all = self.entries.iter().filter(|entry| entry.is_selected(pattern, Indexed::Without));
                let candidates = all.map(|entry| entry.name.to_string()).collect();
                Err(ErrorKind::Ambiguous { key: name.to_string(), candidates }.into())
            }
        }
    }

    fn missing(&self, key: &str) -> Error {
        ErrorKind::MissingKey { key: key.to_string(), nearest: nearest(key, self.keys()) }.into()
    }

    /// Every tensor that a point had, in the order of the calls; empty where there is no such point.
    pub fn calls(&self, name: &str) -> Vec<&Tensor> {
        let entry = self.exact(name).or_else(|| self.one(name, &name.parse().ok()?).ok());
        entry.map_or_else(Vec::new, |entry| entry.calls.iter().map(|call| &call.tensor).collect())
    }

    /// The value at a point whose type is not a tensor, such as a number or a struct of the user's.
    pub fn get_any<T: Any>(&self, name: &str) -> Result<&T> {
        let entry = match self.exact(name) {
            Some(entry) => entry,
            None => self.one(name, &name.parse()?)?,
        };
        let wanted = std::any::type_name::<T>();
        let wrong = |found: &str| -> Error {
            let (key, wanted, found) = (name.to_string(), wanted.to_string(), found.to_string());
            ErrorKind::WrongType { key, wanted, found }.into()
        };
        match (entry.any.last(), entry.calls.last()) {
            (Some((_, any)), tensor) => match any.value.downcast_ref::<T>() {
                Some(value) => Ok(value),
                None => tensor
                    .and_then(|call| (&call.tensor as &dyn Any).downcast_ref::<T>())
                    .ok_or_else(|| wrong(any.type_name)),
            },
            (None, Some(call)) => {
                (&call.tensor as &dyn Any).downcast_ref::<T>().ok_or_else(|| wrong("candle_core::Tensor"))
            }
            (None, None) => Err(self.missing(name)),
        }
    }

    /// The names, in the order in which their values were completed: children before parents, the root last.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    /// Names and tensors; of a point that was reached several times, the last.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries.iter().filter_map(|entry| Some((&*entry.name, &entry.calls.last()?.tensor)))
    }

    pub(crate) fn iter_calls(&self) -> impl Iterator<Item = (&Arc<str>, usize, usize, &Tensor)> {
        self.entries.iter().flat_map(|entry| {
            let all = entry.calls.len();
            entry.calls.iter().map(move |call| (&entry.name, call.number, all, &call.tensor))
        })
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Is there nothing in it?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries that the patterns select.
    pub fn select(&self, patterns: impl IntoPatterns) -> Result<Self> {
        let patterns = patterns.into_patterns()?;
        for pattern in &patterns {
            if !self.entries.iter().any(|entry| entry.is_selected(pattern, Indexed::As)) {
                return Err(no_match(&pattern.to_string(), self.keys()));
            }
        }
        let selected = |entry: &&Entry| patterns.iter().any(|p| entry.is_selected(p, Indexed::As));
        Ok(Self::of_entries(self.entries.iter().filter(selected).cloned()))
    }

    /// Each tensor's part at `index`, under the names `name[index]`.
    pub fn index(&self, index: &str) -> Result<Self> {
        let index = crate::pattern::Index::parse(index)?;
        let mut parts = Self::new();
        for entry in &self.entries {
            for call in &entry.calls {
                for element in index.elements(&entry.name, call.tensor.dims())? {
                    let part = element.read(&entry.name, &call.tensor)?.force_contiguous()?;
                    parts.insert(format!("{}[{element}]", entry.name), part);
                }
            }
        }
        Ok(parts)
    }

    /// The tensors that a pattern selects, stacked along a new first dimension, in order.
    pub fn stack(&self, patterns: impl IntoPatterns) -> Result<Tensor> {
        let selected = self.select(patterns)?;
        let tensors: Vec<&Tensor> = selected.iter().map(|(_, tensor)| tensor).collect();
        Ok(Tensor::stack(&tensors, 0)?)
    }

    /// The same cache on another device.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        self.map(|tensor| Ok(tensor.to_device(device)?))
    }

    /// The same cache in another dtype.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        self.map(|tensor| Ok(tensor.to_dtype(dtype)?))
    }

    fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let mut entries = self.entries.clone();
        for call in entries.iter_mut().flat_map(|entry| &mut entry.calls) {
            call.tensor = f(&call.tensor)?;
        }
        Ok(Self::of_entries(entries))
    }

    fn of_entries(entries: impl IntoIterator<Item = Entry>) -> Self {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let by_name = entries.iter().enumerate().map(|(at, entry)| (entry.name.clone(), at)).collect();
        Self { entries, by_name, derived: Derived::default() }
    }

    /// How many bytes the tensors take; a tensor that stands under several names counts once.
    pub fn bytes(&self) -> usize {
        let mut seen = std::collections::HashSet::new();
        let tensors = self.entries.iter().flat_map(|entry| &entry.calls).map(|call| &call.tensor);
        let own = tensors.filter(|tensor| seen.insert(tensor.id()));
        own.map(|tensor| tensor.elem_count() * tensor.dtype().size_in_bytes()).sum()
    }

    /// Writes the tensors to a safetensors file; of repeated calls, each as `name#call`.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut tensors = HashMap::new();
        let mut order = Vec::new();
        for (name, call, all, tensor) in self.iter_calls() {
            let key = if all > 1 { format!("{name}#{call}") } else { name.to_string() };
            order.push(key.clone());
            tensors.insert(key, tensor.contiguous()?);
        }
        let metadata = HashMap::from([("hookpoint.order".to_string(), order.join("\n"))]);
        let io = |error: safetensors::SafeTensorError| io_error(path.as_ref(), std::io::Error::other(error));
        safetensors::serialize_to_file(&tensors, Some(metadata), path.as_ref()).map_err(io)
    }

    /// Reads what [`save`](Self::save) has written, or any safetensors file whose names are points.
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let path = path.as_ref();
        let data = std::fs::read(path).map_err(|error| io_error(path, error))?;
        let damaged = |error: safetensors::SafeTensorError| {
            io_error(path, std::io::Error::new(std::io::ErrorKind::InvalidData, error))
        };
        let (_, header) = safetensors::SafeTensors::read_metadata(&data).map_err(damaged)?;
        let order = header.metadata().as_ref().and_then(|metadata| metadata.get("hookpoint.order"));
        let mut tensors = candle_core::safetensors::load_buffer(&data, device)?;
        let mut names: Vec<String> = match order {
            Some(order) => order.split('\n').map(str::to_string).collect(),
            None => Vec::new(),
        };
        let mut rest: Vec<String> = tensors.keys().filter(|name| !names.contains(name)).cloned().collect();
        rest.sort();
        names.append(&mut rest);
        let mut cache = Self::new();
        for key in names {
            let Some(tensor) = tensors.remove(&key) else { continue };
            let (name, number) = match key.rsplit_once('#') {
                Some((name, call)) if call.parse::<usize>().is_ok() => (name, call.parse().unwrap_or(0)),
                _ => (key.as_str(), 0),
            };
            cache.entry(name.into()).calls.push(Call { number, tensor });
        }
        Ok(cache)
    }

    fn combine(
        &self,
        other: &Self,
        f: impl Fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>,
    ) -> Result<Self> {
        let mut result = Self::new();
        for entry in &self.entries {
            let Some(theirs) = other.exact(&entry.name) else { continue };
            for (a, b) in entry.calls.iter().zip(&theirs.calls) {
                if a.tensor.dims() != b.tensor.dims() {
                    let remedy = "both caches need the same input shape".to_string();
                    return Err(ErrorKind::Shape {
                        point: entry.name.to_string(),
                        what: "the other cache's tensor".to_string(),
                        expected: a.tensor.dims().to_vec(),
                        found: b.tensor.dims().to_vec(),
                        remedy,
                    }
                    .into());
                }
                let tensor = f(&a.tensor, &b.tensor)?;
                result.entry(entry.name.clone()).calls.push(Call { number: a.number, tensor });
            }
        }
        Ok(result)
    }
}

fn io_error(path: &Path, source: std::io::Error) -> Error {
    ErrorKind::Io { path: path.display().to_string(), source }.into()
}

/// Does a pattern's index matter for a selection?
enum Indexed {
    /// Only entries with this very index.
    As,
    /// Only entries without one, whose part is then taken.
    Without,
}

impl Entry {
    fn is_selected(&self, pattern: &Pattern, indexed: Indexed) -> bool {
        // Keys are concrete names, so they parse; one that does not was inserted by hand.
        let Ok(own) = self.name.parse::<Pattern>() else { return false };
        let same_index = match (indexed, pattern.index(), own.index()) {
            (Indexed::Without, _, own) => own.is_none(),
            (Indexed::As, None, _) => true,
            (Indexed::As, Some(wanted), own) => own == Some(wanted),
        };
        let segments = own.literal_path().unwrap_or_default();
        same_index && pattern.matches_path(&segments) && pattern.matches_value(own.value().unwrap_or("out"))
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

macro_rules! algebra {
    ($($trait:ident $method:ident: $doc:literal),*) => { $(
        impl $trait for &ActivationCache {
            type Output = Result<ActivationCache>;

            #[doc = $doc]
            fn $method(self, other: Self) -> Self::Output {
                self.combine(other, |a, b| a.$method(b))
            }
        }
    )* };
}
algebra!(Add add: "Adds what both have under the same name.", Sub sub: "Subtracts what both have under the same name.");

impl fmt::Debug for ActivationCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for entry in &self.entries {
            let shapes: Vec<&[usize]> = entry.calls.iter().map(|call| call.tensor.dims()).collect();
            map.entry(&entry.name, &shapes);
        }
        map.finish()
    }
}

/// Tensors by name: an [`ActivationCache`], or any map or list of names and tensors.
pub trait Activations {
    /// Gives each name and tensor to `f`; a name may end in `#call`.
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()>;
}

impl Activations for ActivationCache {
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        for (name, call, all, tensor) in self.iter_calls() {
            match all {
                1 => f(name, tensor)?,
                _ => {
                    let pattern: Pattern = name.parse()?;
                    let base = pattern.without_index();
                    let index = pattern.index().map_or(String::new(), |index| format!("[{index}]"));
                    f(&format!("{base}#{call}{index}"), tensor)?;
                }
            }
        }
        Ok(())
    }
}

macro_rules! maps {
    ($($ty:ty),*) => { $(
        impl<K: AsRef<str>> Activations for $ty {
            fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
                self.iter().try_for_each(|(name, tensor)| f(name.as_ref(), tensor))
            }
        }
    )* };
}
maps!(BTreeMap<K, Tensor>, [(K, Tensor)], Vec<(K, Tensor)>);

impl<K: AsRef<str>, S> Activations for HashMap<K, Tensor, S> {
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        let mut entries: Vec<(&str, &Tensor)> = self.iter().map(|(name, t)| (name.as_ref(), t)).collect();
        entries.sort_by_key(|(name, _)| *name);
        entries.into_iter().try_for_each(|(name, tensor)| f(name, tensor))
    }
}

impl<A: Activations + ?Sized> Activations for &A {
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        (**self).each_activation(f)
    }
}

impl<K: AsRef<str>, const N: usize> Activations for [(K, Tensor); N] {
    fn each_activation(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        self.as_slice().each_activation(f)
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
