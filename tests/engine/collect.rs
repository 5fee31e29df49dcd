use candle_core::{Module, ModuleT, Result, Tensor};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{full, keys, numbers, Counter, Test, Times};

/// Three steps, each of which counts.
#[derive(AutoHook)]
struct Steps {
    first: Step,
    second: Times,
    third: Step,
    scale: Tensor,
    swallow: bool,
}

#[derive(AutoHook)]
struct Step {
    layer: Times,
}

#[auto_hook]
impl Step {
    fn forward(&self, x: &Tensor, extra: &Tensor) -> Result<(Tensor, Tensor)> {
        let early = (x + extra)?;
        let late = self.layer.forward(&early)?;
        let sum = (&late + 0.)?;
        Ok((sum, late))
    }
}

#[auto_hook]
impl Steps {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (x, extra) = self.first.forward(x, x)?;
        let x = match self.second.forward(&x) {
            Err(_) if self.swallow => x,
            other => other?,
        };
        let scaled = x.broadcast_mul(&self.scale)?;
        let (x, _) = self.third.forward(&scaled, &extra)?;
        Ok(x)
    }

    fn forward_anyhow(&self, x: &Tensor) -> anyhow::Result<Tensor> {
        let x = self.second.forward(x)?;
        anyhow::ensure!(x.dims() == [1], "one number");
        Ok(self.second.forward(&x)?)
    }
}

fn steps(swallow: bool) -> (Hooked<Steps>, Counter) {
    let count = Counter::default();
    let times = || Times(2., count.clone());
    let (first, third) = (Step { layer: times() }, Step { layer: times() });
    (Hooked::new(Steps { first, second: times(), third, scale: full(1., &[1]), swallow }), count)
}

/// How many layers were executed to collect this, and the keys.
fn collected(pattern: &str) -> anyhow::Result<(usize, Vec<String>)> {
    let (hooked, count) = steps(false);
    let reached_the_end = Counter::default();
    let cache = hooked.plan().cache(pattern)?.collect(|m| {
        let output = m.forward(&full(1., &[1]))?;
        reached_the_end.add();
        Ok::<_, candle_core::Error>(output)
    })?;
    let executed = count.take();
    assert_eq!(reached_the_end.get(), 0, "{pattern}");
    Ok((executed, cache.keys().map(str::to_string).collect()))
}

macro_rules! ends_after {
    ($($name:ident: $pattern:literal => $executed:literal [$($key:literal),*];)*) => { $(
        #[test]
        fn $name() -> Test {
            let (executed, keys) = collected($pattern)?;
            assert_eq!(keys, [$($key),*]);
            assert_eq!(executed, $executed);
            Ok(())
        }
    )* };
}

ends_after! {
    the_output_of_a_layer: "second" => 2 ["second"];
    the_output_of_an_annotated_module: "first" => 1 ["first"];
    the_second_output: "first:out.1" => 1 ["first:out.1"];
    the_input_of_a_layer: "second:in" => 1 ["second:in"];
    the_input_of_an_annotated_module: "third:in" => 2 ["third:in"];
    the_second_input: "third:in.1" => 2 ["third:in.1"];
    an_input_by_name: "first:x" => 0 ["first:x"];
    all_inputs: "first:in*" => 0 ["first:in", "first:in.1"];
    the_input_of_the_root: ":in" => 0 [":in"];
    a_value: "first:early" => 0 ["first:early"];
    a_value_in_the_middle: "third:early" => 2 ["third:early"];
    a_later_value: "first:late" => 1 ["first:late"];
    all_versions_of_a_shadowed_value: ":x" => 3 [":x.0", ":x.1", ":x.2", ":x.3"];
    one_version_of_a_shadowed_value: ":x.2" => 2 [":x.2"];
    every_value_of_a_module: "first:{early,late}" => 1 ["first:early", "first:late"];
    a_parameter: "scale" => 2 ["scale"];
    a_part: "second[0]" => 2 ["second[0]"];
    the_latest_of_several: "{first,second}" => 2 ["first", "second"];
    inside_the_last_module: "third.layer" => 3 ["third.layer"];
}

#[derive(AutoHook)]
struct Loop {
    layer: Times,
    last: Times,
}

#[auto_hook]
impl Module for Loop {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for _ in 0..5 {
            x = self.layer.forward(&x)?;
        }
        self.last.forward(&x)
    }
}

fn looping() -> (Hooked<Loop>, Counter) {
    let count = Counter::default();
    (Hooked::new(Loop { layer: Times(2., count.clone()), last: Times(1., count.clone()) }), count)
}

#[test]
fn a_run_ends_with_the_wanted_call() -> Test {
    let (hooked, count) = looping();
    let cache = hooked.plan().cache("layer#2")?.collect(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(count.take(), 3);
    assert_eq!(numbers(&cache["layer"]), [8.]);
    // Every call is wanted, but the point has fired with the first.
    hooked.plan().cache("layer")?.collect(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(count.take(), 1);
    Ok(())
}

#[test]
fn a_point_that_fires_often_does_not_count_for_another() -> Test {
    let (hooked, count) = looping();
    let cache = hooked.plan().cache(["layer", "last"])?.collect(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(keys(&cache), ["layer", "last"]);
    assert_eq!(cache.calls("layer").len(), 5);
    assert_eq!(count.get(), 6);
    Ok(())
}

#[test]
fn a_model_that_swallows_the_end_goes_on_unwatched() -> Test {
    let (hooked, _) = steps(true);
    let seen = Counter::default();
    let plan = hooked.plan().cache("first")?.hook("second", |_, _| {
        seen.add();
        Ok(None)
    })?;
    let cache = plan.allow_unfired().collect(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(keys(&cache), ["first"]);
    assert_eq!(cache.calls("first").len(), 1);
    assert_eq!(seen.get(), 0);
    // The closure may swallow it too.
    let cache = hooked
        .plan()
        .cache("second")?
        .collect(|m| Ok::<_, candle_core::Error>(m.forward(&full(1., &[1])).unwrap_or(full(0., &[1]))))?;
    assert_eq!(keys(&cache), ["second"]);
    Ok(())
}

#[test]
fn a_model_that_returns_anyhow_errors_ends_too() -> Test {
    let (hooked, count) = steps(false);
    let cache = hooked.plan().cache("second#0")?.collect(|m| m.forward_anyhow(&full(1., &[1])))?;
    assert_eq!(count.take(), 1);
    assert_eq!(numbers(&cache["second"]), [2.]);
    // An error of its own, before everything is there, is not hidden.
    let error = hooked.plan().cache("second#1")?.collect(|m| m.forward_anyhow(&full(1., &[2]))).unwrap_err();
    assert!(error.to_string().starts_with("one number"), "{error}");
    Ok(())
}

#[test]
fn a_model_that_fails_half_way_through_a_module_is_not_a_success() -> Test {
    #[derive(AutoHook)]
    struct Fails;
    #[auto_hook]
    impl Module for Fails {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let part = (x * 1.)?;
            let part = if x.rank() == 1 { candle_core::bail!("half way") } else { (part * 2.)? };
            Ok(part)
        }
    }
    for pattern in [":part", ":*", ":part.0"] {
        let hooked = Hooked::new(Fails);
        let result = hooked.plan().cache(pattern)?.collect(|m| m.forward(&full(1., &[1])));
        match pattern {
            ":part.0" => assert_eq!(keys(&result?), [":part.0"]),
            _ => assert!(result.unwrap_err().to_string().starts_with("half way"), "{pattern}"),
        }
    }
    Ok(())
}

#[test]
fn there_is_nothing_to_collect_without_a_cache() {
    let (hooked, count) = steps(false);
    let error = hooked.plan().collect(|m| m.forward(&full(1., &[1]))).unwrap_err();
    assert!(error.to_string().contains("caches nothing"), "{error}");
    let plan = hooked.plan().hook("second", |_, _| Ok(None)).unwrap();
    assert!(plan.collect(|m| m.forward(&full(1., &[1]))).is_err());
    assert_eq!(count.get(), 0);
}

#[test]
fn hooks_and_patches_act_on_what_is_collected() -> Test {
    let (hooked, count) = steps(false);
    let cache = hooked
        .plan()
        .hook("first.layer", |_, x| Ok(Some((x * 10.)?)))?
        .patch("first:early", &full(5., &[1]))?
        .cache("second")?
        .collect(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(numbers(&cache["second"]), [200.]);
    assert_eq!(count.get(), 2);
    Ok(())
}

#[test]
fn a_hook_behind_the_end_is_reported() -> Test {
    let (hooked, _) = steps(false);
    let plan = hooked.plan().cache("first")?.hook("third", |_, _| Ok(None))?;
    let error = plan.collect(|m| m.forward(&full(1., &[1]))).unwrap_err();
    match error.kind() {
        ErrorKind::Unfired { request, remedy, .. } => {
            assert_eq!(request, "hook(\"third\")");
            assert!(remedy.contains("`collect` ends"), "{error}");
        }
        other => panic!("{other}"),
    }
    Ok(())
}

#[test]
fn what_is_never_reached_is_reported_unless_it_may_be() -> Test {
    let (hooked, count) = looping();
    let error =
        hooked.plan().cache(["layer#9", "layer"])?.collect(|m| m.forward(&full(1., &[1]))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { request, .. } if request == "cache(\"layer#9\")"));
    assert_eq!(count.get(), 6);
    let plan = hooked.plan().cache(["layer#9", "layer#0"])?.allow_unfired();
    assert_eq!(keys(&plan.collect(|m| m.forward(&full(1., &[1])))?), ["layer"]);
    Ok(())
}

#[test]
fn skipped_modules_count_as_reached() -> Test {
    let (hooked, count) = steps(false);
    hooked.run_with_cache("**", |m| m.forward(&full(1., &[1])))?;
    count.take();
    let cache = hooked
        .plan()
        .patch("second", &full(7., &[1]))?
        .cache("second")?
        .collect(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(numbers(&cache["second"]), [7.]);
    assert_eq!(count.get(), 1);
    Ok(())
}

#[test]
fn a_collecting_plan_can_be_used_again() -> Test {
    let (hooked, count) = steps(false);
    let plan = hooked.plan().cache("second")?;
    for _ in 0..3 {
        plan.collect(|m| m.forward(&full(1., &[1])))?;
        assert_eq!(count.take(), 2);
    }
    let run = plan.run(|m| m.forward(&full(1., &[1])))?;
    assert_eq!(count.take(), 3);
    assert_eq!(numbers(&run.output), [24.]);
    Ok(())
}

#[derive(AutoHook)]
struct Trains {
    layer: Times,
}

#[auto_hook]
impl ModuleT for Trains {
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let x = x.apply_t(&self.layer, train)?;
        self.layer.forward_t(&x, train)
    }
}

#[test]
fn training_models_end_too() -> Test {
    let count = Counter::default();
    let hooked = Hooked::new(Trains { layer: Times(2., count.clone()) });
    hooked.plan().cache("layer")?.collect(|m| m.forward_t(&full(1., &[1]), true))?;
    assert_eq!(count.get(), 1);
    Ok(())
}
