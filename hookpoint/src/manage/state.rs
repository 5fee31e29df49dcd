//! What a manager keeps: hooks in the order of their registration, and the scopes that are open.
//!
//! A hook has a flag of its own, and every open scope may say otherwise. The innermost scope that says
//! something about a hook decides. What is switched while a scope is open is noted in the innermost one,
//! and so ends with it. When a scope ends, whatever it said is forgotten, in whichever order scopes end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::category::HookCategory;
use super::persistent::{Does, Registered, Resolved};
use crate::lookup::FastMap;
use crate::pattern::Pattern;
use crate::tree::{Kind, Tree};

/// Identifies a hook, or a scope, of any manager.
pub(super) type Serial = u64;

pub(super) fn next_serial() -> Serial {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// One hook at one point.
pub(super) struct Entry {
    pub serial: Serial,
    /// `name[path]`
    pub id: Arc<str>,
    pub name: Arc<str>,
    /// The point, with call and index as they were asked for.
    pub path: Arc<str>,
    pub pattern: Pattern,
    /// The module or parameter: its name, its path, what it is.
    pub node: Arc<str>,
    pub segments: Vec<String>,
    pub kind: Kind,
    pub category: HookCategory,
    /// The flag that holds when no scope says otherwise.
    own: bool,
    pub hook: Arc<Registered>,
}

/// What is to become an [`Entry`].
pub(super) struct NewEntry {
    pub path: Arc<str>,
    pub pattern: Pattern,
    pub node: Arc<str>,
    pub segments: Vec<String>,
    pub kind: Kind,
}

/// An open scope, and what it says about hooks.
struct Layer {
    serial: Serial,
    says: FastMap<Serial, bool>,
}

#[derive(Default)]
pub(super) struct State {
    pub tree: Option<Arc<Tree>>,
    pub hooks: Vec<Entry>,
    layers: Vec<Layer>,
    /// Goes up with every change.
    pub version: u64,
    /// The active hooks, as a run wants them; made when first needed.
    pub resolved: Option<Resolved>,
}

impl State {
    pub fn is_active(&self, entry: &Entry) -> bool {
        let said = self.layers.iter().rev().find_map(|layer| layer.says.get(&entry.serial));
        said.copied().unwrap_or(entry.own)
    }

    pub fn find(&self, serial: Serial) -> Option<&Entry> {
        self.hooks.iter().find(|entry| entry.serial == serial)
    }

    pub fn switch(&mut self, serial: Serial, active: bool) {
        if let Some(innermost) = self.layers.last_mut() {
            innermost.says.insert(serial, active);
        } else if let Some(entry) = self.hooks.iter_mut().find(|entry| entry.serial == serial) {
            entry.own = active;
        }
    }

    /// Opens a scope that says something about hooks.
    pub fn open(&mut self, says: impl IntoIterator<Item = (Serial, bool)>) -> Serial {
        let serial = next_serial();
        self.layers.push(Layer { serial, says: says.into_iter().collect() });
        serial
    }

    pub fn close(&mut self, scope: Serial) {
        self.layers.retain(|layer| layer.serial != scope);
    }

    /// The first of `wanted`, `wanted_1`, .. that no hook is called.
    pub fn free_name(&self, wanted: &str) -> Arc<str> {
        free(wanted, |name| self.hooks.iter().any(|entry| *entry.name == *name)).into()
    }

    /// Adds hooks of one name, each under an id that is not taken yet.
    pub fn add(
        &mut self,
        name: &Arc<str>,
        category: HookCategory,
        own: bool,
        new: Vec<NewEntry>,
        does: &Does,
    ) -> Vec<&Entry> {
        let first = self.hooks.len();
        for NewEntry { path, pattern, node, segments, kind } in new {
            let taken = |id: &str| self.hooks.iter().any(|entry| *entry.id == *id);
            let id = free(&format!("{name}[{path}]"), taken).into();
            let (serial, name) = (next_serial(), name.clone());
            let hook = Arc::new(Registered::new(serial, does.clone()));
            let entry = Entry { serial, id, name, path, pattern, node, segments, kind, category, own, hook };
            self.hooks.push(entry);
        }
        self.hooks.iter().skip(first).collect()
    }

    /// Takes hooks out. The caller drops them when the state is no longer locked: what a user's closure
    /// owns may come back here when it is dropped.
    #[must_use]
    pub fn take(&mut self, which: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let (taken, kept) = std::mem::take(&mut self.hooks).into_iter().partition(|entry| which(entry));
        self.hooks = kept;
        for layer in &mut self.layers {
            let gone: &Vec<Entry> = &taken;
            layer.says.retain(|serial, _| gone.iter().all(|entry| entry.serial != *serial));
        }
        taken
    }
}

/// The first of `wanted`, `wanted_1`, `wanted_2`, .. that is not taken.
fn free(wanted: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (1usize..).map(|number| format!("{wanted}_{number}"));
    let mut names = std::iter::once(wanted.to_string()).chain(numbered);
    names.find(|name| !taken(name)).unwrap_or_default()
}

/// The state, shared with handles and scopes, which do not keep it alive.
#[derive(Default)]
pub(super) struct Shared {
    /// How many hooks are active: all that a run without hooks looks at.
    active: AtomicUsize,
    state: Mutex<State>,
}

impl Shared {
    pub fn has_active(&self) -> bool {
        self.active.load(Ordering::Acquire) != 0
    }

    /// No user code runs while the state is locked, so a panic in a hook cannot spoil it.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn change<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = f(&mut state);
        state.version += 1;
        state.resolved = None;
        let active = state.hooks.iter().filter(|entry| state.is_active(entry)).count();
        self.active.store(active, Ordering::Release);
        result
    }
}
