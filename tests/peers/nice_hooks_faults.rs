//! What goes wrong in nice_hooks, and does not here.

use std::cell::RefCell;

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::tensors::{bits, full, keys, linear, numbers, wave, zeros, Test};

#[derive(AutoHook)]
struct Twice {
    first: Linear,
    again: Linear,
}

#[auto_hook]
impl Module for Twice {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let once = self.again.forward(&self.first.forward(x)?)?;
        self.again.forward(&once)
    }
}

fn model() -> Hooked<Twice> {
    Hooked::new(Twice { first: linear(1, 10, 10), again: linear(2, 10, 10) })
}

fn x() -> Tensor {
    wave(5, &[2, 10])
}

/// Unknown paths are silent there, wherever they are given.
#[test]
fn an_unknown_path_is_an_error_in_every_place() {
    let hooked = model();
    let none = |_: &HookCtx<'_>, _: &Tensor| Ok(None);
    let errors = [
        hooked.plan().cache("frist").map(drop),
        hooked.plan().hook("frist", none).map(drop),
        hooked.plan().hook("frist:in", none).map(drop),
        hooked.plan().patch("frist", &zeros(&[2, 10])).map(drop),
        hooked.plan().patch_all(&[("frist", zeros(&[2, 10]))]).map(drop),
        hooked.run_with_cache("frist", |m| m.forward(&x())).map(drop),
        hooked.run_with_cache(["first", "frist"], |m| m.forward(&x())).map(drop),
        hooked.run_with_hooks([("frist", none)], |m| m.forward(&x())).map(drop),
        hooked.hook_dict().select("frist").map(drop),
    ];
    for (number, error) in errors.into_iter().enumerate() {
        let error = error.expect_err("it selects nothing");
        let ErrorKind::NoMatch { nearest, .. } = error.kind() else { panic!("{number}: {error}") };
        assert!(nearest[0].starts_with("first"), "{number}: {error}");
    }
}

/// `[0:10:2]` drops the step there.
#[test]
fn a_step_is_a_step() -> Test {
    let hooked = model();
    let (_, cache) = hooked.run_with_cache(["first", "first[:, 0:10:2]"], |m| m.forward(&x()))?;
    let all = cache["first"].to_vec2::<f32>()?;
    let stepped = cache["first[:, 0:10:2]"].to_vec2::<f32>()?;
    for (row, stepped) in all.iter().zip(stepped) {
        assert_eq!(stepped, row.iter().copied().step_by(2).collect::<Vec<_>>());
    }
    let run =
        hooked.plan().patch("first[:, ::3]", &full(7., &[4]))?.cache("first")?.run(|m| m.forward(&x()))?;
    let patched = run.cache["first"].to_vec2::<f32>()?;
    for (row, before) in patched.iter().zip(&all) {
        for (column, (now, before)) in row.iter().zip(before).enumerate() {
            assert_eq!(*now, if column % 3 == 0 { 7. } else { *before });
        }
    }
    Ok(())
}

/// `[0, 1]` with a space and `[...]` become part of the name there, `[]` too.
#[test]
fn spaces_and_ellipses_are_understood_and_an_empty_index_is_an_error() -> Test {
    let hooked = model();
    let (_, cache) = hooked.run_with_cache(["first[0, 1]", "first[..., 3]", "first"], |m| m.forward(&x()))?;
    let all = cache["first"].to_vec2::<f32>()?;
    assert_eq!(cache["first[0, 1]"].to_scalar::<f32>()?, all[0][1]);
    assert_eq!(cache["first[0,1]"].to_scalar::<f32>()?, all[0][1]);
    assert_eq!(cache["first[..., 3]"].to_vec1::<f32>()?, [all[0][3], all[1][3]]);
    for wrong in ["first[]", "first[", "first[0", "first[a]", "first[0,,1]", "first]"] {
        let error = hooked.plan().cache(wrong).map(drop).expect_err(wrong);
        assert!(matches!(error.kind(), ErrorKind::InvalidPattern { .. }), "{wrong}: {error}");
    }
    Ok(())
}

#[derive(AutoHook)]
struct ByKey(std::collections::BTreeMap<String, Linear>);

#[auto_hook]
impl ByKey {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.values().try_fold(x.clone(), |x, layer| layer.forward(&x))
    }
}

/// There is no escape there.
#[test]
fn names_with_the_signs_of_patterns_can_be_written() -> Test {
    let names = ["a.b", "a*", "a[0]", "a:b"];
    let layers = names.iter().enumerate().map(|(n, name)| (name.to_string(), linear(n, 10, 10))).collect();
    let hooked = Hooked::new(ByKey(layers));
    for written in [r"0.a\.b", r"0.a\*", r"0.a\[0\]", r"0.a\:b"] {
        let (_, cache) = hooked.run_with_cache(written, |m| m.forward(&x()))?;
        assert_eq!(keys(&cache), [written]);
    }
    Ok(())
}

/// Whole-output patches are not checked there: a wrong shape broadcasts, or fails far away.
#[test]
fn a_patch_of_another_shape_is_refused() -> Test {
    let hooked = model();
    let before = bits(&hooked.forward(&x())?);
    for dims in [&[10][..], &[1, 10], &[2, 1], &[2, 11], &[3, 10], &[]] {
        let error = hooked.plan().patch("first", &zeros(dims))?.run(|m| m.forward(&x())).unwrap_err();
        let ErrorKind::Shape { point, expected, found, .. } = error.kind() else { panic!("{error}") };
        assert_eq!((point.as_str(), expected.as_slice(), found.as_slice()), ("first", &[2, 10][..], dims));
    }
    assert_eq!(bits(&hooked.forward(&x())?), before);
    Ok(())
}

/// Pre-hooks crash there.
#[test]
fn hooks_on_inputs_work_with_and_without_an_index() -> Test {
    let hooked = model();
    let seen = RefCell::new(Vec::new());
    let plan = hooked
        .plan()
        .hook("first:in", |_, x| {
            seen.borrow_mut().push(x.dims().to_vec());
            Ok(Some((x * 0.)?))
        })?
        .hook("again:in[:, -1]", |_, x| {
            seen.borrow_mut().push(x.dims().to_vec());
            Ok(None)
        })?;
    let run = plan.run(|m| m.forward(&x()))?;
    assert_eq!(*seen.borrow(), [vec![2, 10], vec![2], vec![2]]);
    assert_eq!(bits(&run.output), bits(&hooked.forward(&zeros(&[2, 10]))?));
    Ok(())
}

/// A registration that fails leaves hooks behind there. Here what was asked before the mistake is gone with
/// the plan, and a hook that fails, or panics, in the middle of a run is gone with the run.
#[test]
fn nothing_is_left_after_a_mistake() -> Test {
    let hooked = model();
    let before = bits(&hooked.forward(&x())?);
    let zero = |_: &HookCtx<'_>, x: &Tensor| Ok(Some(x.zeros_like()?));
    assert!(hooked.run_with_hooks([("first", zero), ("frist", zero)], |m| m.forward(&x())).is_err());
    assert_eq!(bits(&hooked.forward(&x())?), before);

    let fails = |_: &HookCtx<'_>, _: &Tensor| Err(hookpoint::Error::msg("enough"));
    assert!(hooked.run_with_hooks([("first", fails)], |m| m.forward(&x())).is_err());
    let panics = |_: &HookCtx<'_>, _: &Tensor| -> hookpoint::Result<Option<Tensor>> { panic!("enough") };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        hooked.run_with_hooks([("first", panics)], |m| m.forward(&x()))
    }));
    assert!(panicked.is_err());
    assert_eq!(bits(&hooked.run(|m| m.forward(&x()))?), before);
    Ok(())
}

/// A module that is called twice keeps the last call only there.
#[test]
fn every_call_of_a_module_is_kept() -> Test {
    let hooked = model();
    let (output, cache) = hooked.run_with_cache("again", |m| m.forward(&x()))?;
    let [first, second] = cache.calls("again")[..] else { panic!("{cache:?}") };
    assert_eq!(bits(first), bits(&hooked.again.forward(&hooked.first.forward(&x())?)?));
    assert_eq!(bits(second), bits(&output));
    assert_eq!(bits(&cache["again#0"]), bits(first));
    assert_eq!(bits(&cache["again"]), bits(second));

    let run = hooked.plan().patch("again#0", &zeros(&[2, 10]))?.run(|m| m.forward(&x()))?;
    assert_eq!(bits(&run.output), bits(&hooked.again.forward(&zeros(&[2, 10]))?));
    let numbered = RefCell::new(Vec::new());
    let note = |ctx: &HookCtx<'_>, _: &Tensor| {
        numbered.borrow_mut().push(ctx.call());
        Ok(None)
    };
    hooked.run_with_hooks([("again", note)], |m| m.forward(&x()))?;
    assert_eq!(*numbered.borrow(), [0, 1]);
    Ok(())
}

/// A cached slice owns its memory and is not touched by what happens later.
#[test]
fn a_cached_value_stays_what_it_was() -> Test {
    let hooked = model();
    let (_, cache) = hooked.run_with_cache("first[0]", |m| m.forward(&x()))?;
    let before = numbers(&cache["first[0]"]);
    let run = hooked.plan().patch("first", &zeros(&[2, 10]))?.run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&cache["first[0]"]), before);
    assert_eq!(cache.bytes(), 40);
    drop(run);
    Ok(())
}
