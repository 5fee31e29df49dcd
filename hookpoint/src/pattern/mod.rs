//! The pattern language: how points of a model are named and selected.
//!
//! # Syntax
//!
//! ```text
//! pattern := path [":" value] ["#" call] ["[" index "]"]
//! ```
//!
//! **Path.** Segments joined by `.`; the empty path is the root, the model itself.
//!
//! * `name` is the segment of that name: a field, the index in a `Vec`, array or tuple, a map's key.
//! * `*` inside a segment stands for any run of characters of that segment, also none: `*`, `h*d`.
//! * `{a,b}` stands for `a` or `b`. An alternative may be empty and may hold `*`, but no braces and,
//!   in a path, no dot.
//! * `**` as a whole segment stands for any number of segments, also none. At the end of a longer path
//!   it stands for at least one: `a.**` is what lies below `a`, without `a`. `**` alone is everything.
//! * `\` makes the next character an ordinary one: the key `a.b` of a map is the segment `a\.b`.
//! * `{}` is the empty text, for a map that has the empty key.
//!
//! **Value.** Which value of the module; without it, the output.
//!
//! * `out` is the output and `in` the input; `out.1` and `in.1` are further ones, `in.0` is `in`.
//! * `name` is a named value, and all its versions `name.0`, `name.1`, .. if it is shadowed.
//! * `method` is the result of a method, `method.name` a value inside it.
//! * `*` stands for any run of characters, dots too; `{a,b}` and `\` are as in a path.
//!
//! **Call.** `#2` is the third call of the point in a run; without it, every call.
//!
//! **Index.** Which part of the tensor: see [`Index`].
//!
//! Spaces are allowed around the whole pattern and inside the index.
//!
//! Names as other libraries write them are understood when they stand last in the path:
//! `fc1.hook_point` is `fc1`, `hook_point` is the root, and `blocks.0.attn.hook_pattern` is
//! `blocks.0.attn:pattern`, unless a value is given anyway. A field that is really called so is
//! written `\hook_pattern`.
//!
//! # Examples
//!
//! | pattern | selects |
//! | --- | --- |
//! | `blocks.*.attn` | the output of every block's attention |
//! | `blocks.{0,5}.mlp:in` | the input of two MLPs |
//! | `**.c_proj` | every `c_proj`, at any depth |
//! | `blocks.3:resid_mid[:, -1]` | a named value, at the last position |
//! | `blocks.3.attn:pattern[:, 7]` | head 7 of an attention pattern |
//! | `decoder#0` | what the decoder gives in its first call |
//! | `blocks.0[*]` | every element of a batch by itself |

mod glob;
mod index;
mod parse;
mod slice;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use glob::{Place, Segment, Value};

pub use index::Index;

/// A parsed selection of points; [the module's documentation](self) has the syntax.
///
/// ```
/// use hookpoint::Pattern;
///
/// let pattern: Pattern = "blocks.*.attn:pattern[:, 7]".parse()?;
/// assert!(pattern.matches_path(&["blocks", "3", "attn"]));
/// assert!(!pattern.matches_path(&["blocks", "3", "mlp"]));
/// assert!(pattern.matches_value("pattern"));
/// assert_eq!(pattern.to_string(), "blocks.*.attn:pattern[:, 7]");
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    path: Vec<Segment>,
    /// `None` is the output.
    value: Option<Value>,
    call: Option<usize>,
    index: Option<Index>,
}

impl Pattern {
    /// Whether the path part selects the module or parameter at these segments; the root is the empty
    /// slice.
    ///
    /// ```
    /// use hookpoint::Pattern;
    ///
    /// let below: Pattern = "a.**".parse()?;
    /// assert!(below.matches_path(&["a", "b", "c"]));
    /// assert!(!below.matches_path(&["a"]));
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn matches_path<S: AsRef<str>>(&self, segments: &[S]) -> bool {
        glob::path_matches(&self.path, segments)
    }

    /// The value part in canonical form; `None` is the output.
    ///
    /// ```
    /// use hookpoint::Pattern;
    ///
    /// assert_eq!("a:in.0".parse::<Pattern>()?.value(), Some("in"));
    /// assert_eq!("a:out".parse::<Pattern>()?.value(), None);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn value(&self) -> Option<&str> {
        self.value.as_ref().map(Value::text)
    }

    /// Whether the value part selects the value of this name, which is `out`, `in`, `in.1`, a named
    /// value as `hidden` or (shadowed) `hidden.0`, a method as `encode`, or a value inside it as
    /// `encode.hidden`.
    ///
    /// ```
    /// use hookpoint::Pattern;
    ///
    /// let pattern: Pattern = "a:hidden".parse()?;
    /// assert!(pattern.matches_value("hidden") && pattern.matches_value("hidden.1"));
    /// assert!(!pattern.matches_value("encode.hidden"));
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn matches_value(&self, name: &str) -> bool {
        match &self.value {
            Some(value) => value.selects(name),
            None => matches!(name, "out" | "out.0"),
        }
    }

    /// As [`matches_value`](Self::matches_value), but a number at the end of the name is no version of a
    /// binding. `pair.1`, the second tensor of a pair, is not meant by `:pair`.
    pub(crate) fn matches_part(&self, name: &str) -> bool {
        self.value.as_ref().is_some_and(|value| value.selects_part(name))
    }

    /// Which call of the point in a run, from 0; `None` is every call.
    pub fn call(&self) -> Option<usize> {
        self.call
    }

    /// Which part of the tensor; `None` is all of it.
    pub fn index(&self) -> Option<&Index> {
        self.index.as_ref()
    }

    /// The same pattern for the whole tensor.
    ///
    /// ```
    /// use hookpoint::Pattern;
    ///
    /// assert_eq!("a:in#1[0]".parse::<Pattern>()?.without_index(), "a:in#1".parse()?);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    #[must_use]
    pub fn without_index(&self) -> Pattern {
        Pattern { index: None, ..self.clone() }
    }

    /// The same pattern for every call.
    ///
    /// ```
    /// use hookpoint::Pattern;
    ///
    /// assert_eq!("a:in#1[0]".parse::<Pattern>()?.without_call(), "a:in[0]".parse()?);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    #[must_use]
    pub fn without_call(&self) -> Pattern {
        Pattern { call: None, ..self.clone() }
    }

    /// The same pattern for one call, counted from 0.
    ///
    /// ```
    /// use hookpoint::Pattern;
    ///
    /// assert_eq!("a:in[0]".parse::<Pattern>()?.with_call(1), "a:in#1[0]".parse()?);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    #[must_use]
    pub fn with_call(&self, call: usize) -> Pattern {
        Pattern { call: Some(call), ..self.clone() }
    }

    /// The same pattern for a part of the tensor.
    ///
    /// ```
    /// use hookpoint::pattern::Index;
    /// use hookpoint::Pattern;
    ///
    /// assert_eq!("a:in".parse::<Pattern>()?.with_index(Index::parse("0, :")?), "a:in[0, :]".parse()?);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    #[must_use]
    pub fn with_index(&self, index: Index) -> Pattern {
        Pattern { index: Some(index), ..self.clone() }
    }

    /// The same pattern for another value.
    pub(crate) fn with_value(&self, value: &str) -> Result<Pattern> {
        let Pattern { value, .. } = format!(":{value}").parse()?;
        Ok(Pattern { value, ..self.clone() })
    }

    /// The segments of the one path that is selected, unescaped; `None` if the path has a wildcard or
    /// alternatives.
    ///
    /// ```
    /// use hookpoint::Pattern;
    ///
    /// let segments = r"a.b\.c".parse::<Pattern>()?.literal_path();
    /// assert_eq!(segments, Some(vec!["a".to_string(), "b.c".to_string()]));
    /// assert_eq!("a.*".parse::<Pattern>()?.literal_path(), None);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn literal_path(&self) -> Option<Vec<String>> {
        self.path.iter().map(|segment| segment.literal().map(str::to_string)).collect()
    }

    /// Whether the path ends with `**`: it means whatever is there.
    pub(crate) fn is_everything_below(&self) -> bool {
        matches!(self.path.last(), Some(Segment::Deep))
    }

    /// Whether the last segment is a name, or several of them, and no wildcard.
    pub(crate) fn is_named(&self) -> bool {
        self.path.last().is_none_or(Segment::is_named)
    }

    /// The pattern with one alternative in the place of `{a,b}`, for every alternative of every group. Each of them is a
    /// name that somebody wrote, and has to be there.
    pub(crate) fn alternatives(&self) -> Vec<Pattern> {
        let mut all = Vec::new();
        for (at, segment) in self.path.iter().enumerate() {
            let Segment::One(glob) = segment else { continue };
            for narrowed in glob.narrowed() {
                let mut pattern = self.clone();
                if let Some(segment) = pattern.path.get_mut(at) {
                    *segment = Segment::One(narrowed);
                }
                all.push(pattern);
            }
        }
        if let Some(value) = &self.value {
            all.extend(
                value.glob().narrowed().map(|glob| Pattern { value: Value::new(glob), ..self.clone() }),
            );
        }
        all
    }

    /// Whether the pattern can stand for one point only: nothing in it is a wildcard or an alternative.
    ///
    /// ```
    /// use hookpoint::Pattern;
    ///
    /// assert!("a.b:in[:, -1]".parse::<Pattern>()?.is_literal());
    /// assert!(!"a.b:in[*]".parse::<Pattern>()?.is_literal());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn is_literal(&self) -> bool {
        self.path.iter().all(|segment| segment.literal().is_some())
            && self.value.as_ref().is_none_or(Value::is_literal)
            && !self.index.as_ref().is_some_and(Index::has_each)
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse::pattern(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.path.iter().enumerate() {
            if position > 0 {
                f.write_str(".")?;
            }
            // Read back without the escape, a last `hook_x` would be the value `x`.
            if position + 1 == self.path.len() && segment.starts_with(parse::PEER_PREFIX) {
                f.write_str("\\")?;
            }
            segment.fmt(f)?;
        }
        if let Some(value) = &self.value {
            write!(f, ":{}", value.text())?;
        }
        if let Some(call) = self.call {
            write!(f, "#{call}")?;
        }
        if let Some(index) = &self.index {
            write!(f, "[{index}]")?;
        }
        Ok(())
    }
}

/// Escapes one path segment so that it is taken literally at any place of a path.
///
/// ```
/// use hookpoint::pattern::escape_segment;
///
/// assert_eq!(escape_segment("c_proj"), "c_proj");
/// assert_eq!(escape_segment("a.b"), r"a\.b");
/// ```
pub fn escape_segment(segment: &str) -> Cow<'_, str> {
    match glob::escape(segment, Place::Path) {
        escaped if segment.starts_with(parse::PEER_PREFIX) => Cow::Owned(format!("\\{escaped}")),
        _ if segment.is_empty() => Cow::Borrowed("{}"),
        escaped => escaped,
    }
}

/// The concrete name of a point: its segments escaped and joined by `.`, then `:value` unless that is
/// `out`. The name parses to the pattern that selects just this point, and is how that pattern prints.
///
/// ```
/// use hookpoint::pattern::point_name;
///
/// assert_eq!(point_name(&["blocks", "0", "attn"], "out"), "blocks.0.attn");
/// assert_eq!(point_name(&["blocks", "0", "attn"], "pattern"), "blocks.0.attn:pattern");
/// assert_eq!(point_name::<&str>(&[], "in"), ":in");
/// ```
pub fn point_name<S: AsRef<str>>(segments: &[S], value: &str) -> String {
    let mut name = String::new();
    for (position, segment) in segments.iter().map(AsRef::as_ref).enumerate() {
        if position > 0 {
            name.push('.');
        }
        let last = position + 1 == segments.len();
        if last || segment.is_empty() {
            name.push_str(&escape_segment(segment));
        } else {
            name.push_str(&glob::escape(segment, Place::Path));
        }
    }
    if value != "out" {
        name.push(':');
        name.push_str(&glob::escape(value, Place::Value));
    }
    name
}
