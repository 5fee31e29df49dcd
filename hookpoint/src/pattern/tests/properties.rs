//! What holds for every pattern, and for every text.

use proptest::prelude::*;

use crate::error::ErrorKind;
use crate::pattern::{escape_segment, point_name, Index, Pattern};

/// Texts that are mostly made of what means something in a pattern.
fn noise() -> impl Strategy<Value = String> {
    proptest::string::string_regex(r"([.:#\[\]{},*\\ \-]|\*\*|hook_|hook_point|in|out|[a-c0-9é]){0,16}")
        .unwrap()
}

/// Patterns that parse.
fn pattern_text() -> impl Strategy<Value = String> {
    let glob = r"(\*?([a-c]|é|\\[.:#{}*\\ ]|[0-9]|\{[a-b]\*?,c?\})){1,4}";
    let segment = prop_oneof![
        8 => proptest::string::string_regex(glob).unwrap(),
        1 => Just("**".to_string()),
        1 => Just("hook_point".to_string()),
        1 => Just("hook_x".to_string()),
        1 => Just(r"\hook_x".to_string()),
        1 => Just("{}".to_string()),
    ];
    let path = prop::collection::vec(segment, 0..4).prop_map(|segments| segments.join("."));
    let value = format!("(|:in|:in\\.0|:out|:out\\.0|:{glob})");
    let item = r"(-?[0-9]{1,3}|(-?[0-9])? ?:( -?[0-9])?|[0-9]?:[0-9]?:[1-9]|\*)";
    let rest = format!(r"{value}(|#[0-9]{{1,3}})(|\[{item}(, ?{item}){{0,2}}\])");
    (path, proptest::string::string_regex(&rest).unwrap()).prop_map(|(path, rest)| path + &rest)
}

/// Indices that parse, for shapes of about these sizes.
fn index_text() -> impl Strategy<Value = String> {
    let item = r"(-?[0-5]|(-?[0-5])?:(-?[0-5])?(:[1-3]?)?|\*)";
    proptest::string::string_regex(&format!(r"({item}, ){{0,2}}({item}|\.\.\.)(, {item}){{0,1}}")).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn no_text_panics(text in any::<String>(), segments in prop::collection::vec(any::<String>(), 0..4)) {
        if let Ok(pattern) = text.parse::<Pattern>() {
            pattern.matches_path(&segments);
            pattern.matches_value(&text);
        }
        let _ = Index::parse(&text);
    }

    #[test]
    fn what_parses_round_trips_and_what_does_not_points_into_the_text(text in noise()) {
        match text.parse::<Pattern>() {
            Ok(pattern) => {
                let printed = pattern.to_string();
                prop_assert_eq!(&printed.parse::<Pattern>().unwrap(), &pattern);
                prop_assert_eq!(printed.parse::<Pattern>().unwrap().to_string(), printed);
            }
            Err(error) => match error.kind() {
                ErrorKind::InvalidPattern { position, reason, remedy, .. } => {
                    prop_assert!(*position <= text.chars().count());
                    prop_assert!(!reason.is_empty() && !remedy.is_empty());
                }
                other => prop_assert!(false, "{:?}", other),
            },
        }
    }

    #[test]
    fn patterns_round_trip(text in pattern_text()) {
        let pattern: Pattern = text.parse().unwrap();
        let printed = pattern.to_string();
        prop_assert_eq!(&printed.parse::<Pattern>().unwrap(), &pattern);
        prop_assert_eq!(printed.parse::<Pattern>().unwrap().to_string(), printed);
    }

    #[test]
    fn escaped_segments_are_literal(segment in any::<String>()) {
        let first: Pattern = format!("{}.a", escape_segment(&segment)).parse().unwrap();
        prop_assert_eq!(first.literal_path().unwrap(), [segment.as_str(), "a"]);
        let last: Pattern = escape_segment(&segment).parse().unwrap();
        prop_assert_eq!(last.literal_path().unwrap(), [segment.as_str()]);
    }

    #[test]
    fn point_names_are_canonical_and_select_their_point(
        segments in prop::collection::vec(prop_oneof![noise(), any::<String>()], 0..4),
        value in "out|in|in\\.[1-9]|out\\.[1-9]|[a-z_]{1,5}(\\.[a-z]{1,5})?(\\.[0-9])?",
    ) {
        let name = point_name(&segments, &value);
        let pattern: Pattern = name.parse().unwrap();
        prop_assert_eq!(pattern.to_string(), name);
        prop_assert!(pattern.is_literal());
        prop_assert!(pattern.matches_path(&segments));
        prop_assert!(pattern.matches_value(&value));
        prop_assert_eq!(pattern.literal_path().unwrap(), segments);
    }

    #[test]
    fn indices_fit_or_are_out_of_range(
        text in index_text(),
        shape in prop::collection::vec(0usize..5, 0..4),
    ) {
        let index = Index::parse(&text).unwrap();
        prop_assert_eq!(&Index::parse(&index.to_string()).unwrap(), &index);
        match index.selected_shape("x", &shape) {
            Ok(selected) => {
                prop_assert!(selected.len() <= shape.len());
                if let Ok(elements) = index.elements("x", &shape) {
                    for element in elements {
                        prop_assert!(!element.has_each());
                        prop_assert!(element.selected_shape("x", &shape).is_ok());
                    }
                }
            }
            Err(error) => {
                let out_of_range = matches!(error.kind(), ErrorKind::IndexOutOfRange { .. });
                prop_assert!(out_of_range, "{}", error);
            }
        }
    }
}
