//! Values are looked at and kept in copies. A `clone` is the user's own code: what it does is no part of a run.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use hookpoint::prelude::*;

use crate::models::{bits, full, numbers, Test};

#[derive(AutoHook)]
struct Tick;

#[auto_hook]
impl Tick {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let doubled = (x * 2.)?;
        Ok(doubled)
    }
}

/// Whose `clone` calls a module of the model.
#[derive(HookValue)]
struct Loud {
    value: Tensor,
    more: Vec<Tensor>,
    #[hook(skip)]
    tick: Arc<Tick>,
}

impl Clone for Loud {
    fn clone(&self) -> Self {
        let value = self.tick.forward(&self.value).unwrap().affine(0.5, 0.).unwrap();
        Self { value, more: self.more.clone(), tick: self.tick.clone() }
    }
}

#[derive(AutoHook)]
struct Makes {
    tick: Arc<Tick>,
}

#[auto_hook]
impl Makes {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let value = self.tick.forward(x)?;
        let loud = Loud { value, more: vec![x.clone()], tick: self.tick.clone() };
        let made = self.pass(&loud)?;
        let used = foreign(&made);
        self.take(made)? + used
    }

    fn pass(&self, loud: &Loud) -> Result<Loud> {
        let value = (&loud.value + 1.)?;
        Ok(Loud { value, more: loud.more.clone(), tick: loud.tick.clone() })
    }

    fn take(&self, loud: Loud) -> Result<Tensor> {
        loud.value.broadcast_add(&loud.more[0])
    }
}

/// Nobody can look into it.
fn foreign(loud: &Loud) -> Result<Tensor> {
    loud.value.neg()
}

fn makes() -> Hooked<Makes> {
    Hooked::new(Makes { tick: Arc::new(Tick) })
}

const EVERY: [&str; 2] = ["**", "**:*"];

#[test]
fn a_cached_run_has_the_calls_of_the_model_alone() -> Test {
    let (model, x) = (makes(), full(3., &[1]));
    let (output, cache) = model.run_with_cache(EVERY, |m| m.forward(&x))?;
    assert_eq!(bits(&output), bits(&model.forward(&x)?));
    assert_eq!((cache.calls("tick").len(), cache.calls("tick:doubled").len()), (1, 1));
    assert!(cache.get_any::<Loud>(":loud").is_ok());
    Ok(())
}

#[test]
fn so_have_a_scan_a_recording_and_hooks_of_whole_calls() -> Test {
    let (model, x) = (makes(), full(3., &[1]));
    let scan = model.scan(|m| m.forward(&x))?;
    assert_eq!(scan.dict.get("tick").map(|entry| entry.calls()), Some(1));
    let (_, recording) = model.record(|m| m.forward(&x))?;
    let plan = model.plan().replay(&recording)?.cache("tick")?;
    assert_eq!(plan.run(|m| m.forward(&x))?.cache.calls("tick").len(), 1);
    let calls = std::cell::Cell::new(0);
    let plan = model.plan().hook_call("**", |_, _| {
        calls.set(calls.get() + 1);
        Ok(None)
    })?;
    plan.run(|m| m.forward(&x))?;
    drop(plan);
    // Of the model and of `tick`.
    assert_eq!(calls.get(), 2);
    Ok(())
}

#[test]
fn so_has_a_gradient_run_whose_operations_take_such_values() -> Test {
    let (model, x) = (makes(), full(3., &[1]));
    let plan = model.plan().allow_barriers().cache(["tick", "tick:doubled"])?.cache_grad("tick")?;
    let run = plan.backward(|m| m.forward(&x)?.sum_all())?;
    // Before: a call for every operation that was given such a value.
    assert_eq!((run.cache.calls("tick").len(), run.cache.calls("tick:doubled").len()), (1, 1));
    assert_eq!(run.grads.calls("tick").len(), 1);
    assert!(numbers(&run.grads["tick"])[0].is_finite());
    Ok(())
}
