//! Activation for a while.

use std::sync::{Arc, Weak};

use super::filter::HookFilter;
use super::state::{Entry, Serial, Shared};
use super::HookManager;
use crate::error::{BoxedError, Error, Result};

/// A time during which hooks are active or not, other than they were before. When it is dropped, on
/// return, error and panic alike, everything is as it was.
///
/// Scopes may be nested, and may end in any order: the innermost that says something about a hook decides.
/// Hooks that are activated or deactivated by hand while a scope is open are so until it ends. Hooks that are
/// registered or removed meanwhile stay so. A scope belongs to the manager: it holds for all threads, for
/// runs that begin while it is open.
///
/// It does not borrow the model, which can be run mutably meanwhile.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::manage::HookFilter;
///
/// let hooks = model.manager();
/// let up = hooks.register("up", "up").hook(|_, x| Ok(Some((x + 10.)?)))?;
/// let down = hooks.register("down", "down").hook(|_, x| Ok(Some((x * 2.)?)))?;
/// {
///     let _only_down = hooks.deactivated(HookFilter::all().hook("up"))?;
///     assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[2., 0.]]);
/// }
/// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[22., 16.]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[must_use = "the scope ends when this is dropped"]
#[derive(Debug)]
pub struct HookScope {
    shared: Weak<Shared>,
    serial: Serial,
}

impl HookScope {
    /// Ends the scope now.
    pub fn end(self) {}
}

impl Drop for HookScope {
    fn drop(&mut self) {
        // Where the model is gone, so are its hooks.
        if let Some(shared) = self.shared.upgrade() {
            shared.change(|state| state.close(self.serial));
        }
    }
}

impl HookManager {
    fn open(&self, filter: impl Into<HookFilter>, say: impl Fn(bool) -> Option<bool>) -> Result<HookScope> {
        let filter = filter.into();
        let serial = self.shared.change(|state| {
            let selected = filter.select(state)?;
            let says = |entry: &Entry| Some((entry.serial, say(selected.contains(&entry.serial))?));
            let says: Vec<(Serial, bool)> = state.hooks.iter().filter_map(says).collect();
            Ok::<_, Error>(state.open(says))
        })?;
        Ok(HookScope { shared: Arc::downgrade(&self.shared), serial })
    }

    /// Activates hooks until the scope ends; others stay as they are.
    pub fn activated(&self, filter: impl Into<HookFilter>) -> Result<HookScope> {
        self.open(filter, |selected| selected.then_some(true))
    }

    /// Deactivates hooks until the scope ends; others stay as they are.
    pub fn deactivated(&self, filter: impl Into<HookFilter>) -> Result<HookScope> {
        self.open(filter, |selected| selected.then_some(false))
    }

    /// Has these hooks active, and no others, until the scope ends.
    pub fn only(&self, filter: impl Into<HookFilter>) -> Result<HookScope> {
        self.open(filter, Some)
    }

    /// Calls `f` with hooks activated: [`activated`](Self::activated) as a closure.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// use hookpoint::manage::HookFilter;
    ///
    /// let hooks = model.manager();
    /// hooks.register("double", "down").inactive().hook(|_, x| Ok(Some((x * 2.)?)))?;
    /// let doubled = hooks.scope(HookFilter::all(), || model.run(|m| m.forward(&x)))?;
    /// assert_eq!(doubled.to_vec2::<f32>()?, [[2., 0.]]);
    /// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[1., 0.]]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn scope<T, E>(
        &self,
        filter: impl Into<HookFilter>,
        f: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<T>
    where
        E: Into<BoxedError>,
    {
        let _scope = self.activated(filter)?;
        f().map_err(|error| Error::from_boxed(error.into()))
    }

    /// Calls `f` with hooks deactivated: [`deactivated`](Self::deactivated) as a closure.
    pub fn scope_without<T, E>(
        &self,
        filter: impl Into<HookFilter>,
        f: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<T>
    where
        E: Into<BoxedError>,
    {
        let _scope = self.deactivated(filter)?;
        f().map_err(|error| Error::from_boxed(error.into()))
    }

    /// Calls `f` with these hooks active and no others: [`only`](Self::only) as a closure.
    pub fn scope_only<T, E>(
        &self,
        filter: impl Into<HookFilter>,
        f: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<T>
    where
        E: Into<BoxedError>,
    {
        let _scope = self.only(filter)?;
        f().map_err(|error| Error::from_boxed(error.into()))
    }
}
