use hookpoint::prelude::*;
use hookpoint::Kind;

use crate::models::{input, model, Mlp, Test};

#[test]
fn names_come_in_the_order_of_the_fields_parents_first() {
    let dict = Mlp::new(1, 4).hook_dict();
    assert_eq!(dict.keys().collect::<Vec<_>>(), ["", "up", "down", "scale"]);
    let kinds: Vec<Kind> = dict.iter().map(|entry| entry.kind()).collect();
    assert_eq!(kinds, [Kind::Module, Kind::Leaf, Kind::Leaf, Kind::Parameter]);
    assert_eq!(Hooked::new(Mlp::new(1, 4)).hook_dict().keys().count(), 4);
}

#[test]
fn entries_are_found_by_any_name_that_a_pattern_allows() {
    let dict = model().hook_dict();
    for name in ["blocks.0.mlp.up", "blocks.0.mlp.up.hook_point", " blocks.0.mlp.up ", "blocks.0.mlp.up:out"]
    {
        assert_eq!(dict.get(name).map(|entry| entry.name()), Some("blocks.0.mlp.up"), "{name}");
    }
    assert!(dict.get("blocks.0.mlp.upp").is_none());
    assert!(dict.get("").is_some_and(|root| root.type_name().ends_with("Model")));
}

#[test]
fn a_dict_prints_as_a_tree() {
    let expected = "\
(root)         module     Mlp
  up           layer      Linear
  down         layer      Linear
  scale        parameter  Tensor
";
    let printed = Mlp::new(1, 4).hook_dict().to_string();
    let squeezed = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(squeezed(&printed), squeezed(expected));
    assert!(printed.lines().skip(1).all(|line| line.starts_with("  ")), "{printed}");
}

#[test]
fn lists_are_shown_though_they_have_no_point() {
    let printed = model().hook_dict().to_string();
    let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
    assert_eq!(lines[1], "  blocks");
    assert!(lines[2].starts_with("    0 "), "{printed}");
    assert_eq!(lines.iter().filter(|line| line.trim() == "blocks").count(), 1);
}

#[test]
fn a_scan_adds_values_behind_their_module() -> Test {
    let scan =
        Hooked::new(Mlp::new(1, 4)).scan(|m| candle_core::Module::forward(m, &input().flatten(0, 1)?))?;
    let names: Vec<&str> = scan.dict.keys().collect();
    assert_eq!(names, ["", ":x", ":hidden", "up", "up:in", "down", "down:in", "scale"]);
    let hidden = scan.dict.get(":hidden").expect("it was seen");
    assert_eq!((hidden.kind(), hidden.shape(), hidden.calls()), (Kind::Value, Some(&[6, 8][..]), 1));
    assert_eq!(hidden.dtype(), Some(candle_core::DType::F32));
    Ok(())
}
