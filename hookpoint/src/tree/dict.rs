//! The points of a model as a list that can be looked at.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use candle_core::DType;

use super::index::{NodeId, Tree};
use crate::error::Result;
use crate::pattern::{point_name, Pattern};
use crate::select::IntoPatterns;

/// What stands at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A module of an annotated type.
    Module,
    /// A module that is hooked as a whole where it is called: a candle layer, a trait object.
    Leaf,
    /// A tensor that the model owns; its point fires on results of operations that use it.
    Parameter,
    /// A value inside forward code: a binding, an argument, the result of a method.
    Value,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Module => "module",
            Kind::Leaf => "layer",
            Kind::Parameter => "parameter",
            Kind::Value => "value",
        })
    }
}

/// One point.
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// let scan = model.scan(|m| m.forward(&x))?;
/// let entry = scan.dict.get("up:in").unwrap();
/// assert_eq!((entry.segments(), entry.value()), (["up".to_string()].as_slice(), "in"));
/// assert_eq!(entry.short_type_name(), "Linear");
/// assert_eq!(entry.shape(), Some([1, 2].as_slice()));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HookEntry {
    pub(crate) name: Arc<str>,
    pub(crate) segments: Arc<[String]>,
    pub(crate) value: Cow<'static, str>,
    pub(crate) kind: Kind,
    pub(crate) type_name: &'static str,
    pub(crate) type_id: TypeId,
    pub(crate) seen: Option<Seen>,
}

/// What a run saw at a point.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub shape: Vec<usize>,
    pub dtype: DType,
    pub calls: usize,
}

impl HookEntry {
    /// The point's name: its path, and its value where it is not the output.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of the module, or of the module that the value is inside, segment by segment: none for the
    /// root.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// What of that module it is: `out`, `in`, or a value inside its forward code.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What stands there.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The type of the module, or of the module that the value is inside.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// The same without the modules that types are in: `Wrapper<Thing>`.
    pub fn short_type_name(&self) -> String {
        short_type(self.type_name)
    }

    /// The shape that the last run saw, if it reached this point.
    pub fn shape(&self) -> Option<&[usize]> {
        self.seen.as_ref().map(|seen| seen.shape.as_slice())
    }

    /// The dtype that the last run saw, if it reached this point.
    pub fn dtype(&self) -> Option<DType> {
        self.seen.as_ref().map(|seen| seen.dtype)
    }

    /// How often the run reached this point.
    pub fn calls(&self) -> usize {
        self.seen.as_ref().map_or(0, |seen| seen.calls)
    }
}

/// The points of a model, in the order of its fields, parents before children.
///
/// Modules and parameters are known before any run. Values inside forward code, and all shapes, are
/// there after one: see [`Hooked::scan`](crate::Hooked::scan).
///
/// ```
#[doc = include_str!("../two_layers.txt")]
/// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
/// use hookpoint::Kind;
///
/// let dict = model.hook_dict();
/// assert_eq!(dict.keys().collect::<Vec<_>>(), ["", "up", "down"]);
/// assert_eq!(dict.get("up").map(|entry| entry.kind()), Some(Kind::Leaf));
/// assert_eq!(dict.select("*p")?.keys().collect::<Vec<_>>(), ["up"]);
///
/// let tree = dict.to_string();
/// assert_eq!(tree.lines().map(str::trim_end).collect::<Vec<_>>(), [
///     "(root)  module     Mlp",
///     "  up    layer      Linear",
///     "  down  layer      Linear",
/// ]);
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct HookDict {
    entries: Vec<HookEntry>,
}

impl HookDict {
    pub(crate) fn of_tree(tree: &Tree) -> Self {
        let entry = |(id, node): (usize, &super::index::Node)| HookEntry {
            name: tree.name(id as NodeId),
            segments: tree.shared_segments(id as NodeId),
            value: Cow::Borrowed("out"),
            kind: node.kind,
            type_name: node.type_name,
            type_id: node.type_id,
            seen: None,
        };
        Self { entries: tree.nodes.iter().enumerate().map(entry).collect() }
    }

    /// Notes what a run saw at a point, which is added where it is new.
    pub(crate) fn note(&mut self, node: &HookEntry, value: &str, seen: Seen) {
        let name = point_name(&node.segments, value);
        match self.entries.iter_mut().find(|entry| *entry.name == *name) {
            // Bindings of two methods may have one name.
            Some(entry) => {
                let before = entry.seen.as_ref().map_or(0, |seen| seen.calls);
                entry.seen = Some(Seen { calls: before + seen.calls, ..seen });
            }
            None => {
                // Behind its module, and behind the values of that module that were seen before.
                let same = |entry: &HookEntry| entry.segments == node.segments;
                let at = self.entries.iter().rposition(same).map_or(self.entries.len(), |at| at + 1);
                let new = HookEntry {
                    name: name.into(),
                    value: Cow::Owned(value.to_string()),
                    kind: Kind::Value,
                    seen: Some(seen),
                    ..node.clone()
                };
                self.entries.insert(at, new);
            }
        }
    }

    /// The names of all points.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    /// All points.
    pub fn iter(&self) -> impl Iterator<Item = &HookEntry> {
        self.entries.iter()
    }

    /// The point of this name, in any spelling that a pattern allows.
    pub fn get(&self, name: &str) -> Option<&HookEntry> {
        let exact = self.entries.iter().find(|entry| &*entry.name == name);
        exact.or_else(|| {
            let pattern: Pattern = name.parse().ok()?;
            self.entries.iter().find(|entry| entry.is_selected(&pattern))
        })
    }

    /// The points that the patterns select, in order.
    pub fn select(&self, patterns: impl IntoPatterns) -> Result<HookDict> {
        let patterns = patterns.into_patterns()?;
        for pattern in &patterns {
            if !self.entries.iter().any(|entry| entry.is_selected(pattern)) {
                let names = self.entries.iter().map(|entry| &*entry.name);
                return Err(crate::select::no_match(&pattern.to_string(), names));
            }
        }
        let selected = |entry: &&HookEntry| patterns.iter().any(|pattern| entry.is_selected(pattern));
        Ok(Self { entries: self.entries.iter().filter(selected).cloned().collect() })
    }

    /// The paths of the modules of type `T`, and of the parameters where `T` is a tensor, in order.
    ///
    /// They are patterns, so they can be given to a plan as they are. Modules behind a trait object
    /// have the type of that object: `points_of_type::<dyn Module>()`. A model without such modules
    /// has no such points, and the list is empty.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let linears = model.hook_dict().points_of_type::<Linear>();
    /// assert_eq!(linears, ["up", "down"]);
    /// let (_, cache) = model.run_with_cache(&linears, |m| m.forward(&x))?;
    /// assert_eq!(cache.keys().collect::<Vec<_>>(), ["up", "down"]);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn points_of_type<T: ?Sized>(&self) -> Vec<String> {
        let of_type = |entry: &&HookEntry| entry.kind != Kind::Value && entry.type_id == typeid::of::<T>();
        self.entries.iter().filter(of_type).map(|entry| entry.name.to_string()).collect()
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl HookEntry {
    fn is_selected(&self, pattern: &Pattern) -> bool {
        pattern.matches_path(&self.segments) && pattern.matches_value(&self.value)
    }
}

impl<'d> IntoIterator for &'d HookDict {
    type Item = &'d HookEntry;
    type IntoIter = std::slice::Iter<'d, HookEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

impl fmt::Display for HookDict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depth = |entry: &HookEntry| entry.segments.len() + usize::from(entry.kind == Kind::Value);
        let label = |entry: &HookEntry| {
            let own = match entry.kind {
                Kind::Value => format!(":{}", entry.value),
                _ => entry.segments.last().cloned().unwrap_or_else(|| "(root)".to_string()),
            };
            format!("{}{own}", "  ".repeat(depth(entry)))
        };
        let width = self.entries.iter().map(|entry| label(entry).chars().count()).max().unwrap_or(0);
        let mut above: &[String] = &[];
        for entry in &self.entries {
            // Lists and maps have no point of their own, but the tree shows them.
            let known = above.iter().zip(&*entry.segments).take_while(|(a, b)| a == b).count();
            let containers = entry.segments.len().saturating_sub(1);
            for (depth, name) in entry.segments.iter().enumerate().take(containers).skip(known) {
                writeln!(f, "{}{name}", "  ".repeat(depth + 1))?;
            }
            above = &entry.segments;
            write!(f, "{:width$}  {:9}", label(entry), entry.kind.to_string())?;
            if entry.kind != Kind::Value {
                write!(f, "  {}", entry.short_type_name())?;
            }
            if let Some(seen) = &entry.seen {
                write!(f, "  {:?} {}", seen.shape, seen.dtype.as_str())?;
                if seen.calls > 1 {
                    write!(f, " × {}", seen.calls)?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// `Wrapper<Thing>` of `some::path::Wrapper<other::Thing>`.
pub(crate) fn short_type(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut word = String::new();
    for c in name.chars() {
        match c {
            ':' => word.clear(),
            c if c.is_alphanumeric() || c == '_' => word.push(c),
            other => {
                short.push_str(&word);
                word.clear();
                short.push(other);
            }
        }
    }
    short + &word
}
