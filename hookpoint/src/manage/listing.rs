//! Registered hooks, to be looked at.

use std::fmt;

use super::category::HookCategory;
use super::state::{Entry, State};

/// What there is to know about a registered hook, at the time it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookInfo {
    /// `name[path]`
    pub id: String,
    /// The hook's name.
    pub name: String,
    /// The point that it is at.
    pub path: String,
    /// When it is called.
    pub category: HookCategory,
    /// Would it be called in a run that begins now?
    pub active: bool,
    /// Which of the registered hooks it is, from 0: hooks at one point are called in this order.
    pub order: usize,
    /// How often it was called so far.
    pub fired: usize,
}

/// The registered hooks in the order of their registration; prints as a table.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let hooks = model.manager();
/// hooks.register("double", "down").hook(|_, x| Ok(Some((x * 2.)?)))?;
/// hooks.register("see", "up").hook_inputs(|_, _| Ok(None))?.deactivate()?;
/// model.run(|m| m.forward(&x))?;
/// assert_eq!(hooks.list().to_string(), "\
/// order  id            path   category          active  fired
///     0  double[down]  down   forward_hook      yes         1
///     1  see[up:in]    up:in  forward_pre_hook  no          0
/// ");
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookList(Vec<HookInfo>);

impl HookList {
    pub(super) fn of(state: &State, which: impl Fn(&Entry) -> bool) -> Self {
        let info = |(order, entry): (usize, &Entry)| HookInfo {
            id: entry.id.to_string(),
            name: entry.name.to_string(),
            path: entry.path.to_string(),
            category: entry.category,
            active: state.is_active(entry),
            order,
            fired: entry.hook.fired(),
        };
        Self(state.hooks.iter().enumerate().filter(|(_, entry)| which(entry)).map(info).collect())
    }

    /// The hooks.
    pub fn iter(&self) -> std::slice::Iter<'_, HookInfo> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hook of this id.
    pub fn get(&self, id: &str) -> Option<&HookInfo> {
        self.0.iter().find(|hook| hook.id == id)
    }
}

impl IntoIterator for HookList {
    type Item = HookInfo;
    type IntoIter = std::vec::IntoIter<HookInfo>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'l> IntoIterator for &'l HookList {
    type Item = &'l HookInfo;
    type IntoIter = std::slice::Iter<'l, HookInfo>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for HookList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &str| if path.is_empty() { "(root)".to_string() } else { path.to_string() };
        let width = |title: &str, text: &dyn Fn(&HookInfo) -> usize| {
            self.0.iter().map(text).chain([title.len()]).max().unwrap_or(0)
        };
        let id = width("id", &|hook| hook.id.chars().count());
        let path = width("path", &|hook| shown(&hook.path).chars().count());
        let category = width("category", &|hook| hook.category.to_string().len());
        writeln!(f, "order  {:id$}  {:path$}  {:category$}  active  fired", "id", "path", "category")?;
        for hook in &self.0 {
            let active = if hook.active { "yes" } else { "no" };
            writeln!(
                f,
                "{:5}  {:id$}  {:path$}  {:category$}  {active:6}  {:5}",
                hook.order,
                hook.id,
                shown(&hook.path),
                hook.category,
                hook.fired
            )?;
        }
        Ok(())
    }
}
