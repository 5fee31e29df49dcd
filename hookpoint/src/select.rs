//! From what a user writes to the points that are meant: one pattern or many, and the nearest names
//! where nothing is meant.

use crate::error::{Error, ErrorKind, Result};
pub(crate) use crate::nearest::nearest;
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
