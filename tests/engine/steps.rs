use std::cell::RefCell;

use candle_core::{Result, Tensor};
use hookpoint::prelude::*;
use hookpoint::{wanted, with_step, Step, Steps};

use crate::models::{full, numbers, wave, zeros, Counter, Test};

/// Adds one, and says on demand what it was given, negated.
#[derive(AutoHook)]
struct Adder {
    one: Tensor,
    #[hook(skip)]
    made: Counter,
}

#[auto_hook]
impl Adder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if wanted("negated") {
            self.made.add();
            let negated = x.neg()?;
            let _ = negated;
        }
        let sum = x.broadcast_add(&self.one)?;
        self.twice(&sum)
    }

    fn twice(&self, x: &Tensor) -> Result<Tensor> {
        if wanted("half") {
            self.made.add();
            let half = (x * 0.5)?;
            return half * 4.;
        }
        x * 2.
    }
}

fn adder() -> Hooked<Adder> {
    Hooked::new(Adder { one: full(1., &[1]), made: Counter::default() })
}

#[test]
fn a_value_is_made_only_for_those_who_ask() -> Test {
    let (model, x) = (adder(), wave(1, &[2, 3]));
    let made = |patterns: &[&str]| -> anyhow::Result<usize> {
        model.run_with_cache(patterns, |m| m.forward(&x))?;
        Ok(model.made.take())
    };
    model.forward(&x)?;
    assert_eq!(model.made.take(), 0);
    assert_eq!(made(&["**"])?, 0);
    assert_eq!(made(&[":sum"])?, 0);
    assert_eq!(made(&[":negated"])?, 1);
    assert_eq!(made(&[":twice.half"])?, 1);
    assert_eq!(made(&[":*"])?, 2);
    // The name of another method's value is another name.
    assert!(model.plan().cache(":half").is_err());
    model.scan(|m| m.forward(&x))?;
    assert_eq!(model.made.take(), 2);
    let (_, cache) = model.run_with_cache(":negated", |m| m.forward(&x))?;
    assert_eq!(numbers(&cache[":negated"]), numbers(&x.neg()?));
    Ok(())
}

#[test]
fn nothing_is_wanted_inside_a_hook_or_outside_of_forward_code() -> Test {
    let (model, x) = (adder(), wave(1, &[2, 3]));
    assert!(!wanted("negated"));
    let inside = RefCell::new(None);
    let plan = model.plan().cache(":negated")?.hook(":sum", |_, _| {
        *inside.borrow_mut() = Some(wanted("negated"));
        Ok(None)
    })?;
    plan.run(|m| {
        assert!(!wanted("negated"));
        m.forward(&x)
    })?;
    assert_eq!(*inside.borrow(), Some(false));
    Ok(())
}

#[test]
fn a_hook_that_passes_was_not_there() -> Test {
    let (model, x) = (adder(), wave(1, &[2, 3]));
    let plan = model.plan().hook(":sum", |ctx, sum| match ctx.call() {
        1 => Ok(Some(sum.zeros_like()?)),
        _ => ctx.pass(),
    })?;
    let error = plan.run(|m| m.forward(&x)).unwrap_err();
    assert!(error.to_string().contains(r#"hook(":sum") never fired"#), "{error}");
    let run = plan.run(|m| m.forward(&x).and_then(|_| m.forward(&x)))?;
    assert_eq!(run.fired().collect::<Vec<_>>(), [(r#"hook(":sum")"#, 1)]);
    // With `*`, one element that does not pass is enough.
    let plan = model.plan().hook(":sum[*]", |ctx, _| match ctx.element() {
        Some([1]) => Ok(None),
        _ => ctx.pass(),
    })?;
    assert_eq!(plan.run(|m| m.forward(&x))?.fired().map(|(_, times)| times).sum::<usize>(), 1);
    Ok(())
}

#[test]
fn steps_are_windows_of_positions() -> Test {
    let model = adder();
    // [batch, pos, width]: a prompt of 3, then two generated.
    let step = |number, positions| Step { number, positions, prompt: 3 };
    let acted = |steps: Steps, step: Step| -> anyhow::Result<Vec<f32>> {
        let x = zeros(&[1, step.positions.len(), 1]);
        let hook = steps.limit(|_, sum| Ok(Some((sum.zeros_like()? + 5.)?)));
        let plan = model.plan().hook(":sum", hook)?.allow_unfired();
        let run = plan.run(|m| with_step(step, || m.forward(&x)))?;
        Ok(numbers(&run.output))
    };
    let (yes, no) = (10., 2.);
    // Without a KV cache.
    let whole = || step(2, 0..5);
    assert_eq!(acted(Steps::prompt(), whole())?, [yes, yes, yes, no, no]);
    assert_eq!(acted(Steps::only(1), whole())?, [no, no, no, yes, no]);
    assert_eq!(acted(Steps::between(1..usize::MAX), whole())?, [no, no, no, yes, yes]);
    assert_eq!(acted(Steps::between(0..2), whole())?, [yes, yes, yes, yes, no]);
    assert_eq!(acted(Steps::only(7), whole())?, [no; 5]);
    assert_eq!(acted(Steps::every(), whole())?, [yes; 5]);
    // With one.
    assert_eq!(acted(Steps::only(2), step(2, 4..5))?, [yes]);
    assert_eq!(acted(Steps::only(1), step(2, 4..5))?, [no]);
    assert_eq!(acted(Steps::prompt(), step(0, 0..3))?, [yes; 3]);
    Ok(())
}

#[test]
fn a_limited_hook_keeps_the_shape_and_its_mistakes_have_a_place() -> Test {
    let (model, x) = (adder(), wave(3, &[1, 4, 2]));
    let step = || Step { number: 1, positions: 0..4, prompt: 3 };
    let fails = |steps: Steps, hook: fn(&Tensor) -> hookpoint::Result<Tensor>| {
        let plan = model.plan().hook(":sum", steps.limit(move |_, part| Ok(Some(hook(part)?)))).unwrap();
        plan.run(|m| with_step(step(), || m.forward(&x))).map(|_| ()).unwrap_err().to_string()
    };
    let error = fails(Steps::prompt(), |part| Ok(part.narrow(1, 0, 1)?));
    assert!(error.contains("`:sum`") && error.contains("same shape"), "{error}");
    let error = fails(Steps::prompt().along(2), |part| Ok(part.clone()));
    assert!(error.contains("`:sum`") && error.contains("does not count positions"), "{error}");
    let error = fails(Steps::prompt().along(3), |part| Ok(part.clone()));
    assert!(error.contains("no dimension 3"), "{error}");
    Ok(())
}

#[test]
fn a_run_without_steps_is_all_prompt() -> Test {
    let (model, x) = (adder(), zeros(&[1, 2, 1]));
    let plan = model.plan().hook(":sum", Steps::prompt().limit(|_, sum| Ok(Some((sum + 1.)?))))?;
    assert_eq!(numbers(&plan.run(|m| m.forward(&x))?.output), [4., 4.]);
    let plan = model.plan().hook(":sum", Steps::only(1).limit(|_, sum| Ok(Some((sum + 1.)?))))?;
    assert!(plan.run(|m| m.forward(&x)).is_err());
    Ok(())
}

#[test]
fn calls_are_joined() -> Test {
    let model = adder();
    let (_, cache) = model.run_with_cache(":sum", |m| {
        m.forward(&zeros(&[1, 2, 2]))?;
        m.forward(&full(1., &[1, 1, 2]))
    })?;
    assert_eq!(numbers(&cache.join(":sum", 1)?), [1., 1., 1., 1., 2., 2.]);
    assert!(cache.join(":sum", 2).unwrap_err().to_string().contains("join_padded"));
    assert_eq!(numbers(&cache.join_padded(":sum", 2, 9.)?), [1., 1., 2., 2., 1., 1., 9., 9.]);
    assert_eq!(numbers(&cache.join(":sum#1", 1)?), [2., 2.]);
    for (name, dim) in [(":sum", 3), (":nothing", 0)] {
        assert!(cache.join(name, dim).is_err());
        assert!(cache.join_padded(name, dim, 0.).is_err());
    }
    Ok(())
}
