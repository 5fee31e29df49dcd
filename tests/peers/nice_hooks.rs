//! nice_hooks, feature by feature: its usage page, its README, and what its own tests pin.

use std::cell::RefCell;

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::Kind;

use crate::tensors::{bits, device, full, keys, numbers, wave, zeros, Test};

// Sequential(Linear, Sequential(Linear, Linear, Sequential(Linear)))
#[derive(AutoHook)]
struct Outer(Linear, Middle);

#[derive(AutoHook)]
struct Middle(Linear, Linear, Inner);

#[derive(AutoHook)]
struct Inner(Linear);

#[auto_hook]
impl Module for Outer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.1.forward(&self.0.forward(x)?)
    }
}

#[auto_hook]
impl Module for Middle {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.2.forward(&self.1.forward(&self.0.forward(x)?)?)
    }
}

#[auto_hook]
impl Module for Inner {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

/// A layer that adds up its inputs in every output.
fn adds(input: usize, output: usize) -> Linear {
    Linear::new(full(1., &[output, input]), None)
}

/// 10 wide until the last layer, which gives one number.
fn model() -> Hooked<Outer> {
    Hooked::new(Outer(identity(10), Middle(identity(10), identity(10), Inner(adds(10, 1)))))
}

fn identity(width: usize) -> Linear {
    Linear::new(Tensor::eye(width, candle_core::DType::F32, &device()).unwrap(), None)
}

fn x() -> Tensor {
    wave(1, &[1, 10])
}

// "Registering hooks": a hook by pattern on a model, which is told the path.

#[test]
fn a_hook_by_pattern_sees_each_module_with_its_path_and_output() -> Test {
    let seen = RefCell::new(Vec::new());
    let hooked = model();
    let plan = hooked.plan().hook("1.*", |ctx, output| {
        seen.borrow_mut().push((ctx.path().to_string(), bits(output)));
        Ok(None)
    })?;
    // Registered once, it acts in every run of the plan.
    for _ in 0..2 {
        plan.run(|m| m.forward(&x()))?;
    }
    let sum: f32 = numbers(&plan.run(|m| m.forward(&x()))?.output)[0];
    let entry = |path: &str, value: Vec<u32>| (path.to_string(), value);
    let (same, last) = (bits(&x()), vec![sum.to_bits()]);
    let once = [entry("1.0", same.clone()), entry("1.1", same), entry("1.2", last)];
    assert_eq!(*seen.borrow(), [once.clone(), once.clone(), once].concat());
    Ok(())
}

#[test]
fn what_a_hook_returns_replaces_the_output() -> Test {
    let hooked = model();
    let double = |_: &HookCtx<'_>, x: &Tensor| Ok(Some((x * 2.)?));
    let output =
        hooked.run_with_hooks([("0", double), ("1.1", double)], |m| m.forward(&full(1., &[1, 10])))?;
    assert_eq!(numbers(&output), [40.]);
    Ok(())
}

/// `register_forward_pre_hook`: the input of a module, before it runs.
#[test]
fn a_forward_pre_hook_is_a_hook_on_the_input() -> Test {
    let hooked = model();
    let plan = hooked.plan().hook("1.2:in", |ctx, input| {
        assert_eq!((ctx.path(), input.dims()), ("1.2:in", &[1, 10][..]));
        Ok(Some((input + 1.)?))
    })?;
    let run = plan.run(|m| m.forward(&zeros(&[1, 10])))?;
    assert_eq!(numbers(&run.output), [10.]);
    // With a pattern and an index, as everywhere.
    let plan = hooked.plan().hook("1.*:in[:, :3]", |_, part| Ok(Some((part + 1.)?)))?;
    assert_eq!(numbers(&plan.run(|m| m.forward(&zeros(&[1, 10])))?.output), [9.]);
    Ok(())
}

// "Running the model": `run(model, x)` is `model(x)`; hooks for one run are gone after it.

#[test]
fn a_run_without_anything_is_the_model() -> Test {
    let hooked = model();
    assert_eq!(bits(&hooked.run(|m| m.forward(&x()))?), bits(&hooked.forward(&x())?));
    Ok(())
}

#[test]
fn hooks_for_one_run_are_gone_after_it() -> Test {
    let hooked = model();
    let before = bits(&hooked.forward(&x())?);
    let zero = |_: &HookCtx<'_>, x: &Tensor| Ok(Some(x.zeros_like()?));
    assert_eq!(numbers(&hooked.run_with_hooks([("0", zero)], |m| m.forward(&x()))?), [0.]);
    assert_eq!(bits(&hooked.run(|m| m.forward(&x()))?), before);
    Ok(())
}

/// `run(.., return_activations=[..], with_activations={..}, forward_hooks={..}, forward_pre_hooks={..})`
#[test]
fn one_run_takes_caches_patches_and_hooks_together() -> Test {
    let hooked = model();
    let run = hooked
        .plan()
        .cache(["1.*", "0"])?
        .patch_all(&[("0[0, :5]", zeros(&[5]))])?
        .hook("1.0", |_, x| Ok(Some((x * 3.)?)))?
        .hook("1.2:in", |_, x| Ok(Some((x + 1.)?)))?
        .run(|m| m.forward(&full(1., &[1, 10])))?;
    assert_eq!(keys(&run.cache), ["0", "1.0", "1.1", "1.2"]);
    assert_eq!(numbers(&run.output), [5. * 3. + 10.]);
    Ok(())
}

// "Recording activations"

#[test]
fn all_modules_come_in_completion_order_with_the_root_last() -> Test {
    let (_, cache) = model().run_with_cache("**", |m| m.forward(&x()))?;
    assert_eq!(keys(&cache), ["0", "1.0", "1.1", "1.2.0", "1.2", "1", ""]);
    Ok(())
}

#[test]
fn one_level_below_the_root() -> Test {
    let (_, cache) = model().run_with_cache(["*", ""], |m| m.forward(&x()))?;
    assert_eq!(keys(&cache), ["0", "1", ""]);
    Ok(())
}

#[test]
fn a_path_a_star_and_what_is_below() -> Test {
    let cached = |pattern: &str| -> anyhow::Result<Vec<String>> {
        let (_, cache) = model().run_with_cache(pattern, |m| m.forward(&x()))?;
        Ok(cache.keys().map(str::to_string).collect())
    };
    assert_eq!(cached("1")?, ["1"]);
    assert_eq!(cached("1.*")?, ["1.0", "1.1", "1.2"]);
    assert_eq!(cached("1.**")?, ["1.0", "1.1", "1.2.0", "1.2"]);
    Ok(())
}

#[test]
fn slices_are_keys_and_have_their_elements() -> Test {
    let (_, cache) = model().run_with_cache(["0[0, 0:5]", "0[0, -5:]"], |m| m.forward(&x()))?;
    assert_eq!(keys(&cache), ["0[0, 0:5]", "0[0, -5:]"]);
    let all = numbers(&x());
    assert_eq!(numbers(&cache["0[0, 0:5]"]), all[..5]);
    assert_eq!(numbers(&cache["0[0, -5:]"]), all[5..]);
    Ok(())
}

#[test]
fn the_output_is_the_patch_of_the_last_module() -> Test {
    let patch = full(42., &[1, 1]);
    let run = model().plan().patch("1", &patch)?.run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.output), [42.]);
    Ok(())
}

#[test]
fn a_patch_of_ones_adds_up_to_ten() -> Test {
    let run = model().plan().patch("0", &full(1., &[1, 10]))?.run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.output), [10.]);
    Ok(())
}

#[test]
fn a_patched_slice_leaves_the_rest() -> Test {
    let run = model()
        .plan()
        .patch("0[0, :2]", &full(1., &[2]))?
        .cache("0")?
        .run(|m| m.forward(&zeros(&[1, 10])))?;
    assert_eq!(numbers(&run.output), [2.]);
    assert_eq!(numbers(&run.cache["0"]), [1., 1., 0., 0., 0., 0., 0., 0., 0., 0.]);
    Ok(())
}

#[test]
fn an_int_drops_its_dimension_and_a_slice_keeps_it() -> Test {
    let (_, cache) = model().run_with_cache(["0[0]", "0[0:1]", "0[0, 3]"], |m| m.forward(&x()))?;
    assert_eq!(cache["0[0]"].dims(), [10]);
    assert_eq!(cache["0[0:1]"].dims(), [1, 10]);
    assert_eq!(cache["0[0, 3]"].dims(), [0usize; 0]);
    Ok(())
}

#[test]
fn every_index_of_a_star_is_a_key() -> Test {
    let (_, cache) = model().run_with_cache("0[0, *]", |m| m.forward(&x()))?;
    let expected: Vec<String> = (0..10).map(|n| format!("0[0, {n}]")).collect();
    assert_eq!(keys(&cache), expected);
    assert_eq!(cache["0[0, 3]"].to_scalar::<f32>()?, numbers(&x())[3]);
    Ok(())
}

#[test]
fn a_star_calls_the_hook_once_for_each_index_with_its_concrete_path() -> Test {
    let seen = RefCell::new(Vec::new());
    let hooked = model();
    let plan = hooked.plan().hook("0[*, :2]", |ctx, x| {
        let element = ctx.element().map(<[usize]>::to_vec);
        seen.borrow_mut().push((ctx.path().to_string(), element, x.dims().to_vec(), ctx.call(), ctx.kind()));
        Ok(None)
    })?;
    plan.run(|m| m.forward(&wave(1, &[2, 10])))?;
    let entry = |n: usize| (format!("0[{n}, :2]"), Some(vec![n]), vec![2], 0, Kind::Leaf);
    assert_eq!(*seen.borrow(), [entry(0), entry(1)]);
    Ok(())
}

#[test]
fn several_stars_give_the_product_the_last_running_fastest() -> Test {
    let seen = RefCell::new(Vec::new());
    let hooked = model();
    let plan = hooked.plan().hook("0[*, *]", |ctx, _| {
        seen.borrow_mut().push(ctx.element().map(<[usize]>::to_vec).unwrap_or_default());
        Ok(None)
    })?;
    plan.run(|m| m.forward(&wave(1, &[2, 10])))?;
    let expected: Vec<Vec<usize>> = (0..2).flat_map(|a| (0..10).map(move |b| vec![a, b])).collect();
    assert_eq!(*seen.borrow(), expected);
    Ok(())
}

#[test]
fn every_call_inside_one_path_sees_the_value_from_before_its_changes() -> Test {
    let seen = RefCell::new(Vec::new());
    let hooked = model();
    // Each call sees the whole row but for the slice that it writes to.
    let plan = hooked.plan().hook("0[*]", |_, row| {
        seen.borrow_mut().push(row.sum_all()?.to_scalar::<f32>()?);
        Ok(Some((row + 1.)?))
    })?;
    let run = plan.run(|m| m.forward(&zeros(&[3, 10])))?;
    assert_eq!(*seen.borrow(), [0., 0., 0.]);
    assert_eq!(numbers(&run.output), [10., 10., 10.]);
    Ok(())
}

#[test]
fn several_paths_on_one_module_chain() -> Test {
    let seen = RefCell::new(Vec::new());
    let hooked = model();
    let note = |x: &Tensor| -> hookpoint::Result<()> {
        seen.borrow_mut().push(x.flatten_all()?.get(0)?.to_scalar::<f32>()?);
        Ok(())
    };
    let plan = hooked
        .plan()
        .hook("0", |_, x| {
            note(x)?;
            Ok(Some((x + 1.)?))
        })?
        .hook("0[0, :1]", |_, x| {
            note(x)?;
            Ok(Some((x * 10.)?))
        })?
        .hook("0[0]", |_, x| {
            note(x)?;
            Ok(None)
        })?;
    let run = plan.run(|m| m.forward(&full(1., &[1, 10])))?;
    assert_eq!(*seen.borrow(), [1., 2., 20.]);
    assert_eq!(numbers(&run.output), [20. + 9. * 2.]);
    Ok(())
}

#[test]
fn hooks_come_before_patches_and_patches_before_the_cache() -> Test {
    let seen = RefCell::new(Vec::new());
    let hooked = model();
    let run = hooked
        .plan()
        // Registered in the opposite order.
        .cache("0[0, :3]")?
        .patch("0[0, 1]", &full(5., &[]))?
        .hook("0", |_, x| {
            seen.borrow_mut().push(numbers(x)[..3].to_vec());
            Ok(Some((x + 1.)?))
        })?
        .run(|m| m.forward(&zeros(&[1, 10])))?;
    assert_eq!(*seen.borrow(), [[0., 0., 0.]]);
    assert_eq!(numbers(&run.cache["0[0, :3]"]), [1., 5., 1.]);
    assert_eq!(numbers(&run.output), [14.]);
    Ok(())
}

#[test]
fn later_patches_win_where_they_overlap() -> Test {
    let hooked = model();
    let run = hooked
        .plan()
        .patch("0", &full(1., &[1, 10]))?
        .patch("0[0, :5]", &full(2., &[5]))?
        .patch("0[0, 4:6]", &full(3., &[1]))?
        .run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.output), [4. * 2. + 2. * 3. + 4.]);
    Ok(())
}

#[test]
fn parents_see_what_their_children_were_patched_to() -> Test {
    let hooked = model();
    let run = hooked
        .plan()
        .patch("1.2.0", &full(7., &[1, 1]))?
        .cache(["1.2", "1", ""])?
        .run(|m| m.forward(&x()))?;
    for key in ["1.2", "1", ""] {
        assert_eq!(numbers(&run.cache[key]), [7.]);
    }
    Ok(())
}

#[test]
fn a_dictionary_of_activations_is_a_patch() -> Test {
    let hooked = model();
    let with = std::collections::HashMap::from([("0", full(1., &[1, 10])), ("1.0[0, 0]", full(0., &[]))]);
    let run = hooked.plan().patch_all(&with)?.run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.output), [9.]);
    Ok(())
}

// "Activation patching": `with_activations={'mod1[:,3:5]': ones(2)}`

#[test]
fn a_patch_of_a_column_range_reaches_every_row() -> Test {
    let hooked = model();
    let run = hooked.plan().patch("0[:,3:5]", &full(1., &[2]))?.run(|m| m.forward(&zeros(&[4, 10])))?;
    assert_eq!(numbers(&run.output), [2.; 4]);
    Ok(())
}

// "ActivationCache": a dictionary that can be computed with, copied between runs and moved.

#[test]
fn caches_add_and_subtract_over_their_common_keys() -> Test {
    let hooked = model();
    let (_, a) = hooked.run_with_cache(["0", "1"], |m| m.forward(&full(3., &[1, 10])))?;
    let (_, b) = hooked.run_with_cache(["0", "1.0"], |m| m.forward(&full(1., &[1, 10])))?;
    let (sum, difference) = ((&a + &b)?, (&a - &b)?);
    assert_eq!((keys(&sum), keys(&difference)), (vec!["0"], vec!["0"]));
    assert_eq!(numbers(&sum["0"]), [4.; 10]);
    assert_eq!(numbers(&difference["0"]), [2.; 10]);
    Ok(())
}

#[test]
fn a_cache_is_indexed_and_moved_as_a_whole() -> Test {
    let (_, cache) = model().run_with_cache(["0", "1.0"], |m| m.forward(&x()))?;
    let first = cache.index("0, :2")?;
    assert_eq!(keys(&first), ["0[0, :2]", "1.0[0, :2]"]);
    assert_eq!(numbers(&first["0[0, :2]"]), numbers(&x())[..2]);
    let moved = cache.to_device(&device())?;
    assert_eq!(bits(&moved["0"]), bits(&cache["0"]));
    Ok(())
}

#[test]
fn the_difference_of_two_runs_can_be_put_into_a_third() -> Test {
    let hooked = model();
    let (_, a) = hooked.run_with_cache("0", |m| m.forward(&full(3., &[1, 10])))?;
    let (_, b) = hooked.run_with_cache("0", |m| m.forward(&full(1., &[1, 10])))?;
    let run = hooked.plan().patch_all(&(&a - &b)?)?.run(|m| m.forward(&x()))?;
    assert_eq!(numbers(&run.output), [20.]);
    Ok(())
}

/// `ActivationCacheLike`: any dictionary of names to tensors.
#[test]
fn every_kind_of_map_is_a_cache() -> Test {
    use std::collections::{BTreeMap, HashMap};
    let hooked = model();
    let ones = || full(1., &[1, 10]);
    let patched = |activations: &dyn hookpoint::Activations| -> anyhow::Result<Vec<f32>> {
        Ok(numbers(&hooked.plan().patch_all(activations)?.run(|m| m.forward(&x()))?.output))
    };
    assert_eq!(patched(&HashMap::from([("0", ones())]))?, [10.]);
    assert_eq!(patched(&HashMap::from([("0".to_string(), ones())]))?, [10.]);
    assert_eq!(patched(&BTreeMap::from([("0", ones())]))?, [10.]);
    assert_eq!(patched(&vec![("0", ones())])?, [10.]);
    assert_eq!(patched(&[("0", ones())])?, [10.]);
    assert_eq!(patched(&ActivationCache::from_iter([("0", ones())]))?, [10.]);
    Ok(())
}

// `patch_method_to_module`: a method can be hooked as a child module can.

#[derive(AutoHook)]
struct WithMethods(Linear);

#[auto_hook]
impl WithMethods {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.encode(x)?;
        self.decode(&hidden, 2.)
    }

    fn encode(&self, x: &Tensor) -> Result<Tensor> {
        let inner = self.0.forward(x)?;
        inner * 2.
    }

    fn decode(&self, code: &Tensor, scale: f64) -> Result<Tensor> {
        code / scale
    }
}

#[test]
fn methods_are_hooked_as_modules_are() -> Test {
    let hooked = Hooked::new(WithMethods(identity(10)));
    let (output, cache) =
        hooked.run_with_cache([":encode", ":encode.inner", ":decode"], |m| m.forward(&x()))?;
    assert_eq!(keys(&cache), [":encode.inner", ":encode", ":decode"]);
    assert_eq!(bits(&output), bits(&x()));

    let run = hooked
        .plan()
        .patch(":encode[0, :9]", &zeros(&[9]))?
        .hook(":decode", |_, x| Ok(Some((x + 1.)?)))?
        .run(|m| m.forward(&full(1., &[1, 10])))?;
    assert_eq!(numbers(&run.output), [1., 1., 1., 1., 1., 1., 1., 1., 1., 2.]);
    // Its arguments, too: a pre-hook of the method.
    let plan = hooked.plan().hook(":decode.code", |_, code| Ok(Some(code.zeros_like()?)))?;
    assert_eq!(numbers(&plan.run(|m| m.forward(&x()))?.output), [0.; 10]);
    Ok(())
}
