//! What stands in a path or a value, and what it matches.
//!
//! Matching keeps the set of places that can be reached and moves it through the parts of the glob.
//! Nothing is ever tried twice, so no pattern, however many stars it has, is slow.

use std::borrow::Cow;
use std::fmt;

/// Where a glob stands. In a path the dot ends it; in a value the dot is a character like others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Path,
    Value,
}

/// One segment of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Segment {
    /// `**`: any number of segments.
    Deep,
    /// Exactly one segment.
    One(Glob),
}

/// A text with wildcards. No parts is the empty text.
///
/// Two globs that are written alike are equal: texts that meet are one text, stars that meet are one
/// star, and a single alternative is no alternative. [`Glob::push`] sees to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Glob {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// Exactly this, never empty.
    Text(String),
    /// `*`: any run of characters.
    Any,
    /// `{a,b}`: at least two alternatives, which hold none themselves.
    OneOf(Vec<Glob>),
}

/// The value part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Value {
    glob: Glob,
    text: String,
}

impl Segment {
    /// The unescaped text, if nothing else can match.
    pub(super) fn literal(&self) -> Option<&str> {
        match self {
            Segment::Deep => None,
            Segment::One(glob) => glob.literal(),
        }
    }

    /// Whether there is no wildcard in it.
    pub(super) fn is_named(&self) -> bool {
        fn named(glob: &Glob) -> bool {
            glob.parts.iter().all(|part| match part {
                Part::Text(_) => true,
                Part::Any => false,
                Part::OneOf(all) => all.iter().all(named),
            })
        }
        matches!(self, Segment::One(glob) if named(glob))
    }

    /// Whether the segment begins with this very text.
    pub(super) fn starts_with(&self, prefix: &str) -> bool {
        match self {
            Segment::One(Glob { parts }) => {
                matches!(parts.first(), Some(Part::Text(text)) if text.starts_with(prefix))
            }
            Segment::Deep => false,
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Segment::Deep => f.write_str("**"),
            Segment::One(glob) if glob.parts.is_empty() => f.write_str("{}"),
            Segment::One(glob) => glob.write(f, Place::Path),
        }
    }
}

impl Glob {
    /// Adds a part at the end, in the one form that the type allows for it.
    pub(super) fn push(&mut self, part: Part) {
        match (self.parts.last_mut(), part) {
            (Some(Part::Any), Part::Any) => {}
            (Some(Part::Text(text)), Part::Text(more)) => text.push_str(&more),
            (_, Part::OneOf(mut alternatives)) if alternatives.len() < 2 => {
                let parts = alternatives.pop().unwrap_or_default().parts;
                parts.into_iter().for_each(|part| self.push(part));
            }
            (_, part) => self.parts.push(part),
        }
    }

    /// The unescaped text, if nothing else can match.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The glob with one of its alternatives in the place of all of a group, for every alternative of every group. A
    /// group with an empty alternative is something that may be there or not, and no list of names.
    pub(super) fn narrowed(&self) -> impl Iterator<Item = Glob> + '_ {
        let groups = self.parts.iter().enumerate().filter_map(|(at, part)| match part {
            Part::OneOf(names) if names.iter().all(|name| !name.parts.is_empty()) => Some((at, names)),
            _ => None,
        });
        groups.flat_map(move |(at, alternatives)| {
            alternatives.iter().map(move |alternative| {
                let mut narrowed = Glob::default();
                for (position, part) in self.parts.iter().enumerate() {
                    match position == at {
                        true => alternative.parts.iter().cloned().for_each(|part| narrowed.push(part)),
                        false => narrowed.push(part.clone()),
                    }
                }
                narrowed
            })
        })
    }

    fn matches(&self, text: &str) -> bool {
        if let Some(literal) = self.literal() {
            return literal == text;
        }
        // Places are byte offsets. A star may end inside of a character, but no text goes on there.
        let starts = (0..=text.len()).map(|place| place == 0).collect();
        self.advance(starts, text.as_bytes()).last() == Some(&true)
    }

    /// The places that can be reached by matching all parts from one of `starts` on.
    fn advance(&self, starts: Vec<bool>, text: &[u8]) -> Vec<bool> {
        self.parts.iter().fold(starts, |starts, part| part.advance(starts, text))
    }

    fn write(&self, f: &mut impl fmt::Write, place: Place) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => f.write_str(&escape(text, place))?,
                Part::Any => f.write_char('*')?,
                Part::OneOf(alternatives) => {
                    for (position, alternative) in alternatives.iter().enumerate() {
                        f.write_char(if position == 0 { '{' } else { ',' })?;
                        alternative.write(f, place)?;
                    }
                    f.write_char('}')?;
                }
            }
        }
        Ok(())
    }
}

impl Part {
    fn advance(&self, starts: Vec<bool>, text: &[u8]) -> Vec<bool> {
        match self {
            Part::Text(part) => (0..=text.len())
                .map(|end| {
                    end.checked_sub(part.len()).is_some_and(|start| {
                        starts.get(start) == Some(&true) && text.get(start..end) == Some(part.as_bytes())
                    })
                })
                .collect(),
            Part::Any => from_first(starts),
            Part::OneOf(alternatives) => {
                let mut ends = vec![false; starts.len()];
                for alternative in alternatives {
                    let reached = alternative.advance(starts.clone(), text);
                    ends.iter_mut().zip(reached).for_each(|(end, reached)| *end |= reached);
                }
                ends
            }
        }
    }
}

/// Every place from the first one in the set on.
fn from_first(places: Vec<bool>) -> Vec<bool> {
    let mut open = false;
    places
        .into_iter()
        .map(|place| {
            open |= place;
            open
        })
        .collect()
}

impl Value {
    /// The value as a pattern stores it: `None` is the output, and `in.0` is the input.
    pub(super) fn new(glob: Glob) -> Option<Self> {
        let glob = match glob.literal() {
            Some("out" | "out.0") => return None,
            Some("in.0") => Glob { parts: vec![Part::Text("in".to_string())] },
            _ => glob,
        };
        let mut text = String::new();
        // Writing to a `String` does not fail.
        let _ = glob.write(&mut text, Place::Value);
        Some(Value { glob, text })
    }

    pub(super) fn glob(&self) -> &Glob {
        &self.glob
    }

    /// How the value is written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn is_literal(&self) -> bool {
        self.glob.literal().is_some()
    }

    /// Whether the value of this name is meant.
    pub(super) fn selects(&self, name: &str) -> bool {
        // The first input and output have two names each.
        match name {
            "in" | "in.0" => return self.glob.matches("in") || self.glob.matches("in.0"),
            "out" | "out.0" => return self.glob.matches("out") || self.glob.matches("out.0"),
            _ => {}
        }
        self.selects_part(name) || shadowed(name).is_some_and(|name| self.glob.matches(name))
    }

    /// Whether the value of this very name is meant.
    pub(super) fn selects_part(&self, name: &str) -> bool {
        self.glob.matches(name)
    }
}

/// The name of which this is a version, as `att` for `att.1`. Further inputs and outputs are not
/// versions of the first.
fn shadowed(name: &str) -> Option<&str> {
    let (base, version) = name.rsplit_once('.')?;
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    (is_version && !matches!(base, "in" | "out")).then_some(base)
}

/// Whether a path selects the place with these segments.
pub(super) fn path_matches<S: AsRef<str>>(path: &[Segment], segments: &[S]) -> bool {
    let mut reached: Vec<bool> = (0..=segments.len()).map(|place| place == 0).collect();
    for (position, segment) in path.iter().enumerate() {
        reached = match segment {
            Segment::One(glob) => after_one(&reached, segments, |text| glob.matches(text)),
            // `a.**` is below `a`, so it goes at least one segment on.
            Segment::Deep if position > 0 && position + 1 == path.len() => {
                from_first(after_one(&reached, segments, |_| true))
            }
            Segment::Deep => from_first(reached),
        };
    }
    reached.last() == Some(&true)
}

/// The places one segment after those in the set, where that segment will do.
fn after_one<S: AsRef<str>>(places: &[bool], segments: &[S], fits: impl Fn(&str) -> bool) -> Vec<bool> {
    let next = places.iter().zip(segments).map(|(&place, segment)| place && fits(segment.as_ref()));
    std::iter::once(false).chain(next).collect()
}

/// Puts a `\` before every character that means something in a pattern.
pub(super) fn escape(text: &str, place: Place) -> Cow<'_, str> {
    let special = |c: char| match c {
        '.' => place == Place::Path,
        _ => matches!(c, '\\' | ':' | '#' | '[' | ']' | '{' | '}' | ',' | '*') || c.is_whitespace(),
    };
    if !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 4);
    for c in text.chars() {
        if special(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    Cow::Owned(escaped)
}
