use std::collections::{BTreeMap, HashMap};

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::{ErrorKind, IntoPatterns};

use crate::models::{input, keys, linear, model, numbers, wave, Test};

/// The keys that a run of the big model caches for these patterns.
fn cached(patterns: impl IntoPatterns) -> hookpoint::Result<Vec<String>> {
    let (_, cache) = model().run_with_cache(patterns, |m| m.forward(&input()))?;
    Ok(cache.keys().map(str::to_string).collect())
}

macro_rules! selects {
    ($($name:ident: $pattern:expr => [$($key:expr),* $(,)?];)*) => { $(
        #[test]
        fn $name() -> Test {
            let expected: &[&str] = &[$($key),*];
            assert_eq!(cached($pattern)?, expected);
            Ok(())
        }
    )* };
}

selects! {
    the_empty_path_is_the_root: "" => [""];
    a_path_is_a_module: "blocks.0.attn" => ["blocks.0.attn"];
    a_path_is_a_parameter: "blocks.1.mlp.scale" => ["blocks.1.mlp.scale"];
    an_option_adds_no_segment: "head" => ["head"];
    a_star_is_one_segment: "blocks.*" => ["blocks.0", "blocks.1"];
    a_star_is_a_part_of_a_segment: "blocks.0.a*n" => ["blocks.0.attn"];
    a_star_does_not_cross_dots: "*" => ["head"];
    two_stars_in_one_path: "blocks.*.*" => [
        "blocks.0.norm", "blocks.0.attn", "blocks.0.mlp", "blocks.1.norm", "blocks.1.attn", "blocks.1.mlp",
    ];
    deep_at_the_start: "**.up" => ["blocks.0.mlp.up", "blocks.1.mlp.up"];
    deep_in_the_middle: "blocks.**.out" => ["blocks.0.attn.out", "blocks.1.attn.out"];
    deep_at_the_end_is_below: "blocks.0.attn.**" => ["blocks.0.attn.qkv", "blocks.0.attn.out"];
    alternatives: "blocks.{0,1}.mlp.{up,scale}" => [
        "blocks.0.mlp.up", "blocks.0.mlp.scale", "blocks.1.mlp.up", "blocks.1.mlp.scale",
    ];
    an_alternative_may_be_empty: "blocks.0.attn{,x}" => ["blocks.0.attn"];
    a_value: "blocks.0.attn:pattern" => ["blocks.0.attn:pattern"];
    a_value_with_a_star: "blocks.0.attn:q*" => ["blocks.0.attn:qkv", "blocks.0.attn:q"];
    values_of_many_modules: "**:hidden" => ["blocks.0.mlp:hidden", "blocks.1.mlp:hidden"];
    alternative_values: "blocks.1.attn:{q,z}" => ["blocks.1.attn:q", "blocks.1.attn:z"];
    the_output_may_be_named: "blocks.0:out" => ["blocks.0"];
    the_input: "blocks.0:in" => ["blocks.0:in"];
    the_input_by_number: "blocks.0:in.0" => ["blocks.0:in"];
    the_input_by_its_name: "blocks.0:x" => ["blocks.0:x"];
    the_value_of_the_root: ":x.0" => [":x.0"];
    a_shadowed_name_is_all_its_versions: ":x" => [":x.0", ":x.1", ":x.2"];
    an_index_is_part_of_the_key: "blocks.0.attn:pattern[:, 1]" => ["blocks.0.attn:pattern[:, 1]"];
    spaces_around_and_inside_the_index: "  head[ 0 ,1:3 ] " => ["head[0, 1:3]"];
    an_ellipsis: "head[..., -1]" => ["head[..., -1]"];
    a_step: "head[:, ::2]" => ["head[:, ::2]"];
    transformer_lens_names: "blocks.0.attn.hook_pattern" => ["blocks.0.attn:pattern"];
    transformer_lens_names_with_stars: "blocks.*.hook_resid_mid" => ["blocks.0:resid_mid", "blocks.1:resid_mid"];
    auto_hook_point_names: "blocks.0.mlp.up.hook_point" => ["blocks.0.mlp.up"];
    the_root_of_auto_hook_point: "hook_point" => [""];
    the_first_call: "head#0" => ["head"];
    modules_come_in_completion_order: ["head", "blocks.0", "blocks.0.mlp"] => ["blocks.0.mlp", "blocks.0", "head"];
}

#[test]
fn everything_is_every_module_and_parameter_and_no_value() -> Test {
    let model = model();
    let mut expected: Vec<String> = model.hook_dict().keys().map(str::to_string).collect();
    let mut found = cached("**")?;
    assert_eq!(found.last().map(String::as_str), Some(""));
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    Ok(())
}

#[test]
fn every_value_of_every_module_can_be_asked_for() -> Test {
    let all = cached("**:*")?;
    for key in ["", ":x.1", "blocks.0:in", "blocks.0.attn:pattern", "blocks.1.mlp:hidden", "head:in", "head"]
    {
        let found = all.iter().any(|found| found == key);
        // The named argument of an annotated module goes by its name.
        assert!(found || (key == "blocks.0:in" && all.iter().any(|k| k == "blocks.0:x")), "{key}: {all:?}");
    }
    Ok(())
}

#[test]
fn a_call_of_a_point_that_is_reached_often() -> Test {
    let hooked = model();
    let x = input();
    let run = hooked.plan().cache(":x.2#1")?.run(|m| m.forward(&x))?;
    let (_, all) = hooked.run_with_cache("blocks.*", |m| m.forward(&x))?;
    assert_eq!(run.cache.calls(":x.2").len(), 1);
    assert_eq!(numbers(&run.cache[":x.2"]), numbers(&all["blocks.1"]));
    assert_eq!(numbers(&run.cache[":x.2#1"]), numbers(&all["blocks.1"]));
    assert!(run.cache.get(":x.2#0").is_none());
    Ok(())
}

#[test]
fn patterns_come_in_every_form() -> Test {
    let one: Pattern = "head".parse()?;
    let (text, texts) = (String::from("head"), vec!["head".to_string(), "blocks.0".to_string()]);
    let slice: &[&str] = &["head"];
    assert_eq!(cached("head")?, ["head"]);
    assert_eq!(cached(text.clone())?, ["head"]);
    assert_eq!(cached(&text)?, ["head"]);
    assert_eq!(cached(["head", "blocks.0"])?, ["blocks.0", "head"]);
    let array: &[&str; 2] = &["head", "blocks.0"];
    assert_eq!(cached(array)?, ["blocks.0", "head"]);
    assert_eq!(cached(slice)?, ["head"]);
    assert_eq!(cached(&texts)?, ["blocks.0", "head"]);
    assert_eq!(cached(texts.as_slice())?, ["blocks.0", "head"]);
    assert_eq!(cached(texts)?, ["blocks.0", "head"]);
    assert_eq!(cached(vec!["head"])?, ["head"]);
    assert_eq!(cached(&one)?, ["head"]);
    assert_eq!(cached([one.clone(), one.clone()])?, ["head"]);
    assert_eq!(cached(vec![one.clone()])?, ["head"]);
    assert_eq!(cached(one)?, ["head"]);
    Ok(())
}

#[derive(AutoHook)]
struct Maps {
    experts: BTreeMap<String, Linear>,
    heads: HashMap<&'static str, Linear>,
    hook_pattern: Linear,
    pair: (Linear, Option<Linear>),
}

#[auto_hook]
impl Module for Maps {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for expert in self.experts.values() {
            x = expert.forward(&x)?;
        }
        for key in ["main", "not main"] {
            if let Some(head) = self.heads.get(key) {
                x = head.forward(&x)?;
            }
        }
        x = self.hook_pattern.forward(&x)?;
        x = self.pair.0.forward(&x)?;
        x.apply(&self.pair.1.as_ref())
    }
}

fn maps() -> Hooked<Maps> {
    let names = ["a.b", "c:d", "e*", "f#1", "g[0]", "{h}", r"i\j", "", "k,l", "m n"];
    Hooked::new(Maps {
        experts: names.into_iter().map(|name| (name.to_string(), linear(1, 2, 2))).collect(),
        heads: HashMap::from([("main", linear(2, 2, 2)), ("not main", linear(3, 2, 2))]),
        hook_pattern: linear(4, 2, 2),
        pair: (linear(5, 2, 2), Some(linear(6, 2, 2))),
    })
}

#[test]
fn odd_keys_are_escaped_and_every_name_selects_itself_alone() -> Test {
    let (hooked, x) = (maps(), wave(1, &[1, 2]));
    let names: Vec<String> = hooked.hook_dict().keys().map(str::to_string).collect();
    assert_eq!(names.len(), 16);
    for name in &names {
        let (_, cache) = hooked.run_with_cache(name, |m| m.forward(&x))?;
        assert_eq!(keys(&cache), [name]);
        assert!(cache.get(name).is_some(), "{name}");
        assert!(hooked.hook_dict().get(name).is_some());
    }
    for expected in
        [r"experts.a\.b", r"experts.c\:d", r"experts.{}", r"experts.m\ n", r"\hook_pattern", "pair.1"]
    {
        assert!(names.iter().any(|name| name == expected), "{expected} is not in {names:?}");
    }
    Ok(())
}

fn nearest(pattern: &str) -> Vec<String> {
    match model().plan().cache(pattern).map(|_| ()) {
        Ok(()) => panic!("`{pattern}` selects something"),
        Err(error) => match error.kind() {
            ErrorKind::NoMatch { pattern: of, nearest } => {
                assert_eq!(of, pattern);
                nearest.clone()
            }
            other => panic!("{other}"),
        },
    }
}

#[test]
fn a_pattern_that_selects_nothing_names_the_nearest_points() {
    assert_eq!(nearest("blocks.0.atn")[0], "blocks.0.attn");
    assert_eq!(nearest("blocks.7.mlp")[..2], ["blocks.0.mlp", "blocks.1.mlp"]);
    assert_eq!(nearest("haed")[0], "head");
    assert_eq!(nearest("blocks.0.mlp.scal")[0], "blocks.0.mlp.scale");
}

#[test]
fn a_value_that_is_not_there_names_the_nearest_values() {
    assert_eq!(nearest("blocks.0.attn:patern")[0], "blocks.0.attn:pattern");
    assert_eq!(nearest("blocks.1.mlp:hiden")[0], "blocks.1.mlp:hidden");
    assert!(
        nearest("head:hidden").iter().any(|name| name.starts_with("head")),
        "{:?}",
        nearest("head:hidden")
    );
}

#[test]
fn hooks_and_patches_are_checked_like_caches() {
    let hooked = model();
    assert!(hooked.plan().hook("nothing", |_, _| Ok(None)).is_err());
    assert!(hooked.plan().patch("nothing", &input()).is_err());
    assert!(hooked.plan().patch_all(&[("nothing", input())]).is_err());
    assert!(hooked.hook_dict().select("nothing").is_err());
}

#[test]
fn one_bad_pattern_among_good_ones_is_an_error() {
    assert!(cached(["head", "nothing"]).is_err());
    assert!(cached(["head", "a["]).is_err());
}

#[test]
fn the_dict_selects_as_a_plan_does() -> Test {
    let dict = model().hook_dict();
    let selected = dict.select(["blocks.*.attn", "head"])?;
    assert_eq!(selected.keys().collect::<Vec<_>>(), ["blocks.0.attn", "blocks.1.attn", "head"]);
    assert_eq!(selected.len(), 3);
    Ok(())
}
