use hookpoint_annotate::annotate_source;

/// Each pair of files is checked as it is and with `\r\n`; the result must not change again.
fn check(before: &str, after: &str) {
    assert!(!before.contains('\r'), "golden files are kept with \\n");
    for newline in ["\n", "\r\n"] {
        let (before, after) = (before.replace('\n', newline), after.replace('\n', newline));
        let annotated = annotate_source(&before).unwrap();
        assert_eq!(annotated.text, after);
        let again = annotate_source(&annotated.text).unwrap();
        assert_eq!(again.text, after);
        assert!(again.counts.is_zero());
    }
}

macro_rules! golden {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            check(
                include_str!(concat!("golden/", stringify!($name), ".before.rs")),
                include_str!(concat!("golden/", stringify!($name), ".after.rs")),
            );
        }
    )*};
}

golden! { comments_and_odd_formatting nested_modules enums_generics_and_lifetimes partly_annotated names_in_use }
