//! Which hooks are meant.

use std::fmt;

use super::category::HookCategory;
use super::state::{Entry, Serial, State};
use crate::error::{ErrorKind, Result};
use crate::pattern::Pattern;
use crate::select::{nearest, IntoPatterns};

/// Selects registered hooks by path, hook name and category, in any combination.
///
/// A hook is selected if it satisfies everything that the filter says. Where one thing is said several
/// times, as in `.hook("a").hook("b")`, one of them is enough. A filter is a value: making one changes
/// nothing.
///
/// * A path without a value means all hooks at that module: `blocks.3` also selects a hook of
///   `blocks.3:in`. With a value, a call or an index it means hooks that were registered so.
/// * A name or a path that no hook has, and a filter that selects nothing, are errors where the filter is
///   used. [`HookFilter::all`] alone may select nothing.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::manage::{HookCategory, HookFilter};
///
/// let hooks = model.manager();
/// hooks.register("double", ["up", "down"]).hook(|_, x| Ok(Some((x * 2.)?)))?;
/// hooks.register("see", "up").hook_inputs(|_, _| Ok(None))?;
///
/// let filter = HookFilter::all().path("up")?.category(HookCategory::Forward);
/// assert_eq!(filter.to_string(), "hooks at `up`, of the category forward_hook");
/// assert_eq!(hooks.deactivate(&filter)?, 1);
/// let active: Vec<_> = hooks.list().into_iter().filter(|hook| hook.active).map(|hook| hook.id).collect();
/// assert_eq!(active, ["double[down]", "see[up:in]"]);
/// assert!(hooks.activate(HookFilter::all().hook("dobule")).is_err());
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a filter does nothing by itself"]
pub struct HookFilter {
    paths: Vec<Pattern>,
    names: Vec<String>,
    categories: Vec<HookCategory>,
}

impl HookFilter {
    /// All hooks.
    pub fn all() -> Self {
        Self::default()
    }

    /// Hooks at these paths.
    pub fn path(mut self, patterns: impl IntoPatterns) -> Result<Self> {
        self.paths.extend(patterns.into_patterns()?);
        Ok(self)
    }

    /// Hooks of this name.
    pub fn hook(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Hooks of this category.
    pub fn category(mut self, category: HookCategory) -> Self {
        self.categories.push(category);
        self
    }

    fn is_all(&self) -> bool {
        self.paths.is_empty() && self.names.is_empty() && self.categories.is_empty()
    }

    fn selects(&self, entry: &Entry) -> bool {
        (self.paths.is_empty() || self.paths.iter().any(|pattern| is_at(pattern, entry)))
            && (self.names.is_empty() || self.names.iter().any(|name| *entry.name == **name))
            && (self.categories.is_empty() || self.categories.contains(&entry.category))
    }

    /// The hooks that are selected, or what is wrong with the filter.
    pub(super) fn select(&self, state: &State) -> Result<Vec<Serial>> {
        for name in &self.names {
            if !state.hooks.iter().any(|entry| *entry.name == **name) {
                return Err(unknown("is called", name, state.hooks.iter().map(|entry| &entry.name)));
            }
        }
        for pattern in &self.paths {
            if !state.hooks.iter().any(|entry| is_at(pattern, entry)) {
                let paths = state.hooks.iter().map(|entry| &entry.path);
                return Err(unknown("is at", &pattern.to_string(), paths));
            }
        }
        let selected: Vec<Serial> =
            state.hooks.iter().filter(|entry| self.selects(entry)).map(|entry| entry.serial).collect();
        if selected.is_empty() && !self.is_all() {
            let none: [&str; 0] = [];
            return Err(unknown("is among the", &self.to_string(), none));
        }
        Ok(selected)
    }
}

/// Was the hook registered at what the pattern selects?
pub(super) fn is_at(pattern: &Pattern, entry: &Entry) -> bool {
    let own = &entry.pattern;
    let value = || own.value().unwrap_or("out");
    pattern.matches_path(&entry.segments)
        && (pattern.value().is_none() || pattern.matches_value(value()) || pattern.value() == own.value())
        && (pattern.call().is_none() || pattern.call() == own.call())
        && (pattern.index().is_none() || pattern.index() == own.index())
}

pub(super) fn unknown<S: AsRef<str>>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = S>,
) -> crate::Error {
    let nearest = nearest(name, known);
    ErrorKind::UnknownHook { what: what.to_string(), name: name.to_string(), nearest }.into()
}

impl From<&HookFilter> for HookFilter {
    fn from(filter: &HookFilter) -> Self {
        filter.clone()
    }
}

impl From<HookCategory> for HookFilter {
    fn from(category: HookCategory) -> Self {
        Self::all().category(category)
    }
}

impl fmt::Display for HookFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all hooks");
        }
        let mut says: Vec<String> = Vec::new();
        let mut say = |what: &str, all: Vec<String>| {
            if !all.is_empty() {
                says.push(format!("{what} {}", all.join(" or ")));
            }
        };
        say("at", self.paths.iter().map(|pattern| format!("`{pattern}`")).collect());
        say("called", self.names.iter().map(|name| format!("`{name}`")).collect());
        say("of the category", self.categories.iter().map(HookCategory::to_string).collect());
        write!(f, "hooks {}", says.join(", "))
    }
}
