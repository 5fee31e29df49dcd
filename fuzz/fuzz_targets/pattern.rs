//! No text makes the pattern language panic, and what it prints means what was read.
//!
//! `cargo +nightly fuzz run pattern`

#![no_main]

use hookpoint::pattern::{escape_segment, point_name};
use hookpoint::{Index, Pattern};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, Vec<&str>, Vec<u8>)| {
    let (text, segments, sizes) = input;

    if let Ok(pattern) = text.parse::<Pattern>() {
        let printed = pattern.to_string();
        let again: Pattern = printed.parse().expect("what was printed parses");
        assert_eq!(again, pattern);
        assert_eq!(again.to_string(), printed);
        if let Some(path) = pattern.literal_path() {
            assert!(pattern.matches_path(&path));
        }
        pattern.matches_path(&segments);
        pattern.matches_value(text);
    }

    let escaped: Pattern = escape_segment(text).parse().expect("an escaped segment parses");
    assert_eq!(escaped.literal_path(), Some(vec![text.to_string()]));
    let name = point_name(&segments, "out");
    let point: Pattern = name.parse().expect("the name of a point parses");
    assert_eq!(point.to_string(), name);
    assert!(point.is_literal() && point.matches_path(&segments) && point.matches_value("out"));

    if let Ok(index) = Index::parse(text) {
        assert_eq!(Index::parse(&index.to_string()).expect("what was printed parses"), index);
        // Sizes are kept small: an index with a `*` for each dimension has an element for each place.
        let shape: Vec<usize> = sizes.iter().take(4).map(|&size| usize::from(size % 8)).collect();
        if let Ok(selected) = index.selected_shape("x", &shape) {
            assert!(selected.len() <= shape.len());
            for element in index.elements("x", &shape).unwrap_or_default() {
                assert!(element.selected_shape("x", &shape).is_ok());
            }
        }
    }
});
