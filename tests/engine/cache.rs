use candle_core::{DType, Module, Result, Tensor};
use hookpoint::prelude::*;
use hookpoint::{CacheOptions, ErrorKind};

use crate::models::{
    bits, device, full, input, keys, model, numbers, wave, zeros, Counter, Model, Test, Times,
};

fn everything() -> ActivationCache {
    model().run_with_cache("**", |m| m.forward(&input())).unwrap().1
}

#[test]
fn reading_does_not_change_the_result() -> Test {
    let (hooked, x) = (model(), input());
    let plain = hooked.forward(&x)?;
    for patterns in ["**", "**:*", "head"] {
        let (output, _) = hooked.run_with_cache(patterns, |m| m.forward(&x))?;
        assert_eq!(bits(&output), bits(&plain));
    }
    Ok(())
}

#[test]
fn what_is_cached_is_what_the_model_computed() -> Test {
    let (hooked, x) = (model(), input());
    let (output, cache) = hooked.run_with_cache("**", |m| m.forward(&x))?;
    assert_eq!(bits(&cache[""]), bits(&output));
    assert_eq!(bits(&cache["head"]), bits(&output));
    assert_eq!(bits(&hooked.blocks[0].forward(&x)?), bits(&cache["blocks.0"]));
    let head = hooked.head.as_ref().unwrap();
    assert_eq!(bits(&head.forward(&cache["blocks.1"])?), bits(&output));
    Ok(())
}

#[test]
fn a_part_can_be_asked_for_of_what_was_cached_in_full() -> Test {
    let cache = everything();
    let whole = &cache["blocks.0"];
    assert_eq!(bits(&cache["blocks.0[:, -1]"]), bits(&whole.narrow(1, 2, 1)?.squeeze(1)?.contiguous()?));
    assert_eq!(cache["blocks.0[:, -1]"].dims(), [2, 4]);
    assert_eq!(cache["blocks.0[0, ::2, 1:3]"].dims(), [2, 2]);
    // Asked for twice, it is made once.
    assert!(std::ptr::eq(&cache["blocks.0[0]"], &cache["blocks.0[0]"]));
    Ok(())
}

#[test]
fn the_names_of_peers_find_the_same_entries() -> Test {
    let (_, cache) =
        model().run_with_cache(["blocks.0.attn:pattern", "head", ""], |m| m.forward(&input()))?;
    assert_eq!(bits(&cache["blocks.0.attn.hook_pattern"]), bits(&cache["blocks.0.attn:pattern"]));
    assert_eq!(bits(&cache["head.hook_point"]), bits(&cache["head"]));
    assert_eq!(bits(&cache["hook_point"]), bits(&cache[""]));
    Ok(())
}

#[test]
fn a_name_that_selects_one_entry_is_enough() {
    let cache = everything();
    assert!(cache.get("h*d").is_some());
    assert!(cache.get("**.0.mlp").is_some());
}

#[test]
fn a_missing_name_says_what_is_there() {
    let cache = everything();
    assert!(cache.get("blocks.0.atn").is_none());
    let error = cache.try_get("blocks.0.atn").unwrap_err();
    match error.kind() {
        ErrorKind::MissingKey { key, nearest } => {
            assert_eq!(key, "blocks.0.atn");
            assert_eq!(nearest[0], "blocks.0.attn");
        }
        other => panic!("{other}"),
    }
    assert!(cache.calls("blocks.0.atn").is_empty());
}

#[test]
fn a_name_for_several_entries_is_ambiguous() {
    let cache = everything();
    assert!(cache.get("blocks.*").is_none());
    match cache.try_get("blocks.*").unwrap_err().kind() {
        ErrorKind::Ambiguous { candidates, .. } => assert_eq!(candidates, &["blocks.0", "blocks.1"]),
        other => panic!("{other}"),
    }
    match cache.try_get("head[*]").unwrap_err().kind() {
        ErrorKind::Ambiguous { candidates, .. } => assert_eq!(candidates, &["head[0]", "head[1]"]),
        other => panic!("{other}"),
    }
}

#[test]
fn a_part_that_does_not_exist_is_an_error() {
    let cache = everything();
    let error = cache.try_get("head[7]").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { point, .. } if point == "head"), "{error}");
    assert!(cache.get("head[7]").is_none());
    assert!(matches!(cache.try_get("head[").unwrap_err().kind(), ErrorKind::InvalidPattern { .. }));
}

#[test]
#[should_panic(expected = "did you mean `head`?")]
fn indexing_with_a_missing_name_panics_with_the_nearest_names() {
    let _ = &everything()["haed"];
}

#[derive(AutoHook)]
struct Twice {
    layer: Times,
}

#[auto_hook]
impl Module for Twice {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(&self.layer.forward(x)?)
    }
}

fn twice() -> Hooked<Twice> {
    Hooked::new(Twice { layer: Times(2., Counter::default()) })
}

#[test]
fn every_call_is_kept_and_the_last_one_is_the_value() -> Test {
    let (_, cache) = twice().run_with_cache("**", |m| m.forward(&full(1., &[2])))?;
    assert_eq!(keys(&cache), ["layer", ""]);
    let calls: Vec<Vec<f32>> = cache.calls("layer").into_iter().map(numbers).collect();
    assert_eq!(calls, [[2., 2.], [4., 4.]]);
    assert_eq!(numbers(&cache["layer"]), [4., 4.]);
    assert_eq!(numbers(&cache["layer#0"]), [2., 2.]);
    assert_eq!(numbers(&cache["layer#1"]), [4., 4.]);
    assert!(cache.get("layer#2").is_none());
    assert_eq!(numbers(cache.calls("layer#1")[0]), [4., 4.]);
    assert_eq!(cache.calls("layer#1").len(), 1);
    Ok(())
}

#[test]
fn parts_of_every_call() -> Test {
    let (_, whole) = twice().run_with_cache("layer", |m| m.forward(&wave(1, &[2])))?;
    let (_, parts) = twice().run_with_cache("layer[0]", |m| m.forward(&wave(1, &[2])))?;
    for cache in [&whole, &parts] {
        let calls: Vec<f32> = cache.calls("layer[0]").iter().map(|t| t.to_scalar().unwrap()).collect();
        let first = numbers(&wave(1, &[2]))[0];
        assert_eq!(calls, [2. * first, 4. * first]);
        assert_eq!(cache["layer#0[0]"].to_scalar::<f32>()?, 2. * first);
        assert_eq!(cache["layer[0]"].to_scalar::<f32>()?, 4. * first);
    }
    Ok(())
}

#[test]
fn iterating_gives_names_and_tensors_in_order() -> Test {
    let (_, cache) = twice().run_with_cache("**", |m| m.forward(&full(1., &[1])))?;
    let all: Vec<(&str, Vec<f32>)> = cache.iter().map(|(name, tensor)| (name, numbers(tensor))).collect();
    assert_eq!(all, [("layer", vec![4.]), ("", vec![4.])]);
    assert_eq!(cache.len(), 2);
    assert!(!cache.is_empty());
    assert!(ActivationCache::new().is_empty());
    Ok(())
}

#[test]
fn a_selection_is_a_cache() -> Test {
    let cache = everything();
    let selected = cache.select(["blocks.*.attn", "head"])?;
    assert_eq!(keys(&selected), ["blocks.0.attn", "blocks.1.attn", "head"]);
    assert!(matches!(cache.select("nothing").unwrap_err().kind(), ErrorKind::NoMatch { .. }));
    let parts = cache.select("blocks.*[0, *]")?;
    assert_eq!(parts.len(), 6);
    assert_eq!(bits(&parts["blocks.1[0, 2]"]), bits(&cache["blocks.1[0, 2]"]));
    Ok(())
}

#[test]
fn a_selection_of_a_call_is_that_call() -> Test {
    let (_, cache) = twice().run_with_cache("**", |m| m.forward(&full(1., &[1])))?;
    let first = cache.select("layer#0")?;
    assert_eq!(first.calls("layer").len(), 1);
    assert_eq!(numbers(&first["layer"]), [2.]);
    assert_eq!(numbers(&first["layer#0"]), [2.]);
    Ok(())
}

#[test]
fn sums_and_differences_are_over_common_names() -> Test {
    let (hooked, x) = (model(), input());
    let (_, a) = hooked.run_with_cache(["blocks.*", "head"], |m| m.forward(&x))?;
    let (_, b) = hooked.run_with_cache(["blocks.1", "head", ""], |m| m.forward(&(&x * 2.)?))?;
    let difference = (&b - &a)?;
    assert_eq!(keys(&difference), ["blocks.1", "head"]);
    assert_eq!(bits(&difference["head"]), bits(&(&b["head"] - &a["head"])?));
    let sum = (&a + &b)?;
    assert_eq!(bits(&sum["blocks.1"]), bits(&(&a["blocks.1"] + &b["blocks.1"])?));
    Ok(())
}

#[test]
fn sums_go_call_by_call() -> Test {
    let hooked = twice();
    let (_, a) = hooked.run_with_cache("layer", |m| m.forward(&full(1., &[1])))?;
    let (_, b) = hooked.run_with_cache("layer#1", |m| m.forward(&full(10., &[1])))?;
    let sum = (&a + &b)?;
    assert_eq!(sum.calls("layer").len(), 1);
    assert_eq!(numbers(&sum["layer#1"]), [44.]);
    Ok(())
}

#[test]
fn caches_of_different_inputs_do_not_add_up() -> Test {
    let hooked = model();
    let (_, a) = hooked.run_with_cache("head", |m| m.forward(&input()))?;
    let (_, b) = hooked.run_with_cache("head", |m| m.forward(&wave(1, &[1, 3, 4])))?;
    let error = (&a - &b).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { point, .. } if point == "head"), "{error}");
    Ok(())
}

#[test]
fn an_index_is_taken_of_every_tensor() -> Test {
    let cache = everything().select(["blocks.*", "head"])?;
    let last = cache.index(":, -1")?;
    assert_eq!(keys(&last), ["blocks.0[:, -1]", "blocks.1[:, -1]", "head[:, -1]"]);
    assert_eq!(bits(&last["head[:, -1]"]), bits(&cache["head[:, -1]"]));
    assert_eq!(cache.index("*")?.len(), 6);
    assert!(cache.index("9").is_err());
    assert!(cache.index("a").is_err());
    Ok(())
}

#[test]
fn an_index_keeps_the_numbers_of_the_calls() -> Test {
    let (_, cache) = twice().run_with_cache("layer", |m| m.forward(&full(1., &[1])))?;
    let second = cache.select("layer#1")?.index("0")?;
    assert_eq!(second["layer#1[0]"].to_scalar::<f32>()?, 4.);
    assert!(second.get("layer#0[0]").is_none());
    Ok(())
}

#[test]
fn tensors_of_one_shape_stack() -> Test {
    let cache = everything();
    let stacked = cache.stack("blocks.*")?;
    assert_eq!(stacked.dims(), [2, 2, 3, 4]);
    assert_eq!(bits(&stacked.get(1)?), bits(&cache["blocks.1"]));
    assert_eq!(cache.stack("blocks.*[:, -1]")?.dims(), [2, 2, 4]);
    let error = cache.stack(["blocks.0", "head"]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { what, .. } if what == "`head`"), "{error}");
    assert!(cache.stack("nothing").is_err());
    Ok(())
}

#[test]
fn dtypes_and_devices_change_for_all() -> Test {
    let mut cache = everything();
    let ids = Tensor::new(&[1u32, 2], &device())?;
    cache.insert("ids", ids);
    let half = cache.to_dtype(DType::F16)?;
    assert_eq!(half["head"].dtype(), DType::F16);
    // Token ids are not numbers to be rounded.
    assert_eq!(half["ids"].dtype(), DType::U32);
    assert_eq!(keys(&half), keys(&cache));
    let moved = cache.to_device(&candle_core::Device::Cpu)?;
    assert!(moved["head"].device().is_cpu());
    assert_eq!(bits(&moved["head"]), bits(&cache["head"]));
    Ok(())
}

#[test]
fn bytes_are_counted_once_for_a_tensor_under_two_names() -> Test {
    let (_, cache) = model().run_with_cache("head", |m| m.forward(&input()))?;
    assert_eq!(cache.bytes(), 2 * 3 * 3 * 4);
    // The root gives what its head gave.
    let (_, cache) = model().run_with_cache(["head", ""], |m| m.forward(&input()))?;
    assert_eq!(cache.bytes(), 2 * 3 * 3 * 4);
    assert_eq!(cache.to_dtype(DType::F64)?.select("head")?.bytes(), 2 * 3 * 3 * 8);
    Ok(())
}

#[test]
fn options_say_where_and_how_tensors_are_kept() -> Test {
    let hooked = model();
    let options = CacheOptions::new().dtype(DType::F16).device(&candle_core::Device::Cpu);
    let run = hooked
        .plan()
        .cache(options.clone().at("blocks.*"))?
        .cache("head")?
        .cache(options.at("blocks.0[:, -1]"))?
        .run(|m| m.forward(&input()))?;
    assert_eq!(run.cache["blocks.1"].dtype(), DType::F16);
    assert_eq!(run.cache["blocks.0[:, -1]"].dtype(), DType::F16);
    assert_eq!(run.cache["head"].dtype(), DType::F32);
    assert_eq!(run.output.dtype(), DType::F32);
    Ok(())
}

#[test]
fn a_point_that_two_requests_select_is_kept_once_and_both_have_fired() -> Test {
    let hooked = model();
    let run = hooked.plan().cache("head")?.cache(["h*", "**.head"])?.run(|m| m.forward(&input()))?;
    assert_eq!(keys(&run.cache), ["head"]);
    assert_eq!(run.cache.calls("head").len(), 1);
    let fired: Vec<(&str, usize)> = run.fired().collect();
    assert_eq!(fired, [("cache(\"head\")", 1), ("cache(\"h*\")", 1), ("cache(\"**.head\")", 1)]);
    Ok(())
}

#[test]
fn one_value_can_be_asked_for_under_all_its_names() -> Test {
    let hooked = model();
    let run = hooked
        .plan()
        .hook("blocks.0:in", |ctx, _| {
            assert_eq!(ctx.path(), "blocks.0:in");
            Ok(None)
        })?
        .cache("blocks.0:x")?
        .cache("blocks.0:in")?
        .run(|m| m.forward(&input()))?;
    assert_eq!(keys(&run.cache), ["blocks.0:x", "blocks.0:in"]);
    assert_eq!(bits(&run.cache["blocks.0:x"]), bits(&input()));
    Ok(())
}

#[test]
fn a_plan_is_good_for_many_runs() -> Test {
    let hooked = model();
    let plan = hooked.plan().cache("head")?;
    let (a, b) = (plan.run(|m| m.forward(&input()))?, plan.run(|m| m.forward(&zeros(&[1, 1, 4])))?);
    assert_eq!(a.cache["head"].dims(), [2, 3, 3]);
    assert_eq!(b.cache["head"].dims(), [1, 1, 3]);
    Ok(())
}

#[test]
fn caches_can_be_built_by_hand() {
    let mut cache: ActivationCache = [("a", zeros(&[1])), ("b.c", full(2., &[1]))].into_iter().collect();
    cache.insert("a", full(1., &[1]));
    assert_eq!(keys(&cache), ["a", "b.c"]);
    assert_eq!(cache.calls("a").len(), 2);
    assert_eq!(numbers(&cache["a#0"]), [0.]);
    assert_eq!(numbers(&cache["b.c[0]"]), [2.]);
    cache.insert("b.c", full(3., &[1]));
    assert_eq!(numbers(&cache["b.c[0]"]), [3.]);
}

#[test]
fn what_was_worked_out_for_one_run_serves_the_next_and_nothing_else() -> Test {
    let (mut hooked, x) = (model(), input());
    let all = |hooked: &Hooked<Model>, x: &Tensor| hooked.run_with_cache("**", |m| m.forward(x));
    let (_, first) = all(&hooked, &x)?;
    let (_, again) = all(&hooked, &x)?;
    assert_eq!(keys(&first), keys(&again));
    assert_eq!(bits(&first["blocks.1"]), bits(&again["blocks.1"]));

    // Another input of another shape, other patterns, a run inside a run, a run that fails.
    let (_, longer) = all(&hooked, &wave(3, &[2, 5, 4]))?;
    assert_eq!(longer["blocks.1"].dims(), [2, 5, 4]);
    let (_, head) = hooked.run_with_cache("head", |m| m.forward(&x))?;
    assert_eq!(keys(&head), ["head"]);
    let (_, nested) = hooked.run_with_cache("**", |m| {
        assert_eq!(keys(&all(&hooked, &x)?.1), keys(&first));
        m.forward(&x).map_err(hookpoint::Error::from)
    })?;
    assert_eq!(keys(&nested), keys(&first));
    assert!(all(&hooked, &wave(3, &[2, 5, 3])).is_err());
    assert_eq!(bits(&all(&hooked, &x)?.1["blocks.1"]), bits(&first["blocks.1"]));

    // A hook that was registered in between, and a model that was changed.
    let double = hooked.manager().register("double", "blocks.0").hook(|_, x| Ok(Some((x * 2.)?)))?;
    assert_ne!(bits(&all(&hooked, &x)?.1["blocks.0"]), bits(&first["blocks.0"]));
    double.deactivate()?;
    assert_eq!(bits(&all(&hooked, &x)?.1["blocks.0"]), bits(&first["blocks.0"]));
    hooked.blocks.pop();
    assert!(!keys(&all(&hooked, &x)?.1).contains(&"blocks.1"));
    Ok(())
}
