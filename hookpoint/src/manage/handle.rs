//! Hooks as they are held: one, or all of one registration.

use std::sync::{Arc, Weak};

use super::category::HookCategory;
use super::filter::unknown;
use super::state::{Entry, Serial, Shared, State};
use crate::error::{ErrorKind, Result};

/// A registered hook at one point.
///
/// A handle does not keep its hook alive, nor does the hook end with it. When the hook was removed, or the
/// [`Hooked`](crate::Hooked) it belongs to is gone, what the handle is asked to do is an error.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let hooks = model.manager();
/// hooks.register("double", ["up", "down"]).hook(|_, x| Ok(Some((x * 2.)?)))?;
///
/// let up = hooks.get("double[up]")?;
/// assert_eq!((up.hook_name(), up.path()), ("double", "up"));
/// up.deactivate()?;
/// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[2., 0.]]);
/// assert_eq!((up.is_active()?, up.fired()?), (false, 0));
///
/// up.remove()?;
/// assert_eq!(up.activate().unwrap_err().to_string(), "the hook `double[up]` was removed\n  register it again");
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HookHandle {
    shared: Weak<Shared>,
    serial: Serial,
    id: Arc<str>,
    name: Arc<str>,
    path: Arc<str>,
    category: HookCategory,
}

impl HookHandle {
    pub(super) fn new(shared: &Arc<Shared>, entry: &Entry) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            serial: entry.serial,
            id: entry.id.clone(),
            name: entry.name.clone(),
            path: entry.path.clone(),
            category: entry.category,
        }
    }

    /// The hook's id: `name[path]`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of the hook, which it shares with those registered together with it.
    pub fn hook_name(&self) -> &str {
        &self.name
    }

    /// The point that the hook is at.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// When the hook is called.
    pub fn category(&self) -> HookCategory {
        self.category
    }

    /// Has it called in runs that begin from now on.
    pub fn activate(&self) -> Result<()> {
        self.switch(true)
    }

    /// Has it not called in runs that begin from now on.
    pub fn deactivate(&self) -> Result<()> {
        self.switch(false)
    }

    fn switch(&self, active: bool) -> Result<()> {
        let shared = self.shared()?;
        shared.change(|state| {
            self.entry(state)?;
            state.switch(self.serial, active);
            Ok(())
        })
    }

    /// Would it be called in a run that begins now?
    pub fn is_active(&self) -> Result<bool> {
        let shared = self.shared()?;
        let state = shared.lock();
        Ok(state.is_active(self.entry(&state)?))
    }

    /// How often it was called so far.
    pub fn fired(&self) -> Result<usize> {
        let shared = self.shared()?;
        let state = shared.lock();
        Ok(self.entry(&state)?.hook.fired())
    }

    /// Is the hook still there?
    pub fn is_registered(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.lock().find(self.serial).is_some())
    }

    /// Removes the hook. Others that were registered together with it stay.
    pub fn remove(&self) -> Result<()> {
        let shared = self.shared()?;
        let _dropped_unlocked = shared.change(|state| {
            self.entry(state)?;
            Ok::<_, crate::Error>(state.take(|entry| entry.serial == self.serial))
        })?;
        Ok(())
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        self.shared
            .upgrade()
            .ok_or_else(|| self.gone("went with its model", "register it at the model in use"))
    }

    fn entry<'s>(&self, state: &'s State) -> Result<&'s Entry> {
        state.find(self.serial).ok_or_else(|| self.gone("was removed", "register it again"))
    }

    fn gone(&self, how: &str, remedy: &str) -> crate::Error {
        let (id, how, remedy) = (self.id.to_string(), how.to_string(), remedy.to_string());
        ErrorKind::HookGone { id, how, remedy }.into()
    }
}

/// The hooks of one registration: one handle for each point.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let group = model.manager().register("see", "*").hook(|_, _| Ok(None))?;
/// assert_eq!(group.ids().collect::<Vec<_>>(), ["see[up]", "see[down]"]);
/// group.at("up")?.deactivate()?;
/// group.remove()?;
/// assert!(model.manager().is_empty());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HookGroup {
    pub(super) name: Arc<str>,
    pub(super) handles: Vec<HookHandle>,
}

impl HookGroup {
    /// The hook's name: the one that was asked for, or with `_1`, `_2`, .. where that was taken.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The handles, in the order of the points.
    pub fn handles(&self) -> &[HookHandle] {
        &self.handles
    }

    /// The ids of the handles.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.handles.iter().map(HookHandle::id)
    }

    /// The handle at a point.
    pub fn at(&self, path: &str) -> Result<&HookHandle> {
        let found = self.handles.iter().find(|handle| handle.path() == path);
        found.ok_or_else(|| unknown("is at", path, self.handles.iter().map(HookHandle::path)))
    }

    /// Activates all of them, or none, where one is gone.
    pub fn activate(&self) -> Result<()> {
        self.switch(true)
    }

    /// Deactivates all of them, or none, where one is gone.
    pub fn deactivate(&self) -> Result<()> {
        self.switch(false)
    }

    fn switch(&self, active: bool) -> Result<()> {
        let Some(first) = self.handles.first() else { return Ok(()) };
        first.shared()?.change(|state| {
            self.handles.iter().try_for_each(|handle| handle.entry(state).map(drop))?;
            self.handles.iter().for_each(|handle| state.switch(handle.serial, active));
            Ok(())
        })
    }

    /// Removes those of them that are still there; an error where none is.
    pub fn remove(&self) -> Result<()> {
        let there: Vec<&HookHandle> = self.handles.iter().filter(|handle| handle.is_registered()).collect();
        match (there.as_slice(), self.handles.first()) {
            ([], Some(first)) => first.remove(),
            (there, _) => there.iter().try_for_each(|handle| handle.remove()),
        }
    }
}

impl IntoIterator for HookGroup {
    type Item = HookHandle;
    type IntoIter = std::vec::IntoIter<HookHandle>;

    fn into_iter(self) -> Self::IntoIter {
        self.handles.into_iter()
    }
}

impl<'g> IntoIterator for &'g HookGroup {
    type Item = &'g HookHandle;
    type IntoIter = std::slice::Iter<'g, HookHandle>;

    fn into_iter(self) -> Self::IntoIter {
        self.handles.iter()
    }
}
