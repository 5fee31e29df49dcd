use std::cell::{Cell, RefCell};
use std::panic::{catch_unwind, AssertUnwindSafe};

use candle_core::{Module, Result, Tensor};
use hookpoint::prelude::*;
use hookpoint::Error;

use crate::models::{bits, ids, loss, loss_of, mlp, transformer, wave, Test, Transformer};

const POINTS: [&str; 4] = ["wte", "blocks.0.attn:pattern", "blocks.1:in", "head"];

/// Nothing is left of a run: an idle call is not tracked, and a new run gives what it always gave.
fn assert_nothing_is_left(model: &Hooked<Transformer>, expected: &ActivationCache) {
    let output = model.forward(&ids()).unwrap();
    assert!(!output.track_op());
    assert_eq!(bits(&output), bits(&transformer().forward(&ids()).unwrap()));
    let run = model.plan().cache_grad(POINTS).unwrap().backward(loss).unwrap();
    for (name, grad) in expected.iter() {
        assert_eq!(bits(grad), bits(&run.grads[name]), "{name}");
    }
}

fn expected() -> ActivationCache {
    transformer().plan().cache_grad(POINTS).unwrap().backward(loss).unwrap().grads
}

#[test]
fn a_run_that_fails_leaves_nothing() -> Test {
    let (model, expected) = (transformer(), expected());
    let plan = || model.plan().cache_grad(POINTS);
    assert!(plan()?.backward(|_| Err::<Tensor, _>(Error::msg("no"))).is_err());
    assert!(plan()?.backward(|m| m.forward(&ids())).is_err());
    assert!(plan()?.hook("blocks.0", |_, _| Err(Error::msg("no")))?.backward(loss).is_err());
    for point in POINTS {
        let plan = plan()?.hook_grad(point, |_, _| Err(Error::msg("no")))?;
        assert!(plan.backward(loss).is_err());
        assert_nothing_is_left(&model, &expected);
    }
    Ok(())
}

#[test]
fn a_panic_leaves_nothing_and_its_plan_usable() -> Test {
    let (model, expected) = (transformer(), expected());
    let panics = Cell::new(true);
    for point in POINTS {
        panics.set(true);
        let plan = model.plan().cache_grad(POINTS)?.hook_grad(point, |_, _| {
            assert!(!panics.get(), "a hook panics");
            Ok(None)
        })?;
        assert!(catch_unwind(AssertUnwindSafe(|| plan.backward(loss))).is_err());
        assert_nothing_is_left(&model, &expected);
        panics.set(false);
        let run = plan.backward(loss)?;
        assert_eq!(bits(&run.grads["wte"]), bits(&expected["wte"]));
    }
    let plan = model.plan().cache_grad(POINTS)?;
    let panicking = |_: &Transformer| -> Result<Tensor> { panic!("the loss panics") };
    assert!(catch_unwind(AssertUnwindSafe(|| plan.backward(panicking))).is_err());
    assert_nothing_is_left(&model, &expected);
    Ok(())
}

#[test]
fn a_hook_may_differentiate_a_model_of_its_own() -> Test {
    let (model, expected) = (transformer(), expected());
    let other = Hooked::new(mlp(1, 4));
    let x = wave(3, &[2, 4]);
    let alone = other.plan().cache_grad("up")?.backward(|m| loss_of(&m.forward(&x)?))?;
    let inner = RefCell::new(Vec::new());
    let nested = |_: &HookCtx<'_>, _: &Tensor| {
        // Another model, and the same one.
        let run = other.plan().cache_grad("up")?.backward(|m| loss_of(&m.forward(&x)?))?;
        inner.borrow_mut().push(bits(&run.grads["up"]));
        let run = model.plan().cache_grad("head")?.backward(loss)?;
        assert_eq!(bits(&run.grads["head"]), bits(&expected["head"]));
        Ok(None)
    };
    let plan = model.plan().cache_grad(POINTS)?.hook("blocks.0", nested)?.hook_grad("blocks.1:in", nested)?;
    let run = plan.backward(loss)?;
    for name in POINTS {
        assert_eq!(bits(&run.grads[name]), bits(&expected[name]), "{name}");
    }
    assert_eq!(*inner.borrow(), [bits(&alone.grads["up"]), bits(&alone.grads["up"])]);
    assert_nothing_is_left(&model, &expected);
    Ok(())
}

#[test]
fn a_backward_of_the_users_own_does_not_wake_hooks() -> Test {
    let model = transformer();
    let seen = Cell::new(0);
    let plan = model.plan().hook_grad("head", |_, _| {
        seen.set(seen.get() + 1);
        Ok(None)
    })?;
    let kept = RefCell::new(None);
    plan.backward(|m| {
        let loss = loss(m)?;
        // In the middle of the run, and once more after it.
        loss.backward()?;
        *kept.borrow_mut() = Some(loss.clone());
        Ok::<_, candle_core::Error>(loss)
    })?;
    assert_eq!(seen.get(), 1);
    kept.borrow().as_ref().unwrap().backward()?;
    assert_eq!(seen.get(), 1);
    Ok(())
}

#[test]
fn eight_threads_differentiate_one_model() -> Test {
    let (model, expected) = (transformer(), expected());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8usize)
            .map(|thread| {
                let (model, expected) = (&model, &expected);
                scope.spawn(move || -> anyhow::Result<()> {
                    let point = POINTS[thread % 4];
                    let factor = thread as f64;
                    for _ in 0..20 {
                        let plan = model.plan().cache_grad(POINTS)?;
                        let plan = plan.hook_grad(point, |_, grad| Ok(Some((grad * factor)?)))?;
                        let run = plan.backward(loss)?;
                        assert_eq!(bits(&run.grads[point]), bits(&(&expected[point] * factor)?));
                        assert!(!model.forward(&ids())?.track_op());
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    assert_nothing_is_left(&model, &expected);
    Ok(())
}

#[derive(AutoHook)]
struct Recurrent {
    layer: candle_nn::Linear,
    state: Option<Tensor>,
}

#[auto_hook]
impl Recurrent {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let sum = match &self.state {
            Some(state) => (x + state)?,
            None => x.clone(),
        };
        let new = self.layer.forward(&sum)?.tanh()?;
        self.state = Some(new.clone());
        Ok(new)
    }
}

#[test]
fn a_model_that_changes_itself_has_gradients_through_its_state() -> Test {
    let mut model = Hooked::new(Recurrent { layer: crate::models::linear(1, 3, 3), state: None });
    let x = wave(2, &[1, 3]);
    let steps = |m: &mut Recurrent| {
        m.forward(&x)?;
        m.forward(&x)?;
        loss_of(&m.forward(&x)?)
    };
    let run = model.plan_mut().cache_grad("layer")?.backward(steps)?;
    assert_eq!(run.grads.calls("layer").len(), 3);
    // The same with finite differences at the first call.
    let mut moved = |by: f64| -> anyhow::Result<f64> {
        model.state = None;
        let plan = model.plan_mut().hook("layer#0[0, 0]", |_, x| Ok(Some((x + by)?)));
        Ok(plan?.run(steps)?.output.to_scalar()?)
    };
    let slope = (moved(1e-6)? - moved(-1e-6)?) / 2e-6;
    let found = run.grads["layer#0"].get(0)?.get(0)?.to_scalar::<f64>()?;
    assert!((slope - found).abs() < 1e-6, "{slope} {found}");
    Ok(())
}
