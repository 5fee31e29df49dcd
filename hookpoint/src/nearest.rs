//! The names that come closest to one that means nothing.

/// The names that come closest to a wanted one, best first: for messages that say what may have been meant.
///
/// ```
/// use hookpoint::error::nearest;
///
/// assert_eq!(nearest("blocks.0.atn", ["head", "blocks.0.attn"]), ["blocks.0.attn"]);
/// ```
pub fn nearest<S: AsRef<str>>(wanted: &str, names: impl IntoIterator<Item = S>) -> Vec<String> {
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
