//! From what a user writes to the points that are meant: one pattern or many, and the nearest names
//! where nothing is meant.

use crate::error::{Error, ErrorKind, Result};
use crate::pattern::Pattern;

/// One pattern or several: a string, a [`Pattern`], or an array, slice or `Vec` of them.
///
/// ```
/// use hookpoint::{IntoPatterns, Pattern};
///
/// let attention: Pattern = "blocks.*.attn".parse()?;
/// assert_eq!("blocks.*.attn".into_patterns()?, [attention.clone()]);
/// assert_eq!(["blocks.*.attn", "head"].into_patterns()?.len(), 2);
/// assert_eq!(vec![attention].into_patterns()?.len(), 1);
/// assert!("blocks..attn".into_patterns().is_err());
/// # Ok::<(), hookpoint::Error>(())
/// ```
pub trait IntoPatterns {
    /// The patterns, parsed.
    fn into_patterns(self) -> Result<Vec<Pattern>>;
}

macro_rules! one_pattern {
    ($($ty:ty => |$given:ident| $pattern:expr),* $(,)?) => { $(
        impl IntoPatterns for $ty {
            fn into_patterns(self) -> Result<Vec<Pattern>> {
                let $given = self;
                Ok(vec![$pattern])
            }
        }
    )* };
}
one_pattern!(
    &str => |text| text.parse()?,
    &&str => |text| text.parse()?,
    String => |text| text.parse()?,
    &String => |text| text.parse()?,
    std::borrow::Cow<'_, str> => |text| text.parse()?,
    std::sync::Arc<str> => |text| text.parse()?,
    Pattern => |pattern| pattern,
    &Pattern => |pattern| pattern.clone(),
);

fn all<P: IntoPatterns>(given: impl IntoIterator<Item = P>) -> Result<Vec<Pattern>> {
    let mut patterns = Vec::new();
    for one in given {
        patterns.extend(one.into_patterns()?);
    }
    Ok(patterns)
}

impl<P: IntoPatterns, const N: usize> IntoPatterns for [P; N] {
    fn into_patterns(self) -> Result<Vec<Pattern>> {
        all(self)
    }
}

impl<P: IntoPatterns> IntoPatterns for Vec<P> {
    fn into_patterns(self) -> Result<Vec<Pattern>> {
        all(self)
    }
}

impl<'p, P> IntoPatterns for &'p [P]
where
    &'p P: IntoPatterns,
{
    fn into_patterns(self) -> Result<Vec<Pattern>> {
        all(self)
    }
}

impl<'p, P> IntoPatterns for &'p Vec<P>
where
    &'p P: IntoPatterns,
{
    fn into_patterns(self) -> Result<Vec<Pattern>> {
        all(self)
    }
}

impl<'p, P, const N: usize> IntoPatterns for &'p [P; N]
where
    &'p P: IntoPatterns,
{
    fn into_patterns(self) -> Result<Vec<Pattern>> {
        all(self)
    }
}

/// The error for a pattern that selects nothing, with the names that come closest.
pub(crate) fn no_match<S: AsRef<str>>(pattern: &str, names: impl IntoIterator<Item = S>) -> Error {
    ErrorKind::NoMatch { pattern: pattern.to_string(), nearest: nearest(pattern, names) }.into()
}

/// The names that come closest to a wanted one, best first.
pub(crate) fn nearest<S: AsRef<str>>(wanted: &str, names: impl IntoIterator<Item = S>) -> Vec<String> {
    const SHOWN: usize = 5;
    let mut ranked: Vec<(usize, String)> = Vec::new();
    for name in names {
        let name = name.as_ref();
        // The root is near to everything short, and nobody means it by a name.
        if !name.is_empty() {
            ranked.push((distance(wanted, name), name.to_string()));
        }
    }
    ranked.sort();
    ranked.dedup_by(|a, b| a.1 == b.1);
    // Names that have little to do with what was wanted help nobody.
    let best = ranked.first().map_or(0, |(distance, _)| *distance);
    let close = ranked.into_iter().filter(|(distance, _)| *distance <= best + 1);
    close.take(SHOWN).map(|(_, name)| name).collect()
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cb, above) in b.iter().zip(row.iter_mut().skip(1)) {
            let here = (diagonal + usize::from(ca != *cb)).min(left + 1).min(*above + 1);
            diagonal = std::mem::replace(above, here);
            left = here;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("attn", "attn"), 0);
        assert_eq!(distance("atn", "attn"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn the_nearest_name_comes_first() {
        let names = ["", "blocks.0.attn", "blocks.0.mlp", "head"];
        assert_eq!(nearest("blocks.0.atn", names).first().map(String::as_str), Some("blocks.0.attn"));
    }
}
