//! What the attention of a head of some kind looks like.

use hookpoint::{ErrorKind, Result};

/// A kind of head, by the attention pattern that one of it would have: ones where it looks, zeros elsewhere.
/// These are the patterns of TransformerLens's `head_detector`.
///
/// ```
/// use hookpoint_interp::lens::Detector;
///
/// // With the tokens `a b a`: the second `a` looks at the `b` that followed the first.
/// assert_eq!(
///     Detector::Induction.pattern(&[5, 6, 5])?,
///     [[0., 0., 0.], [0., 0., 0.], [0., 1., 0.]],
/// );
/// let mistake = Detector::Induction.pattern(&[5, 6, 7]).unwrap_err();
/// assert!(mistake.to_string().contains("no token occurs twice"));
/// # Ok::<(), hookpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Detector {
    /// Looks at the token before.
    PreviousToken,
    /// Looks at earlier occurrences of the same token.
    DuplicateToken,
    /// Looks at the tokens that followed earlier occurrences of the same token.
    Induction,
    /// A pattern of one's own, `[query][key]`, of the size of the sequence. Nothing can look ahead.
    Pattern(Vec<Vec<f32>>),
}

/// How an attention pattern is compared with that of a [`Detector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Measure {
    /// The share of the attention that goes where the detector looks, from 0 to 1. TransformerLens's `mul`.
    #[default]
    Share,
    /// One less the absolute difference of the patterns, on average over queries: from -1 to 1.
    /// TransformerLens's `abs`, which it rounds to three digits.
    Difference,
}

impl Detector {
    /// The pattern for a sequence of tokens, `[query][key]`. An error where the sequence is too short, or
    /// where there is nothing that such a head could look at.
    pub fn pattern(&self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        let count = tokens.len();
        if count < 2 {
            return Err(ErrorKind::TooFew {
                what: "tokens".to_string(),
                purpose: "telling heads apart".to_string(),
                least: 2,
                count,
                remedy: "give a longer sequence".to_string(),
            }
            .into());
        }
        let is_copy = |query: usize, key: usize| key < query && tokens.get(query) == tokens.get(key);
        let looks = |query: usize, key: usize| match self {
            Detector::PreviousToken => key + 1 == query,
            Detector::DuplicateToken => is_copy(query, key),
            Detector::Induction => key.checked_sub(1).is_some_and(|before| is_copy(query, before)),
            Detector::Pattern(_) => false,
        };
        if let Detector::Pattern(pattern) = self {
            check(pattern, count)?;
            return Ok(pattern.clone());
        }
        let row = |query| (0..count).map(|key| f32::from(looks(query, key))).collect::<Vec<_>>();
        let pattern: Vec<Vec<f32>> = (0..count).map(row).collect();
        if pattern.iter().flatten().all(|number| *number == 0.) {
            return Err(ErrorKind::NothingToDetect {
                reason: format!("no token occurs twice in this sequence of {count}"),
                remedy: "give a sequence that repeats itself".to_string(),
            }
            .into());
        }
        Ok(pattern)
    }
}

fn check(pattern: &[Vec<f32>], count: usize) -> Result<()> {
    if pattern.len() != count || pattern.iter().any(|row| row.len() != count) {
        let widest = pattern.iter().map(Vec::len).max().unwrap_or(0);
        return Err(ErrorKind::InvalidArgument {
            argument: format!("the pattern for a sequence of {count} tokens"),
            got: format!("{} rows of up to {widest} numbers", pattern.len()),
            remedy: "give as many rows and columns as there are tokens".to_string(),
        }
        .into());
    }
    let ahead = pattern.iter().enumerate().find_map(|(query, row)| {
        let key = row.iter().enumerate().skip(query + 1).find(|(_, number)| **number != 0.)?.0;
        Some((query, key))
    });
    match ahead {
        Some((query, key)) => Err(ErrorKind::InvalidArgument {
            argument: "a pattern of attention".to_string(),
            got: format!("one that has position {query} look at position {key}"),
            remedy: "positions see themselves and those before them".to_string(),
        }
        .into()),
        None => Ok(()),
    }
}
