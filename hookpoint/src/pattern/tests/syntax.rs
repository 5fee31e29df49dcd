//! What parses, how it prints, and what is said when it does not parse.

use crate::error::ErrorKind;
use crate::pattern::{escape_segment, point_name, Pattern};

/// `name: text => canonical text`.
macro_rules! prints {
    ($($name:ident: $text:expr => $canonical:expr;)*) => {$(
        #[test]
        fn $name() {
            let pattern: Pattern = $text.parse().unwrap();
            assert_eq!(pattern.to_string(), $canonical);
            assert_eq!(pattern.to_string().parse::<Pattern>().unwrap(), pattern);
        }
    )*};
}

/// `name: text => position, part of the reason, part of the remedy`.
macro_rules! fails {
    ($($name:ident: $text:expr => $position:expr, $reason:expr, $remedy:expr;)*) => {$(
        #[test]
        fn $name() {
            let error = $text.parse::<Pattern>().unwrap_err();
            let ErrorKind::InvalidPattern { pattern, position, reason, remedy } = error.kind() else {
                panic!("{error:?}")
            };
            assert_eq!(pattern, $text);
            assert_eq!(*position, $position, "{error}");
            assert!(reason.contains($reason), "{error}");
            assert!(remedy.contains($remedy), "{error}");
        }
    )*};
}

prints! {
    root: "" => "";
    root_of_spaces: "   " => "";
    one_segment: "a" => "a";
    segments: "blocks.0.attn" => "blocks.0.attn";
    surrounding_spaces: "  a.b\t" => "a.b";
    escaped_space_at_the_end: r"a\ " => r"a\ ";
    escaped_space_and_more_spaces: "a\\    " => "a\\ ";
    escaped_backslash_before_spaces: r"a\\  " => r"a\\";
    star: "*" => "*";
    star_inside: "h*d" => "h*d";
    deep: "**" => "**";
    deep_in_the_middle: "a.**.b" => "a.**.b";
    deep_twice_is_deep: "a.**.**.b" => "a.**.b";
    alternatives: "blocks.{0,5}.mlp:in" => "blocks.{0,5}.mlp:in";
    alternatives_with_star: "{a*,b}c" => "{a*,b}c";
    alternative_may_be_empty: "attn{,_out}" => "attn{,_out}";
    single_alternative_is_no_alternative: "a{b}c" => "abc";
    single_star_alternative: "*{*}" => "*";
    empty_key: "a.{}.b" => "a.{}.b";
    empty_text_inside: "a{}b" => "ab";
    escapes: r"a\.b\:c\#\[\]\{\}\,\*\\" => r"a\.b\:c\#\[\]\{\}\,\*\\";
    needless_escapes: r"\a\b" => "ab";
    escaped_deep: r"\*\*" => r"\*\*";
    escape_in_alternatives: r"{a\,b,c\.d}" => r"{a\,b,c\.d}";
    unicode: "größe.层" => "größe.层";
    value: "a:in" => "a:in";
    value_of_the_root: ":in" => ":in";
    value_out_is_the_default: "a:out" => "a";
    value_out_0_is_out: "a:out.0" => "a";
    value_in_0_is_in: "a:in.0" => "a:in";
    value_of_a_method: "a:encode.hidden" => "a:encode.hidden";
    value_glob: "a:{q,k}_*" => "a:{q,k}_*";
    value_escaped_dot: r"a:b\.c" => "a:b.c";
    call: "a#3" => "a#3";
    call_of_the_root: "#0" => "#0";
    call_with_zeros: "a#007" => "a#7";
    everything: "a.*:in.1#2[:,-1]" => "a.*:in.1#2[:, -1]";
    index_of_the_root: "[0]" => "[0]";
    index_spaces: "a[ 0 , 1 : 2 ,...]" => "a[0, 1:2, ...]";
    index_open_ends: "a[1:, :2, :]" => "a[1:, :2, :]";
    index_steps: "a[::2, 1::3, :4:2, 1:9:3]" => "a[::2, 1::3, :4:2, 1:9:3]";
    index_step_1_is_none: "a[0:5:1, ::1, 1::]" => "a[0:5, :, 1:]";
    index_each: "a[*, *]" => "a[*, *]";
    index_minus_zero: "a[-0]" => "a[0]";
    index_smallest: "a[-9223372036854775808]" => "a[-9223372036854775808]";

    peer_point: "fc1.hook_point" => "fc1";
    peer_root: "hook_point" => "";
    peer_point_with_value: "fc1.hook_point:in" => "fc1:in";
    peer_point_with_index: "fc1.hook_point#1[0]" => "fc1#1[0]";
    peer_value: "blocks.0.attn.hook_pattern" => "blocks.0.attn:pattern";
    peer_value_of_the_root: "hook_embed" => ":embed";
    peer_value_at_any_depth: "**.hook_pattern" => "**:pattern";
    peer_value_with_index: "blocks.0.hook_resid_pre[:, -1]" => "blocks.0:resid_pre[:, -1]";
    peer_value_alternatives: "blocks.0.attn.hook_{q,k}" => "blocks.0.attn:{q,k}";
    peer_value_any: "a.hook_*" => "a:*";
    peer_value_out: "a.hook_out" => "a";
    peer_value_in: "a.hook_in" => "a:in";
    peer_name_before_the_end: "a.hook_x.b" => "a.hook_x.b";
    peer_name_with_value: "a.hook_x:in" => r"a.\hook_x:in";
    peer_name_with_value_out: "a.hook_x:out" => r"a.\hook_x";
    peer_name_escaped: r"a.\hook_x" => r"a.\hook_x";
    peer_name_escaped_later: r"a.hook\_x" => r"a.\hook_x";
    peer_name_in_braces: "a.{hook_x}" => r"a.\hook_x";
    peer_name_in_alternatives: "a.{hook_x,b}" => "a.{hook_x,b}";
    peer_point_escaped: r"\hook_point" => r"\hook_point";
    peer_point_twice: "a.hook_point.hook_point" => r"a.\hook_point";
    peer_prefix_alone: "a.hook_" => r"a.\hook_";
    peer_glob_escaped: r"a.\hook_*" => r"a.\hook_*";
}

fails! {
    empty_segment: "a..b" => 2, "segment is missing", "remove the extra `.`";
    leading_dot: ".a" => 0, "segment is missing", "the root is the empty path";
    trailing_dot: "a." => 2, "segment is missing", "remove";
    dot_before_value: "a.:in" => 2, "segment is missing", "remove";
    dot_before_peer_name: ".hook_point" => 0, "segment is missing", "remove";
    deep_glued: "a**" => 1, "`**`", "segment of its own";
    deep_glued_in_front: "**a" => 0, "`**`", "segment of its own";
    three_stars: "***" => 0, "`**`", "segment of its own";
    deep_in_braces: "{a,**}" => 3, "`**`", "`*` is enough";
    deep_in_value: "a:**" => 2, "`**`", "`*` is enough";
    nested_braces: "{a,{b,c}}" => 3, "braces inside of braces", "one pair";
    open_brace: "a.{b,c" => 2, "not closed", r"\{";
    stray_closing_brace: "a}" => 1, "without `{`", r"\}";
    dot_in_braces: "{a.b,c}" => 2, "inside of braces", "two patterns";
    colon_in_braces: "{a:in,b}" => 2, "inside of braces", "close the braces";
    comma: "a,b" => 1, "outside of braces", "{a,b}";
    space: "a b" => 1, "space", "remove it";
    space_in_braces: "{a, b}" => 3, "space", "remove it";
    space_before_index: "a [0]" => 1, "space", "remove it";
    space_in_value: "a: in" => 2, "space", "remove it";
    trailing_backslash: "a\\" => 1, "nothing follows", r"\\";
    stray_closing_bracket: "a]" => 1, "without `[`", r"\]";
    no_value: "a:" => 2, "no value", "`:in`";
    no_value_before_index: "a:[0]" => 2, "no value", "`:in`";
    empty_value: "a:{}" => 2, "no value", "`:in`";
    two_values: "a:in:out" => 4, "second `:`", "one value";
    no_call: "a#" => 2, "no call number", "#0";
    word_as_call: "a#x" => 2, "no call number", "#0";
    negative_call: "a#-1" => 2, "no call number", "from 0";
    huge_call: "a#99999999999999999999999" => 2, "too large", "smaller";
    value_after_call: "a#1:in" => 3, "cannot stand here", "path:value#call[index]";
    value_after_index: "a[0]:in" => 4, "cannot stand here", "path:value#call[index]";
    call_after_index: "a[0]#1" => 4, "cannot stand here", "path:value#call[index]";
    path_after_index: "a[0].b" => 4, "cannot stand here", "path:value#call[index]";
    two_indices: "a[0][1]" => 4, "second index", "[0, 1]";
    open_index: "a[0" => 1, "not closed", "]";
    empty_index: "a[]" => 2, "empty", "[:]";
    blank_index: "a[  ]" => 2, "empty", "[:]";
    missing_item: "a[0,,1]" => 4, "item is missing", "int";
    trailing_comma: "a[0,]" => 4, "item is missing", "int";
    rust_range: "a[0..5]" => 2, "not a range", "`a:b`";
    rust_full_range: "a[..]" => 2, "not a range", "`a:b`";
    rust_range_from: "a[:, ..3]" => 5, "not a range", "`a:b`";
    two_ellipses: "a[...,0,...]" => 8, "second `...`", "one `...`";
    word_in_index: "a[:, x]" => 5, "not an index", "a:b:step";
    float_in_index: "a[0.5]" => 2, "not an index", "int";
    plus_in_index: "a[+1]" => 2, "not an index", "int";
    deep_in_index: "a[**]" => 2, "not an index", "`*`";
    two_numbers: "a[1 2]" => 2, "not an index", "commas";
    lone_minus: "a[-]" => 2, "not an index", "int";
    word_in_range: "a[0: x]" => 5, "not an index", "int";
    zero_step: "a[0:5:0]" => 6, "positive", "1 or more";
    negative_step: "a[::-1]" => 4, "positive", "1 or more";
    four_bounds: "a[1:2:3:4]" => 7, "too many", "a:b:step";
    huge_int: "a[99999999999999999999]" => 2, "too large", "dimension";
    huge_bound: "a[0:-99999999999999999999]" => 4, "too large", "dimension";
    position_counts_characters: "größe..b" => 6, "segment is missing", "remove";
    position_counts_leading_spaces: "  a..b" => 4, "segment is missing", "remove";
    peer_name_of_nothing: "a.hook_{}" => 2, "without a name", "name";
}

#[test]
fn the_message_points_at_the_place() {
    let message = "a..b".parse::<Pattern>().unwrap_err().to_string();
    assert!(message.contains("\n  a..b\n    ^\n"), "{message}");
}

#[test]
fn segments_are_escaped_only_where_needed() {
    assert!(matches!(escape_segment("c_proj"), std::borrow::Cow::Borrowed("c_proj")));
    assert_eq!(escape_segment(""), "{}");
    assert_eq!(escape_segment("a b[0]"), r"a\ b\[0\]");
    assert_eq!(escape_segment("hook_point"), r"\hook_point");
}

#[test]
fn point_names() {
    assert_eq!(point_name::<&str>(&[], "out"), "");
    assert_eq!(point_name(&["a", "b"], "out"), "a.b");
    assert_eq!(point_name(&["a", "b"], "encode.hidden"), "a.b:encode.hidden");
    assert_eq!(point_name(&["a.b".to_string(), "".to_string()], "in.1"), r"a\.b.{}:in.1");
    assert_eq!(point_name(&["hook_a", "hook_b"], "out"), r"hook_a.\hook_b");
    assert_eq!(point_name(&["hook_point"], "in"), r"\hook_point:in");
}

#[test]
fn parts_of_a_pattern() {
    let pattern: Pattern = r"a.b\.c:in.1#2[:, -1]".parse().unwrap();
    assert_eq!(pattern.literal_path().unwrap(), ["a", "b.c"]);
    assert_eq!(pattern.value(), Some("in.1"));
    assert_eq!(pattern.call(), Some(2));
    assert_eq!(pattern.index().unwrap().to_string(), ":, -1");
    assert_eq!(pattern.without_index().to_string(), r"a.b\.c:in.1#2");
    assert_eq!(pattern.without_index().without_call().to_string(), r"a.b\.c:in.1");
    assert_eq!("".parse::<Pattern>().unwrap().literal_path().unwrap(), Vec::<String>::new());
}

#[test]
fn only_patterns_without_choice_are_literal() {
    for text in ["", "a", "a.0:in", "a{b}", "a[0, 1:2, ...]", r"\*", "a#1", "a.hook_x"] {
        assert!(text.parse::<Pattern>().unwrap().is_literal(), "{text}");
    }
    for text in ["*", "a.**", "{a,b}", "a:*", "a:{q,k}", "a[*]", "a.hook_*"] {
        assert!(!text.parse::<Pattern>().unwrap().is_literal(), "{text}");
    }
}
