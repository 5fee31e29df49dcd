//! What a pattern selects.

use crate::pattern::Pattern;

fn path_matches(pattern: &str, path: &str) -> bool {
    let segments: Vec<&str> = path.split('.').filter(|segment| !segment.is_empty()).collect();
    pattern.parse::<Pattern>().unwrap().matches_path(&segments)
}

fn value_matches(pattern: &str, name: &str) -> bool {
    pattern.parse::<Pattern>().unwrap().matches_value(name)
}

/// `name: pattern, subject;` lines under the function that compares them and what it should say.
macro_rules! table {
    ($table:ident, $compare:ident is $expected:literal: $($name:ident: $pattern:expr, $subject:expr;)*) => {
        mod $table {
            $(
                #[test]
                fn $name() {
                    let found = super::$compare($pattern, $subject);
                    assert_eq!(found, $expected, "`{}` and `{}`", $pattern, $subject);
                }
            )*
        }
    };
}

table! { path_selected, path_matches is true:
    root: "", "";
    root_value: ":in", "";
    root_index: "[0]", "";
    name: "a.b", "a.b";
    star: "blocks.*.attn", "blocks.11.attn";
    star_first: "*.attn", "x.attn";
    star_inside: "h*d", "head";
    star_inside_nothing: "h*d", "hd";
    star_prefix: "h*", "head";
    star_suffix: "*d", "head";
    stars: "*e*d*", "head";
    stars_overlap: "*aba*", "aababb";
    alternatives_first: "{a,b}.x", "a.x";
    alternatives_second: "{a,b}.x", "b.x";
    alternatives_long: "blocks.{0,11}", "blocks.11";
    alternatives_inside: "c_{attn,proj}", "c_proj";
    alternatives_star: "{a*,b}c", "axxc";
    alternatives_longer_later: "{a,ab}c", "abc";
    alternatives_shorter_later: "{ab,a}bc", "abc";
    alternatives_empty: "attn{,_out}", "attn";
    alternatives_in_a_row: "{a,b}{c,d}", "bd";
    deep_is_everything: "**", "a.b.c";
    deep_is_the_root: "**", "";
    deep_twice_is_the_root: "**.**", "";
    deep_first_at_top: "**.x", "x";
    deep_first_below: "**.x", "a.b.x";
    deep_middle_none: "a.**.b", "a.b";
    deep_middle_one: "a.**.b", "a.x.b";
    deep_middle_many: "a.**.b", "a.b.x.b";
    deep_last_one: "a.**", "a.b";
    deep_last_many: "a.**", "a.b.c";
    deep_around: "**.a.**", "x.a.y";
    deep_then_star: "**.*", "a";
    deep_in_between: "a.**.b.**.c", "a.x.b.b.y.c";
    escaped_star: r"\*", "*";
    unicode_star: "*é", "éé";
    peer_point: "fc1.hook_point", "fc1";
    peer_root: "hook_point", "";
    peer_value: "**.hook_pattern", "blocks.0.attn";
    peer_escaped: r"a.\hook_x", "a.hook_x";
}

table! { path_not_selected, path_matches is false:
    root_is_not_all: "", "a";
    star_is_not_the_root: "*", "";
    star_is_one_segment: "*", "a.b";
    name_is_the_whole_name: "a", "ab";
    name_is_the_whole_path: "a", "a.b";
    name_from_the_top: "b", "a.b";
    case_matters: "A", "a";
    star_keeps_the_end: "h*d", "heads";
    star_needs_the_rest: "ab*ba", "aba";
    alternatives_other: "{a,b}", "c";
    alternatives_both: "{a,b}", "ab";
    alternatives_none: "{a,b}c", "c";
    deep_last_not_itself: "a.**", "a";
    deep_last_not_itself_doubled: "a.**.**", "a";
    deep_last_star_not_itself: "*.**", "a";
    deep_last_not_root: "a.**", "";
    deep_first_needs_the_name: "**.x", "a.b";
    deep_first_whole_name: "**.x", "ax";
    deep_middle_other: "a.**.b", "a.x";
    deep_middle_overlap: "a.**.a", "a";
    deep_then_star_not_root: "**.*", "";
    escaped_star_is_a_star: r"\*", "a";
    star_is_not_half_a_character: "*\u{a9}", "é";
    peer_name_is_no_segment: "a.hook_x", "a.hook_x";
}

table! { value_selected, value_matches is true:
    none_is_out: "a", "out";
    none_is_out_0: "a", "out.0";
    out_is_out: "a:out", "out";
    out_0_is_out: "a:out.0", "out";
    input: "a:in", "in";
    input_0: "a:in.0", "in";
    input_second: "a:in.1", "in.1";
    input_all: "a:in.*", "in";
    input_all_second: "a:in.*", "in.1";
    input_first_of_alternatives: "a:{in.0,x}", "in";
    binding: "a:hidden", "hidden";
    binding_versions: "a:att", "att.0";
    binding_versions_many: "a:att", "att.12";
    binding_version: "a:att.1", "att.1";
    all_out: "a:*", "out";
    all_in: "a:*", "in";
    all_binding: "a:*", "hidden.0";
    all_method_values: "a:*", "encode.hidden.1";
    glob: "a:h*n", "hidden";
    glob_versions: "a:h*n", "hidden.0";
    glob_crosses_dots: "a:e*n", "encode.hidden";
    method: "a:encode", "encode";
    method_version: "a:encode", "encode.0";
    method_value: "a:encode.att", "encode.att";
    method_value_versions: "a:encode.att", "encode.att.0";
    method_values: "a:encode.*", "encode.att";
    alternatives: "a:{q,k}", "k";
    alternatives_with_dots: "a:{in.1,out.1}", "out.1";
    alternatives_versions: "a:{q,k}", "k.1";
    alternatives_out: "a:{in,out}", "out";
    peer: "a.hook_pattern", "pattern";
    peer_any: "a.hook_*", "in";
    peer_alternatives: "a.hook_{q,k}", "q";
    peer_point_is_out: "a.hook_point", "out";
}

table! { value_not_selected, value_matches is false:
    none_is_not_in: "a", "in";
    none_is_not_out_1: "a", "out.1";
    none_is_no_binding: "a", "hidden";
    out_is_not_out_1: "a:out", "out.1";
    input_is_not_the_second: "a:in", "in.1";
    input_is_not_out: "a:in", "out";
    input_second_is_not_the_first: "a:in.1", "in";
    glob_is_no_further_input: "a:*n", "in.1";
    binding_is_the_whole_name: "a:att", "attn";
    binding_version_is_one: "a:att.1", "att.0";
    binding_version_is_not_the_name: "a:att.0", "att";
    binding_is_not_the_method_value: "a:hidden", "encode.hidden";
    method_is_not_its_values: "a:encode", "encode.hidden";
    method_values_are_not_the_method: "a:encode.*", "encode";
    version_is_a_number: "a:att", "att.x";
    version_is_not_empty: "a:att", "att.";
    version_of_version: "a:att", "att.0.1";
    alternatives_other: "a:{q,k}", "v";
}

#[test]
fn many_stars_are_not_slow() {
    let text = "a".repeat(2_000);
    let pattern: Pattern = format!("{}b", "*a".repeat(200)).parse().unwrap();
    assert!(!pattern.matches_path(&[text]));
    let pattern: Pattern = format!("{}.x", "**.a.".repeat(200).trim_end_matches('.')).parse().unwrap();
    assert!(!pattern.matches_path(&vec!["a"; 1_000]));
    let pattern: Pattern = "{a,b}".repeat(200).parse().unwrap();
    assert!(pattern.matches_path(&["ab".repeat(100)]));
}

#[test]
fn paths_may_be_strings() {
    let pattern: Pattern = "a.*".parse().unwrap();
    assert!(pattern.matches_path(&["a".to_string(), "b.c".to_string()]));
}
