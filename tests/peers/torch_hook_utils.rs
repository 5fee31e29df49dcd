//! torch-hook-utils, through its documentation.

use std::collections::HashMap;

use candle_core::{DType, Module, ModuleT, Result, Tensor, Var};
use candle_nn::{Activation, BatchNorm, Dropout, Linear};
use hookpoint::prelude::*;
use hookpoint::{ErrorKind, Kind};
use hookpoint_layers::{
    save_maxpool_indices, use_indices_in_maxunpool, AfterUse, Distribution, Lambda, Layer, MaxPool2d,
    MaxPoolIndices, MaxUnpool2d, Normal, Random, Sample, Sequential, SequentialT,
};

use crate::tensors::{device, linear, numbers, wave, Test};

/// The network of its documentation.
pub fn network(sample: Sample) -> Hooked<Sequential> {
    let model = Sequential::new()
        .add("0", Lambda::new(|x: &Tensor| x.flatten_from(1)))
        .and_then(|model| model.add("1", linear(1, 4, 1)))
        .and_then(|model| model.then("2", Lambda::new(|mean: &Tensor| Normal::new(mean, 0.1))))
        .and_then(|model| model.then("3", sample));
    Hooked::new(model.unwrap())
}

pub fn input() -> Tensor {
    wave(2, &[1, 4])
}

// --- named_modules_of_type ---------------------------------------------------------------------------

#[test]
fn modules_of_a_type_are_found_by_path() -> Test {
    #[derive(AutoHook)]
    struct Inner {
        first: Linear,
        scale: Tensor,
        others: Vec<Linear>,
    }
    #[derive(AutoHook)]
    struct Outer {
        inner: Inner,
        head: Option<Linear>,
        act: Activation,
        boxed: Box<dyn Module>,
    }
    let inner = Inner { first: linear(1, 2, 2), scale: wave(3, &[2]), others: vec![linear(4, 2, 2)] };
    let boxed = Box::new(linear(5, 2, 2));
    let hooked = Hooked::new(Outer { inner, head: Some(linear(6, 2, 2)), act: Activation::Relu, boxed });
    assert_eq!(hooked.points_of_type::<Linear>(), ["inner.first", "inner.others.0", "head"]);
    assert_eq!(hooked.hook_dict().points_of_type::<Inner>(), ["inner"]);
    assert_eq!(hooked.hook_dict().points_of_type::<Outer>(), [""]);
    assert_eq!(hooked.points_of_type::<Tensor>(), ["inner.scale"]);
    assert_eq!(hooked.points_of_type::<Activation>(), ["act"]);
    assert_eq!(hooked.points_of_type::<dyn Module>(), ["boxed"]);
    assert!(hooked.points_of_type::<BatchNorm>().is_empty());
    // Names that a pattern must escape are escaped.
    let odd = Hooked::new(Sequential::new().add("a.b*", linear(1, 2, 2))?);
    let names = odd.points_of_type::<Linear>();
    let (_, cache) = odd.run_with_cache(&names, |m| m.forward(&wave(1, &[1, 2])))?;
    assert_eq!(cache.keys().collect::<Vec<_>>(), names);
    Ok(())
}

#[test]
fn a_scan_has_the_same_modules_of_a_type() -> Test {
    let hooked = network(Sample::new());
    let scan = hooked.scan(|m| m.forward(&input()))?;
    assert_eq!(scan.dict.points_of_type::<Linear>(), ["1"]);
    assert_eq!(scan.dict.points_of_type::<Sample>(), ["3"]);
    assert_eq!(scan.unreached().count(), 0);
    Ok(())
}

// --- get_layer_inputs, get_layer_outputs ---------------------------------------------------------------

#[test]
fn the_inputs_of_all_sample_layers_are_distributions() -> Test {
    let model = network(Sample::new());
    let sample_layers = model.points_of_type::<Sample>();
    assert_eq!(sample_layers, ["3"]);
    let (output, layer_inputs) = model.get_layer_inputs(&sample_layers, |m| m.forward(&input()))?;
    let normal: &Normal = layer_inputs.get_any("3:in")?;
    assert_eq!(normal.mean().dims(), output.dims());
    assert_eq!(numbers(normal.std()), [0.1]);
    // Of another type it is not.
    let error = layer_inputs.get_any::<String>("3:in").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WrongType { .. }), "{error}");
    Ok(())
}

#[test]
fn outputs_are_captured_whatever_their_type() -> Test {
    let model = network(Sample::new());
    let (output, outputs) = model.get_layer_outputs(["1", "2", "3"], |m| m.forward(&input()))?;
    assert_eq!(numbers(outputs.get_any::<Normal>("2")?.mean()), numbers(&outputs["1"]));
    assert_eq!(numbers(&outputs["3"]), numbers(&output));
    // The tensors inside have names.
    let (_, parts) = model.run_with_cache(["2:out.mean", "2:out.std"], |m| m.forward(&input()))?;
    assert_eq!(numbers(&parts["2:out.mean"]), numbers(&outputs["1"]));
    assert_eq!(numbers(&parts["2:out.std"]), [0.1]);
    Ok(())
}

#[test]
fn inputs_of_leaves_and_of_annotated_modules_are_captured() -> Test {
    let model = Sequential::new().add("up", linear(1, 4, 3))?.add("act", Activation::Relu)?;
    let model = Hooked::new(Sequential::new().add("body", model)?.add("head", linear(2, 3, 2))?);
    let names = ["body", "body.up", "body.act", "head"];
    let (_, inputs) = model.get_layer_inputs(names, |m| m.forward(&input()))?;
    assert_eq!(numbers(&inputs["body:in"]), numbers(&input()));
    assert_eq!(numbers(&inputs["body.up:in"]), numbers(&input()));
    assert_eq!(inputs["body.act:in"].dims(), [1, 3]);
    assert_eq!(inputs["head:in"].dims(), [1, 3]);
    // A pattern, one call, and a part.
    let (_, part) = model.get_layer_inputs("**.up#0[:, 1:3]", |m| m.forward(&input()))?;
    assert_eq!(numbers(&part["body.up:in[:, 1:3]"]), numbers(&input())[1..3]);
    Ok(())
}

#[derive(AutoHook)]
struct Adds;

#[auto_hook]
impl Adds {
    fn forward(&self, a: &Tensor, b: &Tensor, times: usize) -> Result<Tensor> {
        let _ = times;
        a + (b * times as f64)?
    }
}

#[test]
fn all_inputs_of_a_module_are_captured() -> Test {
    let model = Hooked::new(Adds);
    let (a, b) = (wave(1, &[2]), wave(2, &[2]));
    let (_, inputs) = model.get_layer_inputs("", |m| m.forward(&a, &b, 1))?;
    assert_eq!(inputs.keys().collect::<Vec<_>>(), [":in", ":in.1"]);
    assert_eq!(numbers(&inputs[":in.1"]), numbers(&b));
    let second = model.replace_layer_inputs(&[(":in.1", a.zeros_like()?)], |m| m.forward(&a, &b, 1))?;
    assert_eq!(numbers(&second), numbers(&a));
    Ok(())
}

// --- replace_layer_inputs, replace_layer_outputs ---------------------------------------------------------

#[test]
fn inputs_are_replaced_for_one_run() -> Test {
    let model = network(Sample::seeded(1));
    let other = wave(9, &[1, 4]);
    let replaced = model.replace_layer_inputs(&[("1", other.clone())], |m| m.forward(&input()))?;
    assert_eq!(numbers(&replaced), numbers(&model.forward(&other)?));
    assert_ne!(numbers(&replaced), numbers(&model.forward(&input())?));
    // What was captured can be given back, from any map.
    let (_, inputs) = model.get_layer_inputs("1", |m| m.forward(&other))?;
    let again = model.replace_layer_inputs(&inputs, |m| m.forward(&input()))?;
    assert_eq!(numbers(&again), numbers(&replaced));
    let map = HashMap::from([("1".to_string(), other)]);
    assert_eq!(numbers(&model.replace_layer_inputs(&map, |m| m.forward(&input()))?), numbers(&replaced));
    Ok(())
}

#[test]
fn outputs_are_replaced_for_one_run() -> Test {
    let model = network(Sample::seeded(1));
    let one = Tensor::ones((1, 1), DType::F32, &device())?;
    let expected = {
        let mut random = Random::seeded(1);
        let normal = Normal::new(&one, 0.1)?;
        normal.sample(&normal.noise(&mut random)?)?
    };
    let output = model.replace_layer_outputs(&[("1", one.clone())], |m| m.forward(&input()))?;
    assert_eq!(numbers(&output), numbers(&expected));
    let output = model.replace_layer_outputs(&[("3", (&one * 7.)?)], |m| m.forward(&input()))?;
    assert_eq!(numbers(&output), [7.]);
    Ok(())
}

#[test]
fn an_input_that_is_a_distribution_is_replaced_by_another() -> Test {
    let model = network(Sample::new());
    let zero = Normal::new(&Tensor::zeros((1, 1), DType::F32, &device())?, 0.0001)?;
    let run =
        model.plan().patch_any("3:in", zero.clone())?.cache_inputs("3")?.run(|m| m.forward(&input()))?;
    assert!(numbers(&run.output)[0].abs() < 0.01);
    // The cache holds what the model went on with.
    assert_eq!(numbers(run.cache.get_any::<Normal>("3:in")?.std()), [0.0001]);
    assert_eq!(run.fired().next(), Some((r#"patch_any("3:in")"#, 1)));
    // Where it is made, it can be replaced as well, and its parts are then those of the new one.
    let run = model.plan().patch_any("2", zero)?.cache("2:out.std")?.run(|m| m.forward(&input()))?;
    assert!(numbers(&run.output)[0].abs() < 0.01);
    assert_eq!(numbers(&run.cache["2:out.std"]), [0.0001]);
    // The model itself is as it was.
    let (_, after) = model.get_layer_inputs("3", |m| m.forward(&input()))?;
    assert_eq!(numbers(after.get_any::<Normal>("3:in")?.std()), [0.1]);
    Ok(())
}

#[test]
fn a_hook_of_whole_calls_goes_with_values_of_other_types() -> Test {
    let model = network(Sample::new());
    let zero = Normal::new(&Tensor::zeros((1, 1), DType::F32, &device())?, 0.0001)?;
    let plan = model.plan().hook_call("3", |_, _| Ok(None))?.cache_inputs("3")?;
    let (_, cache) = plan.run(|m| m.forward(&input())).map(|run| (run.output, run.cache))?;
    assert_eq!(numbers(cache.get_any::<Normal>("3:in")?.std()), [0.1]);
    let run = plan.patch_any("3:in", zero)?.run(|m| m.forward(&input()))?;
    assert!(numbers(&run.output)[0].abs() < 0.01);
    assert_eq!(numbers(run.cache.get_any::<Normal>("3:in")?.std()), [0.0001]);
    Ok(())
}

#[derive(Clone, Debug, PartialEq)]
struct Label(&'static str);

#[derive(AutoHook)]
struct Labels {
    inner: Labelled,
}
#[derive(AutoHook)]
struct Labelled;

#[auto_hook]
impl Labelled {
    fn forward(&self, x: &Tensor) -> Result<Label> {
        let rank = x.rank();
        Ok(Label(if rank == 1 { "vector" } else { "other" }))
    }

    fn plain(&self, _: &Tensor) -> Label {
        Label("plain")
    }
}

#[auto_hook]
impl Labels {
    fn forward(&self, x: &Tensor) -> Result<(Label, Label)> {
        Ok((self.inner.forward(x)?, self.inner.plain(x)))
    }
}

#[test]
fn a_result_of_a_type_that_nobody_knows_is_replaced() -> Test {
    let model = Hooked::new(Labels { inner: Labelled });
    let x = wave(1, &[2]);
    let run = model.plan().patch_any("inner", Label("new"))?.run(|m| m.forward(&x))?;
    assert_eq!(run.output, (Label("new"), Label("plain")));
    let run = model.plan().patch_any("inner:plain", Label("new"))?.run(|m| m.forward(&x))?;
    assert_eq!(run.output, (Label("vector"), Label("new")));
    let run = model.plan().patch_any("inner:rank", 7usize)?.cache("inner:rank")?.run(|m| m.forward(&x))?;
    assert_eq!(run.output.0, Label("other"));
    assert_eq!(run.cache.get_any::<usize>("inner:rank")?, &7);
    // Only the second of two calls.
    let plan = model.plan().patch_any("inner#1", Label("new"))?;
    let run = plan.run(|m| {
        m.forward(&x)?;
        m.forward(&x)
    })?;
    assert_eq!(run.output.0, Label("new"));
    Ok(())
}

#[test]
fn mistakes_with_values_of_other_types_are_errors() -> Test {
    let model = Hooked::new(Labels { inner: Labelled });
    let x = wave(1, &[2]);
    let kind_of = |plan: hookpoint::Result<Plan<'_, Labels>>| {
        let error = plan.unwrap().run(|m| m.forward(&x)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WrongType { .. }), "{error}");
        error.to_string()
    };
    let text = kind_of(model.plan().patch_any("inner", "text".to_string()));
    assert!(text.contains("`inner` holds a") && text.contains("Label") && text.contains("String"), "{text}");
    kind_of(model.plan().patch_any("inner:rank", 7u8));
    // A tensor is there.
    assert!(kind_of(model.plan().patch_any("inner:in", 7u8)).contains("Tensor"));
    assert!(model.plan().patch_any("inner", x.clone()).is_err());
    assert!(model.plan().patch_any("inner[0]", Label("new")).is_err());
    assert!(matches!(
        model.plan().patch_any("iner", Label("new")).err().unwrap().kind(),
        ErrorKind::NoMatch { .. }
    ));
    let error = model.plan().patch_any("inner#5", Label("new"))?.run(|m| m.forward(&x)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    // A tensor in the place of a value that is none.
    let tensors = network(Sample::new());
    let error = tensors.plan().patch_any("1", 3usize)?.run(|m| m.forward(&input())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WrongType { .. }), "{error}");
    Ok(())
}

#[derive(Clone, HookValue)]
struct Pair {
    a: Tensor,
    b: Tensor,
}

#[derive(AutoHook)]
struct Takes;

#[auto_hook]
impl Takes {
    fn forward(&self, pair: Pair) -> Result<Tensor> {
        &pair.a + &pair.b
    }

    fn borrowed(&self, pair: &Pair) -> Result<Tensor> {
        &pair.a - &pair.b
    }
}

#[test]
fn arguments_of_other_types_are_captured_and_replaced() -> Test {
    let model = Hooked::new(Takes);
    let pair = |a: f32, b: f32| Pair {
        a: Tensor::full(a, 1, &device()).unwrap(),
        b: Tensor::full(b, 1, &device()).unwrap(),
    };
    // By value: as a whole, and its parts.
    let plan = model.plan().patch_any(":pair", pair(10., 20.))?.cache(":in")?;
    let run = plan.hook(":pair.b", |_, b| Ok(Some((b + 1.)?)))?.run(|m| m.forward(pair(1., 2.)))?;
    assert_eq!(numbers(&run.output), [31.]);
    assert_eq!(numbers(&run.cache.get_any::<Pair>(":in")?.b), [21.]);
    // By reference: what it refers to belongs to somebody else, so it can only be looked at.
    let borrow = |m: &Takes| m.borrowed(&pair(5., 2.));
    let run = model.plan().cache(":borrowed.pair")?.run(borrow)?;
    assert_eq!(numbers(&run.cache.get_any::<Pair>(":borrowed.pair")?.a), [5.]);
    let error = model.plan().patch_any(":borrowed.pair", pair(1., 1.))?.run(borrow).unwrap_err();
    match error.kind() {
        ErrorKind::NotReplaceable { point, .. } => assert_eq!(point, ":borrowed.pair"),
        other => panic!("{other}"),
    }
    Ok(())
}

// --- Lambda, Sample, Sequential --------------------------------------------------------------------------

#[test]
fn a_lambda_is_a_named_layer_that_threads_can_share() -> Test {
    fn is_shared<T: Send + Sync>(_: &T) {}
    let factor = 3.;
    let triple = Lambda::new(move |x: &Tensor| x * factor).named("triple");
    is_shared(&triple);
    assert_eq!((triple.name(), format!("{triple:?}")), ("triple", "Lambda(triple)".to_string()));
    let model = Hooked::new(triple.clone());
    is_shared(&model);
    let x = wave(1, &[3]);
    let run = model.plan().hook("", |_, x| Ok(Some((x + 1.)?)))?.cache(":in")?.run(|m| x.apply(m))?;
    assert_eq!(numbers(&run.output), numbers(&((&x * 3.)? + 1.)?));
    assert_eq!(numbers(&run.cache[":in"]), numbers(&x));
    // An error of the function is the error of the run.
    let failing: Hooked<Lambda> = Hooked::new(Lambda::new(|_: &Tensor| candle_core::bail!("no")));
    assert!(failing.plan().cache("")?.run(|m| m.forward(&x)).unwrap_err().to_string().contains("no"));
    Ok(())
}

#[test]
fn a_lambda_whose_output_is_patched_does_not_run() -> Test {
    let runs = std::sync::atomic::AtomicUsize::new(0);
    // Once, to show the shape of what it gives.
    let once = Lambda::new(move |x: &Tensor| match runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Ok(x.clone()),
        _ => candle_core::bail!("it ran"),
    });
    let model = Hooked::new(Sequential::new().add("never", once)?.add("act", Activation::Relu)?);
    let x = wave(1, &[3]);
    model.run_with_cache("**", |m| m.forward(&x))?;
    let run = model.plan().patch("never", &x)?.run(|m| m.forward(&x))?;
    assert_eq!(numbers(&run.output), numbers(&x.relu()?));
    assert_eq!(run.skipped().collect::<Vec<_>>(), ["never"]);
    Ok(())
}

#[test]
fn samples_are_random_unless_they_are_asked_not_to_be() -> Test {
    let draw = |model: &Hooked<Sequential>| numbers(&model.forward(&input()).unwrap());
    let (random, seeded) = (network(Sample::new()), network(Sample::seeded(5)));
    assert_ne!(draw(&random), draw(&random));
    assert_eq!(draw(&seeded), draw(&seeded));
    assert_ne!(draw(&seeded), draw(&network(Sample::seeded(6))));
    // On several threads at a time, too.
    let expected = draw(&seeded);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(draw(&seeded), expected));
        }
    });
    // One run with the noise of another.
    let (output, cache) = random.run_with_cache("3:noise", |m| m.forward(&input()))?;
    let again = random.plan().patch_all(&cache)?.run(|m| m.forward(&input()))?;
    assert_eq!(numbers(&again.output), numbers(&output));
    Ok(())
}

#[test]
fn a_gradient_goes_through_a_sample_that_is_asked_to_let_it() -> Test {
    let mean = Var::from_tensor(&wave(1, &[4]))?;
    let scale = Var::from_tensor(&wave(2, &[4]))?;
    let draw = |sample: Sample| {
        let normal = Normal::with_std(mean.as_tensor(), scale.as_tensor()).unwrap();
        sample.forward_value(&normal).unwrap().sqr().unwrap().sum_all().unwrap().backward()
    };
    let grads = draw(Sample::seeded(3).differentiable())?;
    let sample = Sample::seeded(3).forward_value(&Normal::with_std(&mean, &scale)?)?;
    // The derivative of the square is twice the sample; with respect to the scale, times the noise.
    assert_eq!(numbers(grads.get(&mean).unwrap()), numbers(&(&sample * 2.)?));
    let noise = Random::seeded(3).normal(4, DType::F32, &device())?;
    let expected = numbers(&((&sample * 2.)? * noise)?);
    let found = numbers(grads.get(&scale).unwrap());
    assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {expected:?}");
    assert!(draw(Sample::seeded(3))?.get(&mean).is_none());
    Ok(())
}

#[test]
fn the_children_of_a_sequential_are_points() -> Test {
    let model = network(Sample::new());
    let keys: Vec<String> = model.hook_dict().keys().map(String::from).collect();
    assert_eq!(keys, ["", "0", "1", "2", "3"]);
    let kinds: Vec<Kind> = model.hook_dict().iter().map(|entry| entry.kind()).collect();
    assert_eq!(kinds, [Kind::Module, Kind::Module, Kind::Leaf, Kind::Module, Kind::Module]);
    let (_, cache) = model.run_with_cache("**", |m| m.forward(&input()))?;
    assert_eq!(cache.keys().collect::<Vec<_>>(), ["0", "1", "2", "3", ""]);
    // Every child is there once, with no points that nobody wrote.
    let scan = model.scan(|m| m.forward(&input()))?;
    let names: Vec<&str> = scan.dict.keys().collect();
    assert!(!names.iter().any(|name| name.contains("chain")), "{names:?}");
    assert!(scan.unknown_calls().is_empty(), "{:?}", scan.unknown_calls());
    Ok(())
}

#[test]
fn a_sequential_is_built_and_looked_into_by_name() -> Test {
    let model = Sequential::new()
        .add("up", linear(1, 4, 3))?
        .push(Activation::Relu)?
        .add_leaf("half", |x: &Tensor| x * 0.5)?
        .add_boxed("boxed", Box::new(linear(2, 3, 3)))?
        .add("inner", Sequential::new().add("down", linear(3, 3, 2))?)?;
    assert_eq!(model.names().collect::<Vec<_>>(), ["up", "1", "half", "boxed", "inner"]);
    assert_eq!((model.len(), model.is_empty()), (5, false));
    assert_eq!(model.get::<Linear>("up").unwrap().weight().dims(), [3, 4]);
    assert!(model.get::<Activation>("up").is_none() && model.get::<Linear>("upp").is_none());
    let linears = model.iter().filter(|(_, layer)| layer.is::<Linear>()).count();
    assert_eq!(linears, 1);
    assert_eq!(format!("{model:?}"), r#"["up", "1", "half", "boxed", "inner"]"#);

    let plain = model.forward(&input())?;
    let model = Hooked::new(model);
    let (output, cache) = model.run_with_cache("**", |m| input().apply(m))?;
    assert_eq!(cache.keys().collect::<Vec<_>>(), ["up", "1", "half", "boxed", "inner.down", "inner", ""]);
    assert_eq!(numbers(&output), numbers(&plain));
    // Every child can be replaced, at its input and at its output.
    for name in ["up", "1", "half", "boxed", "inner", "inner.down"] {
        let zero = cache[name].zeros_like()?;
        let (_, inputs) = model.get_layer_inputs(name, |m| m.forward(&input()))?;
        let nothing = inputs[&*format!("{name}:in")].zeros_like()?;
        let run = model.plan().patch(name, &zero)?.cache(name)?.run(|m| m.forward(&input()))?;
        assert_eq!(numbers(&run.cache[name]), numbers(&zero), "{name}");
        let output = model.replace_layer_inputs(&[(name, nothing)], |m| m.forward(&input()))?;
        assert_ne!(numbers(&output), numbers(&plain), "{name}");
    }
    Ok(())
}

#[test]
fn layers_of_size_zero_are_told_apart() -> Test {
    #[derive(AutoHook)]
    struct Doubles;
    #[auto_hook]
    impl Module for Doubles {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x * 2.
        }
    }
    let plus = |x: &Tensor| x + 1.;
    let model =
        Sequential::new().add("a", Doubles)?.add_leaf("b", plus)?.add("c", Doubles)?.add_leaf("d", plus)?;
    let model = Hooked::new(model);
    let x = Tensor::ones(1, DType::F32, &device())?;
    let (_, cache) = model.run_with_cache("*", |m| m.forward(&x))?;
    let found: Vec<(&str, f32)> = cache.iter().map(|(name, tensor)| (name, numbers(tensor)[0])).collect();
    assert_eq!(found, [("a", 2.), ("b", 3.), ("c", 6.), ("d", 7.)]);
    let run = model.plan().patch("c", &x)?.run(|m| m.forward(&x))?;
    assert_eq!(numbers(&run.output), [2.]);
    Ok(())
}

#[test]
fn an_empty_sequential_gives_what_it_is_given() -> Test {
    let model = Hooked::new(Sequential::<Tensor>::default());
    let (output, cache) = model.run_with_cache("", |m| m.forward(&input()))?;
    assert_eq!((numbers(&output), numbers(&cache[""])), (numbers(&input()), numbers(&input())));
    assert!(model.is_empty());
    Ok(())
}

#[test]
fn names_that_are_taken_or_empty_are_errors() {
    let taken = Sequential::<Tensor>::new().add("a", Activation::Relu).unwrap().add("a", Activation::Relu);
    assert!(taken.unwrap_err().to_string().contains("there is a layer `a` already"));
    let empty = Sequential::<Tensor>::new().add("", Activation::Relu);
    assert!(empty.unwrap_err().to_string().contains("needs a name"));
    assert!(SequentialT::new().add("a", Activation::Relu).unwrap().add("a", Dropout::new(0.1)).is_err());
}

#[test]
fn layers_that_train_are_told_so() -> Test {
    let model = SequentialT::new()
        .add("drop", Dropout::new(0.5))?
        .push(Activation::Relu)?
        .add_leaf("half", |x: &Tensor| x * 0.5)?;
    assert_eq!(model.names().collect::<Vec<_>>(), ["drop", "1", "half"]);
    assert!(model.get::<Dropout>("drop").is_some());
    let model = Hooked::new(model);
    let x = Tensor::ones(64, DType::F32, &device())?;
    let (trained, cache) = model.run_with_cache("**", |m| m.forward_t(&x, true))?;
    assert!(numbers(&cache["drop"]).contains(&0.) && numbers(&trained).contains(&1.));
    let (_, cache) = model.run_with_cache("**", |m| x.apply_t(m, false))?;
    assert_eq!(numbers(&cache["drop"]), numbers(&x));
    let output = model.replace_layer_inputs(&[("1", (&x * 3.)?)], |m| m.forward_t(&x, true))?;
    assert_eq!(numbers(&output), vec![1.5; 64]);
    Ok(())
}

// --- save_maxpool_indices, use_indices_in_maxunpool --------------------------------------------------------

pub fn encoder() -> Hooked<Sequential> {
    Hooked::new(Sequential::new().add("pool", MaxPool2d::new(2).unwrap()).unwrap())
}

pub fn decoder() -> Hooked<Sequential> {
    Hooked::new(Sequential::new().add("pool", MaxUnpool2d::new(2).unwrap()).unwrap())
}

pub fn image() -> Tensor {
    Tensor::new(&[[[1f32, 2.], [3., 4.]]], &device()).unwrap()
}

#[test]
fn the_example_of_its_documentation() -> Test {
    let (encoded, indices) = save_maxpool_indices(&encoder(), |m| m.forward(&image()))?;
    assert_eq!(indices.names(), ["pool"]);
    assert_eq!(indices.get("pool").unwrap().to_vec3::<i64>()?, [[[3]]]);
    assert_eq!(encoded.to_vec3::<f32>()?, [[[4.]]]);
    let decoded = use_indices_in_maxunpool(&decoder(), &indices, AfterUse::Keep, |m| m.forward(&encoded))?;
    assert_eq!(decoded.to_vec3::<f32>()?, [[[0., 0.], [0., 4.]]]);
    Ok(())
}

#[test]
fn indices_are_consumed_or_not() -> Test {
    let (encoded, indices) = save_maxpool_indices(&encoder(), |m| m.forward(&image()))?;
    let decoder = decoder();
    for _ in 0..2 {
        use_indices_in_maxunpool(&decoder, &indices, AfterUse::Keep, |m| m.forward(&encoded))?;
        assert_eq!(indices.len(), 1);
    }
    use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| m.forward(&encoded))?;
    assert!(indices.is_empty() && indices.get("pool").is_none());
    for consume in [AfterUse::Consume, AfterUse::Keep] {
        let error =
            use_indices_in_maxunpool(&decoder, &indices, consume, |m| m.forward(&encoded)).unwrap_err();
        assert!(error.to_string().starts_with("the indices for `pool` are used up"), "{error}");
    }
    Ok(())
}

#[test]
fn layers_of_other_names_get_indices_under_their_own() -> Test {
    let encoder = Sequential::new().add("aaa", Activation::Relu)?.add("foobar", MaxPool2d::new(2)?)?;
    let decoder = Sequential::new().add("useless", Activation::Relu)?.add("baz", MaxUnpool2d::new(2)?)?;
    let (encoder, decoder) = (Hooked::new(encoder), Hooked::new(decoder));
    for consume in [AfterUse::Consume, AfterUse::Keep] {
        let (encoded, mut indices) = save_maxpool_indices(&encoder, |m| m.forward(&image()))?;
        // Without a translation, the error says what there is and what to do.
        let error =
            use_indices_in_maxunpool(&decoder, &indices, consume, |m| m.forward(&encoded)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoMatch { .. }), "{error}");
        indices.rename("foobar", "baz")?;
        let decoded = use_indices_in_maxunpool(&decoder, &indices, consume, |m| m.forward(&encoded))?;
        assert_eq!(decoded.to_vec3::<f32>()?, [[[0., 0.], [0., 4.]]]);
        assert_eq!(indices.is_empty(), consume == AfterUse::Consume);
    }
    Ok(())
}

/// Poolings inside modules that pass on nothing but values.
#[derive(AutoHook)]
struct Stage {
    pool: MaxPool2d,
    act: Activation,
}

#[auto_hook]
impl Module for Stage {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.act.forward(&self.pool.forward(x)?)
    }
}

#[derive(AutoHook)]
struct Encoder {
    stages: Vec<Stage>,
}

#[auto_hook]
impl Module for Encoder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.stages.iter().try_fold(x.clone(), |x, stage| stage.forward(&x))
    }
}

#[derive(AutoHook)]
struct Decoder {
    stages: Vec<MaxUnpool2d>,
}

#[auto_hook]
impl Module for Decoder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for stage in self.stages.iter().rev() {
            x = x.apply(stage)?;
        }
        Ok(x)
    }
}

fn nested() -> (Hooked<Encoder>, Hooked<Decoder>) {
    let pool = |kernel: (usize, usize)| MaxPool2d::new(kernel).unwrap();
    let stage = |kernel| Stage { pool: pool(kernel), act: Activation::Relu };
    let encoder = Encoder { stages: vec![stage((2, 2)), stage((3, 1))] };
    let unpool = |kernel: (usize, usize)| MaxUnpool2d::new(kernel).unwrap();
    (Hooked::new(encoder), Hooked::new(Decoder { stages: vec![unpool((2, 2)), unpool((3, 1))] }))
}

#[test]
fn indices_go_past_everything_between_pooling_and_unpooling() -> Test {
    let (encoder, decoder) = nested();
    // Odd sizes: several pool to the same, and the indices know which one it was.
    let x = (wave(4, &[2, 3, 7, 5]) + 2.)?;
    let (encoded, mut indices) = save_maxpool_indices(&encoder, |m| m.forward(&x))?;
    assert_eq!(indices.names(), ["stages.0.pool", "stages.1.pool"]);
    assert_eq!(encoded.dims(), [2, 3, 1, 2]);
    for stage in 0..2 {
        indices.rename(&format!("stages.{stage}.pool"), format!("stages.{stage}"))?;
    }
    let decoded = use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| m.forward(&encoded))?;
    assert_eq!(decoded.dims(), x.dims());
    // What is not 0 is what was there before, and it is what pooling gives again.
    let kept = decoded.ne(0f32)?;
    assert_eq!(numbers(&kept.to_dtype(DType::F32)?).iter().sum::<f32>(), 12.);
    assert_eq!(numbers(&kept.where_cond(&x, &x.zeros_like()?)?), numbers(&decoded));
    assert_eq!(numbers(&encoder.forward(&decoded)?), numbers(&encoded));
    Ok(())
}

#[test]
fn indices_are_values_that_a_plan_can_read_and_replace() -> Test {
    let encoder = encoder();
    let run = encoder.plan().cache(["pool:indices", "pool"])?.run(|m| m.forward(&image()))?;
    assert_eq!(run.cache["pool:indices"].to_vec3::<i64>()?, [[[3]]]);
    // Another element of the window.
    let first = Tensor::new(&[[[0i64]]], &device())?;
    let output = encoder.plan().patch("pool:indices", &first)?.run(|m| m.forward(&image()))?.output;
    assert_eq!(output.to_vec3::<f32>()?, [[[1.]]]);
    let decoded = decoder().plan().patch("pool:indices", &first)?.run(|m| m.forward(&output))?.output;
    assert_eq!(decoded.to_vec3::<f32>()?, [[[1., 0.], [0., 0.]]]);
    Ok(())
}

#[test]
fn a_pooling_that_gives_its_indices_itself_is_saved_too() -> Test {
    #[derive(AutoHook)]
    struct Both {
        pool: MaxPool2d,
        unpool: MaxUnpool2d,
    }
    #[auto_hook]
    impl Module for Both {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let (pooled, places) = self.pool.forward_with_indices(x)?;
            self.unpool.forward_with_indices(&pooled, &places)
        }
    }
    let model = Hooked::new(Both { pool: MaxPool2d::new(2)?, unpool: MaxUnpool2d::new(2)? });
    let (output, indices) = save_maxpool_indices(&model, |m| m.forward(&image()))?;
    assert_eq!(output.to_vec3::<f32>()?, [[[0., 0.], [0., 4.]]]);
    assert_eq!(indices.get("pool").unwrap().to_vec3::<i64>()?, [[[3]]]);
    // Indices that the model passes by itself stay what they are: those that are given are not used.
    let other: MaxPoolIndices = [("unpool", Tensor::new(&[[[0i64]]], &device())?)].into_iter().collect();
    let error =
        use_indices_in_maxunpool(&model, &other, AfterUse::Consume, |m| m.forward(&image())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    assert_eq!(other.len(), 1);
    Ok(())
}
