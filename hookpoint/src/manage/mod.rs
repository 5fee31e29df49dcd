//! Hooks that stay: registered under a name, switched on and off, listed, removed.
//!
//! `register` makes hooks, `state` keeps them, `filter` says which are meant, `scope` switches them for a
//! while, `handle` and `listing` are how they are held and seen. `persistent` puts the active ones into
//! runs.

mod category;
mod filter;
mod handle;
mod listing;
mod persistent;
mod register;
mod scope;
mod state;

use std::fmt;
use std::sync::Arc;

pub use category::HookCategory;
pub use filter::HookFilter;
pub use handle::{HookGroup, HookHandle};
pub use listing::{HookInfo, HookList};
pub(crate) use persistent::Stamp;
pub use register::Registration;
pub use scope::HookScope;

use crate::error::Result;
use crate::pattern::Pattern;
use crate::point::Selection;
use crate::select::IntoPatterns;
use crate::tree::Tree;
use filter::{is_at, unknown};
use state::{Entry, Shared, State};

/// The hooks that stay on a model from run to run. Every [`Hooked`](crate::Hooked) has one:
/// [`Hooked::manager`](crate::Hooked::manager).
///
/// A registered hook acts in every run of its `Hooked`: in [`run`](crate::Hooked::run), in those of plans, in
/// scans. At one point registered hooks come first, in the order of their registration, then those of the
/// plan. A run has the hooks that were active when it began: what another thread, or a hook, changes
/// meanwhile holds from the next run on. A hook may run the model itself; it is not called in runs that it
/// starts. All methods take `&self`, and any thread may call them.
///
/// * **Register**: [`register`](Self::register), then when the hook is called: [`hook`](Registration::hook),
///   [`hook_inputs`](Registration::hook_inputs), [`hook_call`](Registration::hook_call),
///   [`hook_call_inputs`](Registration::hook_call_inputs), [`hook_grad`](Registration::hook_grad),
///   [`hook_backward`](Registration::hook_backward).
/// * **Switch**: [`activate`](Self::activate) and [`deactivate`](Self::deactivate) what a [`HookFilter`]
///   selects, for good or, with a [`HookScope`], for a while.
/// * **Look**: [`list`](Self::list), [`get`](Self::get), [`hook`](Self::hook), [`hooks_at`](Self::hooks_at).
/// * **Remove**: [`remove`](Self::remove), [`remove_hook`](Self::remove_hook),
///   [`remove_at`](Self::remove_at), [`clear`](Self::clear), or the
///   handle's own.
///
/// That a hook is not reached in some run is no error, other than for requests of a plan: inputs differ, and
/// hooks stay. [`list`](Self::list) says how often each was called, and [`unfired`](Self::unfired) names
/// those that never were. A hook at a parameter that is not there, such as a state that comes and goes, waits
/// for it. A run fails if the model was changed so that the module of an active hook is gone.
/// The hooks end with their `Hooked`, also in [`into_inner`](crate::Hooked::into_inner).
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::manage::{HookCategory, HookFilter};
///
/// let hooks = model.manager();
/// hooks.register("double", ["up", "down"]).hook(|_, x| Ok(Some((x * 2.)?)))?;
/// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[4., 0.]]);
///
/// hooks.deactivate(HookFilter::all().path("up")?.hook("double").category(HookCategory::Forward))?;
/// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[2., 0.]]);
///
/// // Also in the runs of plans, before the plan's own hooks.
/// let plan = model.plan().hook("down", |_, x| Ok(Some((x + 1.)?)))?;
/// assert_eq!(plan.run(|m| m.forward(&x))?.output.to_vec2::<f32>()?, [[3., 1.]]);
///
/// assert_eq!(hooks.get("double[down]")?.fired()?, 3);
/// hooks.remove_hook("double")?;
/// assert_eq!(model.run(|m| m.forward(&x))?.to_vec2::<f32>()?, [[1., 0.]]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Default)]
pub struct HookManager {
    shared: Arc<Shared>,
}

impl HookManager {
    /// Takes note of the model as it is now.
    pub(crate) fn follow(&self, tree: Arc<Tree>) {
        self.shared.lock().tree = Some(tree);
    }

    /// Activates the hooks that the filter selects, and says how many they are.
    pub fn activate(&self, filter: impl Into<HookFilter>) -> Result<usize> {
        self.switch(filter.into(), true)
    }

    /// Deactivates the hooks that the filter selects, and says how many they are.
    pub fn deactivate(&self, filter: impl Into<HookFilter>) -> Result<usize> {
        self.switch(filter.into(), false)
    }

    fn switch(&self, filter: HookFilter, active: bool) -> Result<usize> {
        self.shared.change(|state| {
            let selected = filter.select(state)?;
            selected.iter().for_each(|serial| state.switch(*serial, active));
            Ok(selected.len())
        })
    }

    /// Activates all hooks.
    pub fn activate_all(&self) {
        self.switch_all(true);
    }

    /// Deactivates all hooks.
    pub fn deactivate_all(&self) {
        self.switch_all(false);
    }

    fn switch_all(&self, active: bool) {
        self.shared.change(|state| {
            let all: Vec<_> = state.hooks.iter().map(|entry| entry.serial).collect();
            all.into_iter().for_each(|serial| state.switch(serial, active));
        });
    }

    /// The hook of this id, such as `name[path]`.
    pub fn get(&self, id: &str) -> Result<HookHandle> {
        let state = self.shared.lock();
        let found = state.hooks.iter().find(|entry| *entry.id == *id);
        let handle = found.map(|entry| HookHandle::new(&self.shared, entry));
        handle.ok_or_else(|| unknown("has the id", id, state.hooks.iter().map(|entry| &entry.id)))
    }

    /// The hooks of this name: one for each point.
    pub fn hook(&self, name: &str) -> Result<HookGroup> {
        let state = self.shared.lock();
        let handles = self.handles(&state, |entry| *entry.name == *name);
        if handles.is_empty() {
            return Err(unknown("is called", name, state.hooks.iter().map(|entry| &entry.name)));
        }
        Ok(HookGroup { name: name.into(), handles })
    }

    /// The hooks at what a pattern selects: those of a module, whatever value they are for, if it names
    /// none. A pattern that selects nothing in the model is an error.
    pub fn hooks_at(&self, path: &str) -> Result<Vec<HookHandle>> {
        let pattern: Pattern = path.parse()?;
        let state = self.shared.lock();
        let handles = self.handles(&state, |entry| is_at(&pattern, entry));
        if let (true, Some(tree)) = (handles.is_empty(), &state.tree) {
            Selection::of(tree, &pattern)?;
        }
        Ok(handles)
    }

    /// Is there a hook at what a pattern selects, active or not?
    pub fn is_hooked(&self, path: &str) -> Result<bool> {
        Ok(!self.hooks_at(path)?.is_empty())
    }

    fn handles(&self, state: &State, which: impl Fn(&Entry) -> bool) -> Vec<HookHandle> {
        let chosen = state.hooks.iter().filter(|entry| which(entry));
        chosen.map(|entry| HookHandle::new(&self.shared, entry)).collect()
    }

    /// All hooks, in the order of their registration.
    pub fn list(&self) -> HookList {
        HookList::of(&self.shared.lock(), |_| true)
    }

    /// The hooks that were never called so far, active or not.
    pub fn unfired(&self) -> HookList {
        HookList::of(&self.shared.lock(), |entry| entry.hook.fired() == 0)
    }

    /// The names of all hooks, in the order of their registration.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for entry in &self.shared.lock().hooks {
            if !names.iter().any(|name| **name == *entry.name) {
                names.push(entry.name.to_string());
            }
        }
        names
    }

    /// How many hooks there are, each point counted.
    pub fn len(&self) -> usize {
        self.shared.lock().hooks.len()
    }

    /// Is there no hook?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the hooks that the filter selects, and says how many they were.
    pub fn remove(&self, filter: impl Into<HookFilter>) -> Result<usize> {
        let filter = filter.into();
        let dropped_unlocked = self.shared.change(|state| {
            let selected = filter.select(state)?;
            Ok::<_, crate::Error>(state.take(|entry| selected.contains(&entry.serial)))
        })?;
        Ok(dropped_unlocked.len())
    }

    /// Removes a hook from all its points, and says how many they were.
    pub fn remove_hook(&self, name: &str) -> Result<usize> {
        self.remove(HookFilter::all().hook(name))
    }

    /// Removes the hooks at what the patterns select, and says how many they were.
    pub fn remove_at(&self, patterns: impl IntoPatterns) -> Result<usize> {
        self.remove(HookFilter::all().path(patterns)?)
    }

    /// Removes all hooks, and says how many they were.
    pub fn clear(&self) -> usize {
        let dropped_unlocked = self.shared.change(|state| state.take(|_| true));
        dropped_unlocked.len()
    }
}

impl fmt::Debug for HookManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list().iter().map(|hook| &hook.id)).finish()
    }
}
