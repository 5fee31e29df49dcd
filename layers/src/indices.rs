//! The indices of max pooling, saved in one run and used in another.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::Tensor;
use hookpoint::error::nearest;
use hookpoint::{AutoHook, BoxedError, Error, HookCtx, Hooked, Result};

use super::MaxPool2d;

mod uses;

pub use uses::{use_indices_in_maxunpool, AfterUse};

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
