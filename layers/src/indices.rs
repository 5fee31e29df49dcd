//! The indices of max pooling, saved in one run and used in another.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::Tensor;
use hookpoint::error::nearest;
use hookpoint::{AutoHook, BoxedError, Error, ErrorKind, HookCtx, Hooked, Result};

use super::max_indices::as_i64;
use super::{MaxPool2d, MaxUnpool2d};

/// The indices of max pooling layers, by the paths of the layers, in the order in which they were reached.
///
/// [`save_maxpool_indices`] makes them. They can also be put together by hand, for layers of other names:
///
/// ```
/// use candle_core::{Device, Tensor};
/// use hookpoint_layers::MaxPoolIndices;
///
/// let mut indices: MaxPoolIndices = [("pool", Tensor::new(&[[[3i64]]], &Device::Cpu)?)].into_iter().collect();
/// indices.rename("pool", "decoder.unpool")?;
/// assert_eq!(indices.names(), ["decoder.unpool"]);
/// assert!(indices.rename("pool", "elsewhere").is_err());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Default)]
pub struct MaxPoolIndices {
    // A lock, so that of several threads that consume them each index goes to one.
    entries: Mutex<Vec<Entry>>,
}

#[derive(Clone)]
struct Entry {
    name: String,
    /// One for each call of the layer.
    saved: Vec<Saved>,
    /// Has something been taken away?
    consumed: bool,
}

#[derive(Clone)]
struct Saved {
    indices: Tensor,
    /// The size of the plane that they are indices into, where it is known.
    plane: Option<(usize, usize)>,
}

impl MaxPoolIndices {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries_mut(&mut self) -> &mut Vec<Entry> {
        self.entries.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds indices for the layer at a path, as those of one more call where there are some already.
    pub fn insert(&mut self, name: impl Into<String>, indices: Tensor) {
        self.save(name.into(), Saved { indices, plane: None });
    }

    fn save(&mut self, name: String, saved: Saved) {
        let entries = self.entries_mut();
        match entries.iter_mut().find(|entry| entry.name == name) {
            Some(entry) => entry.saved.push(saved),
            None => entries.push(Entry { name, saved: vec![saved], consumed: false }),
        }
    }

    /// The paths for which there are indices.
    pub fn names(&self) -> Vec<String> {
        let entries = self.lock();
        entries.iter().filter(|entry| !entry.saved.is_empty()).map(|entry| entry.name.clone()).collect()
    }

    /// The indices of a layer; of several calls, those of the last.
    pub fn get(&self, name: &str) -> Option<Tensor> {
        self.calls(name).pop()
    }

    /// The indices of all calls of a layer, in order.
    pub fn calls(&self, name: &str) -> Vec<Tensor> {
        let entries = self.lock();
        let of_name = entries.iter().filter(|entry| entry.name == name);
        of_name.flat_map(|entry| &entry.saved).map(|saved| saved.indices.clone()).collect()
    }

    /// For how many layers there are indices.
    pub fn len(&self) -> usize {
        self.names().len()
    }

    /// Are there none, or none any more?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives what is there for one path to another: that of the layer that is to use it.
    pub fn rename(&mut self, from: &str, to: impl Into<String>) -> Result<()> {
        let (to, names) = (to.into(), self.names());
        if names.contains(&to) && to != from {
            return Err(Error::msg(format!("there are indices for `{to}` already")));
        }
        let entries = self.entries_mut();
        let Some(at) = entries.iter().position(|entry| entry.name == from && !entry.saved.is_empty()) else {
            return Err(missing(from, false, &names));
        };
        // What was there under the new name is used up.
        entries.retain({
            let mut position = 0;
            let to = &to;
            move |entry| {
                position += 1;
                position - 1 == at || entry.name != *to
            }
        });
        if let Some(entry) = entries.iter_mut().find(|entry| entry.name == from) {
            entry.name = to;
        }
        Ok(())
    }
}

impl Clone for MaxPoolIndices {
    fn clone(&self) -> Self {
        Self { entries: Mutex::new(self.lock().clone()) }
    }
}

impl fmt::Debug for MaxPoolIndices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.lock();
        let shapes = |entry: &Entry| -> Vec<Vec<usize>> {
            entry.saved.iter().map(|saved| saved.indices.dims().to_vec()).collect()
        };
        f.debug_map().entries(entries.iter().map(|entry| (entry.name.clone(), shapes(entry)))).finish()
    }
}

impl<K: Into<String>> FromIterator<(K, Tensor)> for MaxPoolIndices {
    fn from_iter<T: IntoIterator<Item = (K, Tensor)>>(entries: T) -> Self {
        let mut indices = Self::new();
        for (name, tensor) in entries {
            indices.insert(name, tensor);
        }
        indices
    }
}

/// Runs `f` and saves the indices of every [`MaxPool2d`] that it reaches, at whatever depth, with the size of
/// what was pooled.
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use hookpoint_layers::{
///     save_maxpool_indices, use_indices_in_maxunpool, AfterUse, MaxPool2d, MaxUnpool2d, Sequential,
/// };
/// use hookpoint::prelude::*;
///
/// let encoder = Hooked::new(Sequential::new().add("pool", MaxPool2d::new(2)?)?);
/// let decoder = Hooked::new(Sequential::new().add("pool", MaxUnpool2d::new(2)?)?);
///
/// let x = Tensor::new(&[[[1f32, 2.], [3., 4.]]], &Device::Cpu)?;
/// let (encoded, indices) = save_maxpool_indices(&encoder, |m| m.forward(&x))?;
/// assert_eq!(encoded.to_vec3::<f32>()?, [[[4.]]]);
/// assert_eq!(indices.get("pool").unwrap().to_vec3::<i64>()?, [[[3]]]);
///
/// let decoded = use_indices_in_maxunpool(&decoder, &indices, AfterUse::Keep, |m| m.forward(&encoded))?;
/// assert_eq!(decoded.to_vec3::<f32>()?, [[[0., 0.], [0., 4.]]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn save_maxpool_indices<M, T, E, F>(hooked: &Hooked<M>, f: F) -> Result<(T, MaxPoolIndices)>
where
    M: AutoHook,
    F: FnOnce(&M) -> std::result::Result<T, E>,
    E: Into<BoxedError>,
{
    let pools = layers_of::<MaxPool2d, M>(hooked, "MaxPool2d")?;
    let saved = RefCell::new(MaxPoolIndices::new());
    let mut plan = hooked.plan().allow_unfired();
    for name in pools {
        let plane = std::rc::Rc::new(std::cell::Cell::new(None));
        let seen = plane.clone();
        let note_plane = move |_: &HookCtx<'_>, x: &Tensor| {
            if let [.., height, width] = x.dims() {
                seen.set(Some((*height, *width)));
            }
            Ok(None)
        };
        let (path, saved) = (name.clone(), &saved);
        let save = move |_: &HookCtx<'_>, indices: &Tensor| {
            let (indices, plane) = (indices.clone(), plane.get());
            saved.borrow_mut().save(path.clone(), Saved { indices, plane });
            Ok(None)
        };
        plan = plan.hook(format!("{name}:in"), note_plane)?.hook(format!("{name}:indices"), save)?;
    }
    let output = plan.run(f)?.output;
    drop(plan);
    let saved = saved.into_inner();
    match saved.is_empty() {
        true => {
            Err(Error::msg("the run reached no `MaxPool2d` of the model, so there are no indices to save"))
        }
        false => Ok((output, saved)),
    }
}

/// What becomes of indices that were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AfterUse {
    /// They can be used again.
    Keep,
    /// They are taken away, so that each is used once.
    Consume,
}

/// Runs `f` with saved indices for every [`MaxUnpool2d`] of the model that it reaches.
///
/// A layer takes the indices that were saved under its own path; see [`MaxPoolIndices::rename`]. The first
/// call of the layer takes those of the first call of the pooling, and so on. If one call was saved, every
/// call takes that, unless the indices are consumed.
///
/// With [`AfterUse::Consume`], what was used is taken away, and cannot be used again. A run that fails consumes nothing.
/// Indices that are missing, used up, or of another shape are errors, and so are indices for which there is
/// no such layer or whose layer was not reached.
///
/// ```
/// # use candle_core::{Device, Module, Tensor};
/// # use hookpoint_layers::{use_indices_in_maxunpool, AfterUse, MaxPoolIndices, MaxUnpool2d, Sequential};
/// # use hookpoint::prelude::*;
/// # let decoder = Hooked::new(Sequential::new().add("up", MaxUnpool2d::new(2)?)?);
/// # let x = Tensor::new(&[[[4f32]]], &Device::Cpu)?;
/// let indices: MaxPoolIndices = [("up", Tensor::new(&[[[3i64]]], &Device::Cpu)?)].into_iter().collect();
/// use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| m.forward(&x))?;
/// assert!(indices.is_empty());
///
/// let again = use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| m.forward(&x)).unwrap_err();
/// assert!(again.to_string().starts_with("the indices for `up` are used up"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub fn use_indices_in_maxunpool<M, T, E, F>(
    hooked: &Hooked<M>,
    indices: &MaxPoolIndices,
    after: AfterUse,
    f: F,
) -> Result<T>
where
    M: AutoHook,
    F: FnOnce(&M) -> std::result::Result<T, E>,
    E: Into<BoxedError>,
{
    let unpools = layers_of::<MaxUnpool2d, M>(hooked, "MaxUnpool2d")?;
    let mut uses = Uses::of(indices, after, &unpools)?;
    let problem: RefCell<Option<Error>> = RefCell::default();
    let run = || {
        let mut plan = hooked.plan().allow_unfired();
        for path in &unpools {
            let (uses, problem) = (&uses, &problem);
            let noted = move |result: Result<Option<Tensor>>| {
                // What is wrong is told as such, and not as the failure of a hook that nobody wrote.
                result.inspect_err(|error| *problem.borrow_mut() = Some(error.clone()))
            };
            let size = move |ctx: &HookCtx<'_>, _: &Tensor| noted(uses.plane(path, ctx.call()));
            let give =
                move |ctx: &HookCtx<'_>, like: &Tensor| noted(uses.give(path, ctx.call(), like).map(Some));
            plan = plan.hook(format!("{path}:output_size"), size)?.hook(format!("{path}:indices"), give)?;
        }
        Ok(plan.run(f)?.output)
    };
    let result: Result<T> = run();
    match (problem.into_inner(), result) {
        (Some(problem), _) => Err(problem),
        (None, Err(error)) => Err(error),
        (None, Ok(output)) => {
            uses.finish()?;
            Ok(output)
        }
    }
}

/// The paths of the layers of a type, of which there must be one.
fn layers_of<L, M: AutoHook>(hooked: &Hooked<M>, name: &str) -> Result<Vec<String>> {
    let layers = hooked.points_of_type::<L>();
    match layers.is_empty() {
        true => Err(Error::msg(format!(
            "the model has no `hookpoint_layers::{name}`\n  use it where the model now has another layer, or \
             give another model"
        ))),
        false => Ok(layers),
    }
}

/// The indices that one run works with. If they are consumed, nobody else has them meanwhile; they go back
/// when this is dropped, unless the run went well.
struct Uses<'i> {
    indices: &'i MaxPoolIndices,
    after: AfterUse,
    entries: Vec<Entry>,
    /// How many calls of each entry were given out.
    given: RefCell<Vec<usize>>,
    finished: bool,
}

impl<'i> Uses<'i> {
    fn of(indices: &'i MaxPoolIndices, after: AfterUse, unpools: &[String]) -> Result<Self> {
        let mut all = indices.lock();
        let meant = all.iter().filter(|entry| !entry.saved.is_empty());
        if let Some(stray) = meant.clone().find(|entry| !unpools.contains(&entry.name)) {
            let (pattern, nearest) = (stray.name.clone(), nearest(&stray.name, unpools));
            return Err(ErrorKind::NoMatch { pattern, nearest }.into());
        }
        let entries = all.clone();
        if after == AfterUse::Consume {
            all.iter_mut().filter(|entry| !entry.saved.is_empty()).for_each(|entry| {
                entry.saved.clear();
                entry.consumed = true;
            });
        }
        let given = RefCell::new(vec![0; entries.len()]);
        Ok(Self { indices, after, entries, given, finished: false })
    }

    fn find(&self, path: &str, call: usize) -> Result<(usize, &Saved)> {
        let names = || -> Vec<String> {
            let left = self.entries.iter().filter(|entry| !entry.saved.is_empty());
            left.map(|entry| entry.name.clone()).collect()
        };
        let position = self.entries.iter().position(|entry| entry.name == path);
        let Some((at, entry)) = position.and_then(|at| Some((at, self.entries.get(at)?))) else {
            return Err(missing(path, false, &names()));
        };
        let saved = match entry.saved.as_slice() {
            [] => return Err(missing(path, entry.consumed, &names())),
            [only] if self.after == AfterUse::Keep => Some(only),
            several => several.get(call),
        };
        saved.map(|saved| (at, saved)).ok_or_else(|| {
            let (count, remedy) = match self.after {
                AfterUse::Consume => (entry.saved.len(), "; do not consume them, if one call may use what another has used"),
                AfterUse::Keep => (entry.saved.len(), ""),
            };
            Error::msg(format!(
                "`{path}` was called {} times, and there are indices of {count}\n  save those of as many calls{remedy}",
                call + 1
            ))
        })
    }

    fn plane(&self, path: &str, call: usize) -> Result<Option<Tensor>> {
        let Some((height, width)) = self.find(path, call)?.1.plane else { return Ok(None) };
        Ok(Some(Tensor::new(&[height as i64, width as i64], &candle_core::Device::Cpu)?))
    }

    fn give(&self, path: &str, call: usize, like: &Tensor) -> Result<Tensor> {
        let (at, saved) = self.find(path, call)?;
        let (point, what) = (format!("{path}:indices"), "the saved indices".to_string());
        if saved.indices.dims() != like.dims() {
            return Err(ErrorKind::Shape {
                point,
                what,
                expected: like.dims().to_vec(),
                found: saved.indices.dims().to_vec(),
                remedy: "give the indices of the pooling that made these values".to_string(),
            }
            .into());
        }
        let indices = as_i64(&saved.indices)?.ok_or_else(|| {
            let (expected, found) = (like.dtype().as_str().into(), saved.indices.dtype().as_str().into());
            Error::from(ErrorKind::DType { point, what, expected, found })
        })?;
        if let Some(given) = self.given.borrow_mut().get_mut(at) {
            *given = (*given).max(call + 1);
        }
        Ok(indices)
    }

    /// The run went well: what it used is consumed, if it is to be, and everything was used.
    fn finish(&mut self) -> Result<()> {
        let given = self.given.borrow().clone();
        let unused =
            self.entries.iter().zip(&given).find(|(entry, given)| !entry.saved.is_empty() && **given == 0);
        if let Some((entry, _)) = unused {
            return Err(ErrorKind::Unfired {
                request: format!("use_indices_in_maxunpool(\"{}\")", entry.name),
                points: vec![format!("{}:indices", entry.name)],
                remedy: "give only the indices of layers that this input reaches".to_string(),
            }
            .into());
        }
        for (entry, given) in self.entries.iter_mut().zip(given) {
            entry.saved.drain(..given.min(entry.saved.len()));
        }
        self.put_back();
        self.finished = true;
        Ok(())
    }

    /// Puts back what is left, before what others may have added.
    fn put_back(&mut self) {
        if self.after == AfterUse::Keep {
            return;
        }
        let mut all = self.indices.lock();
        for entry in self.entries.drain(..) {
            if let Some(own) = all.iter_mut().find(|own| own.name == entry.name) {
                own.saved.splice(0..0, entry.saved);
                own.consumed |= entry.consumed;
            }
        }
    }
}

impl Drop for Uses<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.put_back();
        }
    }
}

fn missing(path: &str, consumed: bool, names: &[String]) -> Error {
    if consumed {
        return Error::msg(format!(
            "the indices for `{path}` are used up\n  save new ones, or do not consume them where they are used"
        ));
    }
    let near = match nearest(path, names).first() {
        Some(name) => format!("; there are some for `{name}`, which `rename` can give it"),
        None => String::new(),
    };
    Error::msg(format!("there are no indices for `{path}`{near}"))
}
