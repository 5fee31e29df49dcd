//! Hooks of whole calls: what goes in and what comes out, whatever its shape and wherever it stands.

use std::cell::RefCell;
use std::collections::HashMap;

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use super::models::{bits, full, input, keys, linear, model, numbers, wave, Test};

#[derive(Clone, HookValue)]
struct Pair {
    left: Tensor,
    right: Vec<Tensor>,
}

/// Arguments and results of many kinds.
#[derive(AutoHook)]
struct Kinds {
    layer: Linear,
}

#[auto_hook]
impl Kinds {
    fn forward(
        &self,
        x: &Tensor,
        masks: (Tensor, Option<Tensor>),
        pair: Pair,
    ) -> Result<HashMap<String, Tensor>> {
        let sum = (x + &masks.0)?;
        let sum = match &masks.1 {
            Some(mask) => (sum + mask)?,
            None => sum,
        };
        let right = pair.right.iter().try_fold(pair.left.clone(), |sum, one| sum + one)?;
        Ok(HashMap::from([("sum".to_string(), sum), ("right".to_string(), right)]))
    }

    fn forward_flagged(
        &self,
        pos: usize,
        x: Tensor,
        last: Option<&Tensor>,
        flag: bool,
    ) -> Result<Vec<Tensor>> {
        let y = self.layer.forward(&x)?;
        let last = last.cloned().unwrap_or_else(|| x.clone());
        Ok(if flag { vec![(y + pos as f64)?, last] } else { vec![x, last] })
    }
}

fn kinds() -> Hooked<Kinds> {
    Hooked::new(Kinds { layer: linear(1, 2, 2) })
}

fn one(value: f32) -> Tensor {
    full(value, &[1, 2])
}

fn firsts(tensors: &[Tensor]) -> Vec<f32> {
    tensors.iter().map(|tensor| numbers(tensor)[0]).collect()
}

#[test]
fn tensors_inside_arguments_and_results_stand_in_their_places() -> Test {
    let kinds = kinds();
    let seen = RefCell::new(Vec::new());
    let plan = kinds
        .plan()
        .hook_call_inputs("", |_, call| {
            seen.borrow_mut().push((call.input_names.to_vec(), firsts(call.inputs)));
            Ok(None)
        })?
        .hook_call("", |_, call| {
            seen.borrow_mut().push((call.output_names.to_vec(), firsts(call.outputs)));
            assert_eq!(firsts(call.inputs).len(), 6);
            Ok(None)
        })?;
    let pair = || Pair { left: one(4.), right: vec![one(5.), one(6.)] };
    plan.run(|m| m.forward(&one(1.), (one(2.), Some(one(3.))), pair()))?;
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let inputs = names(&["in", "in.1", "in.1.1", "in.2", "in.2.right.0", "in.2.right.1"]);
    assert_eq!(seen.borrow()[0], (inputs, vec![1., 2., 3., 4., 5., 6.]));
    assert_eq!(seen.borrow()[1].1, [15., 6.]);
    assert_eq!(seen.borrow()[1].0[1], "out.sum");
    Ok(())
}

#[test]
fn tensors_inside_arguments_and_results_are_replaced() -> Test {
    let kinds = kinds();
    let plan = kinds
        .plan()
        .hook_call_inputs("", |_, call| {
            let mut inputs = call.inputs.to_vec();
            inputs[2] = one(30.);
            inputs[5] = one(60.);
            Ok(Some(inputs))
        })?
        .hook_call("", |_, call| {
            assert_eq!(firsts(call.inputs), [1., 2., 30., 4., 5., 60.]);
            let mut outputs = call.outputs.to_vec();
            outputs[1] = (&outputs[1] * 2.)?;
            Ok(Some(outputs))
        })?;
    let pair = Pair { left: one(4.), right: vec![one(5.), one(6.)] };
    let run = plan.run(|m| m.forward(&one(1.), (one(2.), Some(one(3.))), pair))?;
    assert_eq!(numbers(&run.output["sum"])[0], 66.);
    assert_eq!(numbers(&run.output["right"])[0], 69.);
    Ok(())
}

#[test]
fn arguments_by_value_and_optional_ones_are_replaced() -> Test {
    let kinds = kinds();
    let plan = kinds.plan().hook_call_inputs("", |_, call| {
        Ok(Some(call.inputs.iter().map(|input| input * 10.).collect::<Result<_>>()?))
    })?;
    let some = plan.run(|m| m.forward_flagged(3, one(1.), Some(&one(2.)), false))?.output;
    assert_eq!(firsts(&some), [10., 20.]);
    let none = plan.run(|m| m.forward_flagged(3, one(1.), None, false))?.output;
    assert_eq!(firsts(&none), [10., 10.]);
    Ok(())
}

#[test]
fn an_absent_argument_keeps_its_number() -> Test {
    /// The absent one comes first.
    #[derive(AutoHook)]
    struct Late;

    #[auto_hook]
    impl Late {
        fn forward(&self, mask: Option<&Tensor>, x: &Tensor) -> Result<Tensor> {
            mask.map_or(Ok(x.clone()), |mask| x + mask)
        }
    }

    let late = Hooked::new(Late);
    let names = RefCell::new(Vec::new());
    let plan = late.plan().hook_call("", |_, call| {
        names.borrow_mut().push(call.input_names.join(" "));
        Ok(None)
    })?;
    plan.run(|m| m.forward(None, &one(1.)))?;
    plan.run(|m| m.forward(Some(&one(1.)), &one(1.)))?;
    assert_eq!(*names.borrow(), ["in.1", "in in.1"]);
    Ok(())
}

#[test]
fn hooks_that_change_nothing_leave_every_bit() -> Test {
    let model = model();
    let plain = model.forward(&input())?;
    let plan = model
        .plan()
        .hook_call("**", |_, call| Ok(Some(call.outputs.to_vec())))?
        .hook_call_inputs("**", |_, call| Ok(Some(call.inputs.to_vec())))?;
    assert_eq!(bits(&plan.run(|m| m.forward(&input()))?.output), bits(&plain));
    let idle = model.plan().hook_call("**", |_, _| Ok(None))?;
    assert_eq!(bits(&idle.run(|m| m.forward(&input()))?.output), bits(&plain));
    Ok(())
}

#[test]
fn what_is_seen_is_what_caches_hold() -> Test {
    let model = model();
    let seen = RefCell::new(ActivationCache::new());
    let plan = model.plan().cache(["**", "**:in"])?.hook_call("**", |ctx, call| {
        let mut seen = seen.borrow_mut();
        seen.insert(format!("{}:in", ctx.path()), call.inputs[0].clone());
        seen.insert(ctx.path(), call.outputs[0].clone());
        Ok(None)
    })?;
    let run = plan.run(|m| m.forward(&input()))?;
    let seen = seen.borrow();
    let modules = keys(&run.cache).into_iter().filter(|name| !name.ends_with("scale")).count();
    assert_eq!(seen.len(), modules);
    for (name, tensor) in seen.iter() {
        assert_eq!(bits(tensor), bits(&run.cache[name]), "{name}");
    }
    // The order of the cache does not depend on such hooks.
    let (_, plain) = model.run_with_cache(["**", "**:in"], |m| m.forward(&input()))?;
    assert_eq!(keys(&run.cache), keys(&plain));
    Ok(())
}

#[test]
fn hooks_of_calls_and_of_values_act_in_the_order_in_which_they_were_added() -> Test {
    let model = model();
    let (x, path) = (input(), "blocks.0.mlp");
    let order = RefCell::new(Vec::new());
    let plan = model
        .plan()
        .cache(path)?
        .hook(path, |_, x| {
            order.borrow_mut().push(1);
            Ok(Some((x + 1.)?))
        })?
        .hook_call(path, |_, call| {
            order.borrow_mut().push(2);
            Ok(Some(vec![(&call.outputs[0] * 3.)?]))
        })?
        .hook(path, |_, x| {
            order.borrow_mut().push(3);
            Ok(Some((x + 1.)?))
        })?
        .hook(format!("{path}:in"), |_, x| {
            order.borrow_mut().push(0);
            Ok(Some(x.clone()))
        })?;
    let run = plan.run(|m| m.forward(&x))?;
    assert_eq!(*order.borrow(), [0, 1, 2, 3]);
    let (_, clean) = model.run_with_cache(path, |m| m.forward(&x))?;
    let expected = (((&clean[path] + 1.)? * 3.)? + 1.)?;
    assert_eq!(bits(&run.cache[path]), bits(&expected));
    Ok(())
}

#[test]
fn calls_are_counted_and_chosen() -> Test {
    /// Calls its layer three times.
    #[derive(AutoHook)]
    struct Thrice(#[hook(name = "layer")] Linear);

    #[auto_hook]
    impl Module for Thrice {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.0.forward(&self.0.forward(&self.0.forward(x)?)?)
        }
    }

    let thrice = Hooked::new(Thrice(linear(3, 2, 2)));
    let calls = RefCell::new(Vec::new());
    let note = |what: &'static str| {
        let calls = &calls;
        move |ctx: &HookCtx<'_>, _: &hookpoint::CallView<'_>| {
            calls.borrow_mut().push((what, ctx.call()));
            Ok(None)
        }
    };
    let plan = thrice
        .plan()
        .hook_call_inputs("layer", note("before"))?
        .hook_call("layer", note("after"))?
        .hook_call("layer#1", note("second"))?;
    let run = plan.run(|m| m.forward(&one(1.)))?;
    let expected = [
        ("before", 0),
        ("after", 0),
        ("before", 1),
        ("after", 1),
        ("second", 1),
        ("before", 2),
        ("after", 2),
    ];
    assert_eq!(*calls.borrow(), expected);
    assert_eq!(run.fired().map(|(_, times)| times).collect::<Vec<_>>(), [3, 3, 1]);
    Ok(())
}

#[test]
fn the_call_of_a_type_without_instrumented_code_is_seen() -> Test {
    /// Has points, but its forward is not annotated.
    #[derive(AutoHook)]
    struct Bare(#[hook(name = "inner")] Linear);

    impl Bare {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.0.forward(x)
        }
    }

    #[derive(AutoHook)]
    struct Outer {
        bare: Bare,
    }

    #[auto_hook]
    impl Module for Outer {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.bare.forward(x)
        }
    }

    let outer = Hooked::new(Outer { bare: Bare(linear(5, 2, 2)) });
    let plan = outer.plan().hook_call("bare", |_, call| Ok(Some(vec![call.inputs[0].clone()])))?;
    assert_eq!(numbers(&plan.run(|m| m.forward(&one(7.)))?.output), [7., 7.]);
    Ok(())
}

#[test]
fn a_module_that_is_collected_shows_its_call_first() -> Test {
    let model = model();
    let fired = RefCell::new(0);
    let plan = model.plan().cache("blocks.0.attn")?.hook_call("blocks.0.attn", |_, _| {
        *fired.borrow_mut() += 1;
        Ok(None)
    })?;
    let cache = plan.collect(|m| m.forward(&input()))?;
    assert_eq!((keys(&cache), *fired.borrow()), (vec!["blocks.0.attn"], 1));
    // Inputs alone.
    let plan = model.plan().cache("blocks.1:in")?.hook_call_inputs("blocks.1", |_, _| Ok(None))?;
    assert_eq!(keys(&plan.collect(|m| m.forward(&input()))?), ["blocks.1:in"]);
    Ok(())
}

#[test]
fn an_argument_that_cannot_be_replaced_is_an_error_that_names_it() -> Test {
    /// Borrows its argument for longer than the call.
    #[derive(AutoHook)]
    struct Borrows;

    #[auto_hook]
    impl Borrows {
        #[allow(clippy::needless_lifetimes)] // This is what is tested.
        fn forward<'a>(&self, x: &'a Tensor, y: &Tensor) -> Result<Tensor> {
            x + y
        }
    }

    let borrows = Hooked::new(Borrows);
    let both = |x: bool, y: bool| {
        let plan = borrows.plan().hook_call_inputs("", move |_, call| {
            let new = |change: bool, at: usize| if change { one(9.) } else { call.inputs[at].clone() };
            Ok(Some(vec![new(x, 0), new(y, 1)]))
        })?;
        plan.run(|m| m.forward(&one(1.), &one(2.)))
    };
    assert_eq!(numbers(&both(false, true)?.output), [10., 10.]);
    let error = both(true, false).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotReplaceable { point, .. } if point == ":x"), "{error}");
    // Nothing is replaced in vain: what is given back as it was is no replacement.
    assert_eq!(numbers(&both(false, false)?.output), [3., 3.]);
    Ok(())
}

#[test]
fn models_that_change_as_they_run_show_their_calls() -> Test {
    #[derive(AutoHook)]
    struct Counter {
        last: Option<Tensor>,
    }

    #[auto_hook]
    impl Counter {
        fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
            let sum = match &self.last {
                Some(last) => (last + x)?,
                None => x.clone(),
            };
            self.last = Some(sum.clone());
            Ok(sum)
        }
    }

    let mut counter = Hooked::new(Counter { last: None });
    let plan = counter.plan_mut().hook_call_inputs("", |_, call| Ok(Some(vec![(&call.inputs[0] * 2.)?])))?;
    assert_eq!(numbers(&plan.run(|m| m.forward(&wave(1, &[1])))?.output), numbers(&(wave(1, &[1]) * 2.)?));
    assert_eq!(numbers(&plan.run(|m| m.forward(&wave(1, &[1])))?.output), numbers(&(wave(1, &[1]) * 4.)?));
    Ok(())
}
