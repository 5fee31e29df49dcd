use std::cell::RefCell;

use candle_core::{Module, Tensor};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, loss, loss_of, mlp, numbers, odd, picture, transformer, wave, Test};

#[test]
fn doubling_a_gradient_doubles_everything_upstream_and_nothing_else() -> Test {
    let model = transformer();
    let upstream = ["wte", "wpe", "blocks.0", "blocks.0.attn:pattern", "blocks.0.mlp:hidden", "blocks.1:in"];
    let downstream = ["blocks.1.mlp.down", "head:in", "head"];
    let all: Vec<&str> = upstream.iter().chain(&downstream).copied().collect();
    let plain = model.plan().cache_grad(&all)?.backward(loss)?;
    let plan = model.plan().cache_grad(&all)?.hook_grad("blocks.1:in", |_, grad| Ok(Some((grad * 2.)?)))?;
    let doubled = plan.backward(loss)?;
    for name in upstream {
        assert_eq!(bits(&doubled.grads[name]), bits(&(&plain.grads[name] * 2.)?), "{name}");
    }
    for name in downstream {
        assert_eq!(bits(&doubled.grads[name]), bits(&plain.grads[name]), "{name}");
    }
    assert_eq!(bits(&doubled.loss), bits(&plain.loss));
    Ok(())
}

#[test]
fn a_replaced_part_leaves_the_rest() -> Test {
    let model = transformer();
    let plain = model.plan().cache_grad("blocks.0")?.backward(loss)?;
    let run = model
        .plan()
        .hook_grad("blocks.0[:, -1]", |ctx, grad| {
            assert_eq!(ctx.path(), "blocks.0[:, -1]");
            assert_eq!(grad.dims(), [2, 4]);
            Ok(Some(grad.zeros_like()?))
        })?
        .cache_grad("blocks.0")?
        .backward(loss)?;
    let (plain, changed) = (&plain.grads["blocks.0"], &run.grads["blocks.0"]);
    assert_eq!(bits(&changed.narrow(1, 0, 2)?), bits(&plain.narrow(1, 0, 2)?));
    assert!(numbers(&changed.narrow(1, 2, 1)?).iter().all(|n| *n == 0.));
    Ok(())
}

#[test]
fn hooks_at_one_point_act_in_the_order_of_their_registration_and_before_the_cache() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let order = RefCell::new(Vec::new());
    let step = |name: &'static str, factor: f64| {
        let order = &order;
        move |_: &HookCtx<'_>, grad: &Tensor| {
            order.borrow_mut().push(name);
            Ok(Some((grad * factor)?))
        }
    };
    let plain = model.plan().cache_grad("up")?.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?))?;
    let plan =
        model.plan().cache_grad("up")?.hook_grad("up", step("a", 3.))?.hook_grad("up", step("b", 5.))?;
    let run = plan.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?))?;
    assert_eq!(*order.borrow(), ["a", "b"]);
    assert_eq!(bits(&run.grads["up"]), bits(&((&plain.grads["up"] * 3.)? * 5.)?));
    Ok(())
}

#[test]
fn hooks_at_several_points_are_called_from_the_loss_backwards() -> Test {
    let model = transformer();
    let seen = RefCell::new(Vec::new());
    let points = ["wte", "blocks.0:in", "blocks.0", "blocks.1:mid", "blocks.1", "head:in", "head"];
    let plan = model.plan().hook_grad(points, |ctx, _| {
        seen.borrow_mut().push(ctx.path().to_string());
        Ok(None)
    })?;
    plan.backward(loss)?;
    let expected: Vec<&str> = points.iter().rev().copied().collect();
    assert_eq!(*seen.borrow(), expected);
    Ok(())
}

#[test]
fn a_hook_is_called_for_each_element_and_for_the_wanted_call() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let seen = RefCell::new(Vec::new());
    let plan = model.plan().hook_grad("up#1[*, 0]", |ctx, grad| {
        assert!(grad.dims().is_empty());
        seen.borrow_mut().push((ctx.path().to_string(), ctx.call(), ctx.element().map(<[usize]>::to_vec)));
        Ok(None)
    })?;
    plan.backward(|m| loss_of(&m.forward(&wave(2, &[1, 4]))?)? + loss_of(&m.forward(&wave(3, &[2, 4]))?)?)?;
    let expected = [0, 1].map(|n| (format!("up[{n}, 0]"), 1, Some(vec![n])));
    assert_eq!(*seen.borrow(), expected);
    Ok(())
}

#[test]
fn a_gradient_of_the_wrong_shape_is_refused() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let plan = model.plan().hook_grad("up", |_, grad| Ok(Some(grad.narrow(0, 0, 1)?)))?;
    let error = plan.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Shape { point, .. } if point == "up"), "{error}");
    Ok(())
}

#[test]
fn an_error_of_a_hook_comes_out_with_its_point() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let plan = model.plan().hook_grad(":hidden", |_, _| Err(hookpoint::Error::msg("enough")))?;
    let error = plan.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?)).unwrap_err();
    assert_eq!(error.to_string(), "the hook at `:hidden` failed: enough");
    Ok(())
}

#[test]
fn a_call_is_seen_with_all_its_gradients_in_the_order_of_inputs_and_outputs() -> Test {
    let model = odd(true);
    let points = ["split:in", "split:in.1", "split", "split:out.1.1"];
    let alone =
        model.plan().cache(points)?.cache_grad(points)?.backward(|m| loss_of(&m.forward(&picture())?))?;
    let seen = RefCell::new(0);
    let plan = model.plan().hook_backward("split", |ctx, call| {
        *seen.borrow_mut() += 1;
        assert_eq!((ctx.path(), ctx.call()), ("split", 0));
        assert!(ctx.type_name().ends_with("Split"));
        assert_eq!(call.input_names(), ["in", "in.1"]);
        assert_eq!(call.output_names(), ["out", "out.1.0", "out.1.1"]);
        let grads: Vec<_> = call.grad_inputs().into_iter().chain(call.grad_outputs()).collect();
        let values: Vec<_> = call.inputs().into_iter().chain(call.outputs()).collect();
        let expected = [Some(points[0]), Some(points[1]), Some(points[2]), None, Some(points[3])];
        assert_eq!(grads.len(), 5);
        for ((grad, value), name) in grads.iter().zip(values).zip(expected) {
            match name {
                Some(name) => {
                    assert_eq!(bits(grad.unwrap()), bits(&alone.grads[name]), "{name}");
                    assert_eq!(bits(value), bits(&alone.cache[name]), "{name}");
                }
                None => assert!(grad.is_none()),
            }
        }
        Ok(())
    })?;
    plan.backward(|m| loss_of(&m.forward(&picture())?))?;
    assert_eq!(*seen.borrow(), 1);
    Ok(())
}

#[test]
fn calls_are_seen_from_the_last_to_the_first() -> Test {
    let model = transformer();
    let seen = RefCell::new(Vec::new());
    let plan = model.plan().hook_backward(["blocks.*", "head", "wte"], |ctx, call| {
        seen.borrow_mut().push((ctx.path().to_string(), call.inputs().len(), call.grad_inputs().len()));
        if ctx.path() == "wte" {
            // Token numbers have no gradient.
            assert!(call.grad_inputs()[0].is_none() && call.grad_outputs()[0].is_some());
        }
        Ok(())
    })?;
    plan.backward(loss)?;
    let path = |name: &str, inputs| (name.to_string(), inputs, inputs);
    assert_eq!(*seen.borrow(), [path("head", 1), path("blocks.1", 2), path("blocks.0", 1), path("wte", 1)]);
    Ok(())
}

#[test]
fn a_hook_for_calls_takes_no_values() {
    let model = transformer();
    for pattern in ["blocks.0:in", "head[:, 0]"] {
        let error = model.plan().hook_backward(pattern, |_, _| Ok(())).err().unwrap();
        assert!(error.to_string().contains("hook that value by itself"), "{error}");
    }
}

#[derive(AutoHook)]
struct Optional {
    layer: candle_nn::Linear,
}

#[auto_hook]
impl Optional {
    fn forward(&self, x: &Tensor, more: Option<&Tensor>) -> candle_core::Result<(Tensor, Tensor)> {
        let x = self.layer.forward(x)?;
        let sum = match more {
            Some(more) => x.mul(more)?,
            None => x.clone(),
        };
        Ok((x, sum))
    }
}

#[test]
fn a_call_has_its_own_inputs_where_some_are_optional() -> Test {
    let model = Hooked::new(Optional { layer: crate::models::linear(1, 3, 3) });
    let inputs = |x: usize| wave(x, &[1, 3]);
    let two_calls = |m: &Optional| {
        let (_, first) = m.forward(&inputs(1), None)?;
        let (_, second) = m.forward(&first, Some(&inputs(2)))?;
        second.sum_all()
    };
    let seen = RefCell::new(Vec::new());
    let note = |ctx: &HookCtx<'_>, call: &hookpoint::BackwardCall<'_>| {
        let grads =
            call.grad_inputs().iter().chain(&call.grad_outputs()).map(|grad| grad.is_some()).collect();
        seen.borrow_mut().push((ctx.call(), call.inputs().len(), grads));
        Ok(())
    };
    model.plan().hook_backward("", note)?.backward(two_calls)?;
    // The first result is not used, the second is.
    let expected: Vec<(usize, usize, Vec<bool>)> =
        vec![(1, 2, vec![true, true, false, true]), (0, 1, vec![true, false, true])];
    assert_eq!(*seen.borrow(), expected);
    seen.borrow_mut().clear();
    model.plan().hook_backward("#1", note)?.backward(two_calls)?;
    assert_eq!(*seen.borrow(), expected[..1]);
    // A call that the loss does not depend on at all.
    let plan = model.plan().hook_backward("layer#0", note)?.cache_grad(":in")?;
    let error = plan.backward(|m| {
        m.forward(&inputs(1), None)?;
        m.forward(&inputs(2), None)?.1.sum_all()
    });
    assert!(
        matches!(error.unwrap_err().kind(), ErrorKind::NoGradient { points, .. } if *points == ["layer"])
    );
    Ok(())
}

#[test]
fn hooks_that_stay_act_in_every_backward_pass_and_in_no_other_run() -> Test {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    let model = transformer();
    let plain = model.plan().cache_grad("wte")?.backward(loss)?;
    let hooks = model.manager();
    let doubling = hooks.register("double", "blocks.1:in").hook_grad(|_, grad| Ok(Some((grad * 2.)?)))?;
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let looking = hooks.register("look", ["blocks.*", "head"]).hook_backward(move |_, call| {
        assert!(call.grad_outputs().iter().all(Option::is_some));
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })?;
    // A point that this loss has no gradient at is no mistake of the plan's.
    hooks.register("unused", "wte:in").hook_grad(|_, _| Ok(None))?;
    let run = model.plan().cache_grad("wte")?.backward(loss)?;
    assert_eq!(bits(&run.grads["wte"]), bits(&(&plain.grads["wte"] * 2.)?));
    assert_eq!(seen.load(Ordering::Relaxed), 3);

    let (output, cache) = model.run_with_cache("**", |m| m.forward(&crate::models::ids()))?;
    assert!(!output.track_op() && cache.iter().all(|(_, value)| !value.track_op()));
    assert_eq!(seen.load(Ordering::Relaxed), 3);

    doubling.deactivate()?;
    let run = model.plan().cache_grad("wte")?.backward(loss)?;
    assert_eq!(bits(&run.grads["wte"]), bits(&plain.grads["wte"]));
    assert_eq!(seen.load(Ordering::Relaxed), 6);
    looking.deactivate()?;
    model.plan().cache_grad("wte")?.backward(loss)?;
    assert_eq!(seen.load(Ordering::Relaxed), 6);
    Ok(())
}
