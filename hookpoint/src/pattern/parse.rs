//! From text to a [`Pattern`], and what to say when that fails.

use super::glob::{Glob, Part, Place, Segment, Value};
use super::index::{Index, Item};
use super::Pattern;
use crate::error::{Error, ErrorKind, Result};

/// How other libraries begin the names of their hook points.
pub(super) const PEER_PREFIX: &str = "hook_";
/// The name that other libraries give to the point of a module itself.
const PEER_POINT: &str = "hook_point";

const ORDER: &str = "the order is `path:value#call[index]`";

/// Where and why a text is no pattern, in characters of the text.
struct Fault {
    position: usize,
    reason: String,
    remedy: String,
}

impl Fault {
    fn in_text(self, text: &str) -> Error {
        let Fault { position, reason, remedy } = self;
        ErrorKind::InvalidPattern { pattern: text.to_string(), position, reason, remedy }.into()
    }
}

fn fail<T>(position: usize, reason: impl Into<String>, remedy: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { position, reason: reason.into(), remedy: remedy.into() })
}

/// Parses a whole pattern.
pub(super) fn pattern(text: &str) -> Result<Pattern> {
    let chars: Vec<char> = text.chars().collect();
    let (start, end) = trimmed(&chars);
    let mut parser = Parser { chars: chars.get(..end).unwrap_or_default(), at: start };
    parser.pattern().map_err(|fault| fault.in_text(text))
}

/// Parses what stands between the brackets.
pub(super) fn index(text: &str) -> Result<Index> {
    let chars: Vec<char> = text.chars().collect();
    items(&chars, 0).map_err(|fault| fault.in_text(text))
}

/// The range without the spaces around it; a space that is escaped stays.
fn trimmed(chars: &[char]) -> (usize, usize) {
    let blank = |c: &&char| c.is_whitespace();
    let start = chars.iter().take_while(blank).count();
    let end = chars.len() - chars.iter().skip(start).rev().take_while(blank).count();
    let escapes = chars.iter().take(end).skip(start).rev().take_while(|&&c| c == '\\').count();
    (start, if escapes % 2 == 1 { (end + 1).min(chars.len()) } else { end })
}

struct Parser<'a> {
    chars: &'a [char],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    /// Goes past `wanted` if it comes next.
    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(offset, c)| self.chars.get(self.at + offset) == Some(&c))
    }

    fn pattern(&mut self) -> Result<Pattern, Fault> {
        let mut path = Vec::new();
        let mut peer_value = None;
        if !matches!(self.peek(), None | Some(':' | '#' | '[')) {
            loop {
                match self.peer_segment()? {
                    Some(Peer::Point) => {}
                    Some(Peer::Value(glob)) => peer_value = Some(glob),
                    None => match self.segment()? {
                        // Two in a row say what one says.
                        Segment::Deep if path.last() == Some(&Segment::Deep) => {}
                        segment => path.push(segment),
                    },
                }
                if !self.eat('.') {
                    break;
                }
            }
        }
        let value = if self.peek() == Some(':') { Some(self.value()?) } else { peer_value };
        let call = if self.eat('#') { Some(self.call()?) } else { None };
        let index = if self.eat('[') { Some(self.index()?) } else { None };
        match self.peek() {
            None => Ok(Pattern { path, value: value.and_then(Value::new), call, index }),
            Some('[') => fail(self.at, "a second index", "join the items: `[0, 1]`"),
            Some(c) => fail(self.at, format!("`{c}` cannot stand here"), ORDER),
        }
    }

    /// A last segment as other libraries write it: `hook_point`, or `hook_x` where no value follows.
    fn peer_segment(&mut self) -> Result<Option<Peer>, Fault> {
        if !self.starts_with(PEER_PREFIX) {
            return Ok(None);
        }
        let start = self.at;
        self.glob(Place::Path)?;
        let end = self.at;
        let next = self.peek();
        self.at = start;
        if next == Some('.') {
            return Ok(None);
        }
        if self.starts_with(PEER_POINT) && end - start == PEER_POINT.len() {
            self.at = end;
            return Ok(Some(Peer::Point));
        }
        if next == Some(':') || end - start == PEER_PREFIX.len() {
            return Ok(None);
        }
        self.at += PEER_PREFIX.len();
        let name = self.glob(Place::Path)?;
        if name.literal() == Some("") {
            return fail(start, "a hook point without a name", "write the name of a value");
        }
        Ok(Some(Peer::Value(name)))
    }

    fn segment(&mut self) -> Result<Segment, Fault> {
        if matches!(self.peek(), None | Some('.' | ':' | '#' | '[')) {
            let remedy = "remove the extra `.`; the root is the empty path, any segment is `*`";
            return fail(self.at, "a segment is missing", remedy);
        }
        let after = self.chars.get(self.at + 2);
        if self.starts_with("**") && matches!(after, None | Some('.' | ':' | '#' | '[')) {
            self.at += 2;
            return Ok(Segment::Deep);
        }
        Ok(Segment::One(self.glob(Place::Path)?))
    }

    fn value(&mut self) -> Result<Glob, Fault> {
        self.at += 1;
        let start = self.at;
        let glob = self.glob(Place::Value)?;
        match glob.literal() {
            Some("") => {
                let remedy = "write `:in`, `:out` or the name of a value, or leave the `:` out";
                fail(start, "no value after the `:`", remedy)
            }
            _ => Ok(glob),
        }
    }

    fn call(&mut self) -> Result<usize, Fault> {
        let start = self.at;
        let digits: String =
            self.chars.iter().skip(start).take_while(|c| c.is_ascii_digit()).copied().collect();
        self.at += digits.len();
        if digits.is_empty() {
            let remedy = "write the number of the call, from 0: `#0`; leave `#` out for every call";
            return fail(start, "no call number after the `#`", remedy);
        }
        digits.parse().or_else(|_| fail(start, format!("{digits} is too large"), "write a smaller number"))
    }

    fn index(&mut self) -> Result<Index, Fault> {
        let start = self.at;
        let Some(length) = self.chars.iter().skip(start).position(|&c| c == ']') else {
            return fail(start - 1, "the index is not closed", "add a `]`; a `[` in a name is `\\[`");
        };
        self.at += length + 1;
        items(self.chars.get(start..start + length).unwrap_or_default(), start)
    }

    /// Everything up to what ends a glob here.
    fn glob(&mut self, place: Place) -> Result<Glob, Fault> {
        let mut glob = Glob::default();
        while let Some(c) = self.peek() {
            match c {
                '.' | ':' if place == Place::Path => break,
                '#' | '[' => break,
                ':' => {
                    return fail(
                        self.at,
                        "a second `:`",
                        "one pattern has one value; a `:` in a name is `\\:`",
                    )
                }
                '{' => glob.push(self.alternatives(place)?),
                '}' => return fail(self.at, "`}` without `{`", "write `\\}` if it is part of the name"),
                ',' => {
                    let remedy = "alternatives are written `{a,b}`; give several patterns one by one";
                    return fail(self.at, "`,` outside of braces", remedy);
                }
                _ => glob.push(self.character()?),
            }
        }
        Ok(glob)
    }

    fn alternatives(&mut self, place: Place) -> Result<Part, Fault> {
        let open = self.at;
        self.at += 1;
        let mut alternatives = Vec::new();
        let mut current = Glob::default();
        loop {
            match self.peek() {
                None => return fail(open, "`{` is not closed", "add a `}`; a `{` in a name is `\\{`"),
                Some('}') => break,
                Some(',') => {
                    self.at += 1;
                    alternatives.push(std::mem::take(&mut current));
                }
                Some('{') => {
                    return fail(
                        self.at,
                        "braces inside of braces",
                        "write all alternatives in one pair: `{ab,ac,d}`",
                    )
                }
                Some('.') if place == Place::Path => {
                    let remedy = "alternatives are within one segment: give two patterns, or write `\\.`";
                    return fail(self.at, "`.` inside of braces", remedy);
                }
                Some(c @ (':' | '#' | '[')) => {
                    let remedy = format!("close the braces first; a `{c}` in a name is `\\{c}`");
                    return fail(self.at, format!("`{c}` inside of braces"), remedy);
                }
                Some(_) => current.push(self.character()?),
            }
        }
        self.at += 1;
        alternatives.push(current);
        Ok(Part::OneOf(alternatives))
    }

    /// One character that stands for itself or is escaped, or a star.
    fn character(&mut self) -> Result<Part, Fault> {
        let start = self.at;
        let c = self.peek();
        self.at += 1;
        match c {
            Some('*') if self.peek() == Some('*') => {
                let remedy =
                    "`**` is a segment of its own, as in `a.**`; inside of a name or value `*` is enough";
                fail(start, "`**` inside of a name", remedy)
            }
            Some('*') => Ok(Part::Any),
            Some('\\') => match self.peek() {
                Some(escaped) => {
                    self.at += 1;
                    Ok(Part::Text(escaped.to_string()))
                }
                None => fail(start, "nothing follows the `\\`", "write `\\\\` for the character itself"),
            },
            Some(']') => fail(start, "`]` without `[`", "write `\\]` if it is part of the name"),
            Some(c) if c.is_whitespace() => {
                let remedy = "remove it, or write a `\\` before it if it is part of the name";
                fail(start, "a space", remedy)
            }
            Some(c) => Ok(Part::Text(c.to_string())),
            None => fail(start, "the pattern ends too early", ORDER),
        }
    }
}

enum Peer {
    /// `hook_point`.
    Point,
    /// `hook_x`: the value `x`.
    Value(Glob),
}

const ITEMS: &str = "write an int, `a:b`, `a:b:step`, `*` or `...`, joined by commas";

/// Parses the items of an index, the first character of which is at `offset` in the whole text.
fn items(chars: &[char], offset: usize) -> Result<Index, Fault> {
    if chars.iter().all(|c| c.is_whitespace()) {
        return fail(offset, "the index is empty", "write `[:]`, or leave the brackets out");
    }
    let mut items = Vec::new();
    let mut at = offset;
    for text in chars.split(|&c| c == ',') {
        let item = item(text, at)?;
        if item == Item::Rest && items.contains(&Item::Rest) {
            return fail(at, "a second `...`", "one `...` stands for all dimensions that are left");
        }
        items.push(item);
        at += text.len() + 1;
    }
    Ok(Index::new(items))
}

fn item(chars: &[char], at: usize) -> Result<Item, Fault> {
    let (text, at) = word(chars, at);
    match text.as_str() {
        "" => fail(at, "an item is missing", ITEMS),
        "*" => Ok(Item::Each),
        "..." => Ok(Item::Rest),
        _ if text.contains("..") => {
            fail(at, format!("`{text}` is not a range"), "write `a:b`: the end is left out of it")
        }
        _ if text.contains(':') => range(chars, at - leading_spaces(chars)),
        _ => Ok(Item::At(number(&text, at)?)),
    }
}

fn range(chars: &[char], offset: usize) -> Result<Item, Fault> {
    let mut at = offset;
    let mut bounds = [None; 3];
    let mut slots = bounds.iter_mut();
    let mut step_at = at;
    for part in chars.split(|&c| c == ':') {
        let (text, place) = word(part, at);
        let Some(slot) = slots.next() else {
            return fail(at - 1, "too many `:`", "a range is `a:b` or `a:b:step`");
        };
        if !text.is_empty() {
            *slot = Some(number(&text, place)?);
        }
        step_at = place;
        at += part.len() + 1;
    }
    let [start, end, step] = bounds;
    match step.map_or(Ok(1), usize::try_from) {
        Ok(step) if step > 0 => Ok(Item::Range { start, end, step }),
        _ => {
            fail(step_at, "a step must be positive", "write 1 or more, and turn the tensor round in the hook")
        }
    }
}

fn number(text: &str, at: usize) -> Result<i64, Fault> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return fail(at, format!("`{text}` is not an index"), ITEMS);
    }
    text.parse().or_else(|_| fail(at, format!("{text} is too large"), "write a place that a dimension has"))
}

fn leading_spaces(chars: &[char]) -> usize {
    chars.iter().take_while(|c| c.is_whitespace()).count()
}

/// The text without the spaces around it, and where it begins.
fn word(chars: &[char], at: usize) -> (String, usize) {
    (chars.iter().collect::<String>().trim().to_string(), at + leading_spaces(chars))
}
