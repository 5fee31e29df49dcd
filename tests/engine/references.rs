//! Bindings that are references: `let residual = x;`, `let y = &self.up.forward(x)?;`.

use candle_core::{Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::check_auto_hook;
use hookpoint::prelude::*;

use crate::models::{bits, full, linear, numbers, wave, Test};

#[derive(AutoHook)]
struct Block {
    norm: Linear,
    up: Linear,
}

#[auto_hook]
impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let residual = x;
        let x = &self.norm.forward(x)?;
        let x = (x + residual)?;
        let residual = &x;
        let mid: &Tensor = &(self.up.forward(&x)? * 2.)?;
        let twice = [1., 2.].iter().try_fold(x.clone(), |sum, factor| {
            let inner = &sum;
            inner + (mid * *factor)?
        })?;
        residual + twice
    }
}

fn block() -> Hooked<Block> {
    Hooked::new(Block { norm: linear(1, 4, 4), up: linear(2, 4, 4) })
}

#[test]
fn what_a_reference_refers_to_is_read_replaced_and_hooked() -> Test {
    let hooked = block();
    let x = wave(1, &[2, 4]);
    let (output, cache) = hooked.run_with_cache([":residual", ":x", ":mid"], |m| m.forward(&x))?;
    assert_eq!(bits(&output), bits(&hooked.forward(&x)?));
    assert_eq!(bits(&cache[":residual.0"]), bits(&x));
    // x, the norm of it, their sum, which is also the second residual.
    assert_eq!(bits(&cache[":x.2"]), bits(&cache[":residual.1"]));
    for key in cache.keys() {
        let patched = hooked.plan().patch(key, &cache[key])?.run(|m| m.forward(&x))?.output;
        assert_eq!(bits(&patched), bits(&output), "{key}");
        let zero = hooked.plan().hook(key, |_, x| Ok(Some((x * 0.)?)))?.run(|m| m.forward(&x))?.output;
        assert_ne!(bits(&zero), bits(&output), "{key}");
    }
    let none = full(0., &[2, 4]);
    let run = hooked.plan().patch(":residual.0", &none)?.cache(["norm", ":x.2"])?.run(|m| m.forward(&x))?;
    assert_eq!(bits(&run.cache[":x.2"]), bits(&run.cache["norm"]));
    Ok(())
}

#[test]
fn gradients_pass_references() -> Test {
    let hooked = block();
    let x = wave(1, &[2, 4]);
    let run = hooked.plan().cache_grad([":residual.0", ":mid"])?.backward(|m| m.forward(&x)?.sum_all())?;
    // `mid` is added three times over.
    assert_eq!(numbers(&run.grads[":mid"]), [3.; 8]);
    assert_eq!(run.grads[":residual.0"].dims(), [2, 4]);
    Ok(())
}

#[test]
fn the_self_check_has_nothing_to_say_about_them() -> Test {
    let hooked = block();
    check_auto_hook(&hooked).strict().run(|m| m.forward(&wave(1, &[2, 4])))?;
    Ok(())
}

#[test]
fn every_round_of_a_loop_keeps_its_own() -> Test {
    #[derive(AutoHook)]
    struct Loops;
    #[auto_hook]
    impl Loops {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut seen: Vec<&Tensor> = Vec::new();
            let parts = [x.clone(), (x * 10.)?, (x * 100.)?];
            for part in &parts {
                let one = part;
                let again = &one.clone();
                drop(again.clone());
                let kept = x;
                seen.push(kept);
                seen.push(one);
            }
            let first = Tensor::stack(&seen, 0)?;
            first.sum(0)
        }
    }
    let hooked = Hooked::new(Loops);
    let x = full(1., &[1]);
    assert_eq!(numbers(&hooked.forward(&x)?), [114.]);
    let count = std::cell::Cell::new(0.);
    let plan = hooked.plan().hook(":kept", |_, x| {
        count.set(count.get() + 1.);
        Ok(Some((x * count.get())?))
    })?;
    // Each of the three is still what it was when the sum is made.
    assert_eq!(numbers(&plan.run(|m| m.forward(&x))?.output), [111. + 1. + 2. + 3.]);
    Ok(())
}

#[test]
fn references_that_may_leave_the_method_are_left_alone() -> Test {
    #[derive(AutoHook)]
    struct Leaves {
        scale: Tensor,
    }
    #[auto_hook]
    impl Leaves {
        fn collect<'a>(&'a self, x: &'a Tensor, out: &mut Vec<&'a Tensor>) -> Result<()> {
            let scale = &self.scale;
            let same = x;
            out.push(scale);
            out.push(same);
            Ok(())
        }
        fn later(&self, x: &Tensor) -> Result<candle_nn::Func<'static>> {
            let x = x.clone();
            Ok(candle_nn::func(move |y| {
                let sum = &(y + &x)?;
                let same = y;
                sum + same
            }))
        }
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let mut all = Vec::new();
            self.collect(x, &mut all)?;
            let sum = (all[0] + all[1])?;
            self.later(&sum)?.forward(x)
        }
    }
    let hooked = Hooked::new(Leaves { scale: full(5., &[1]) });
    let x = full(1., &[1]);
    let (output, cache) = hooked.run_with_cache(["**:*", "**"], |m| m.forward(&x))?;
    assert_eq!((numbers(&output), numbers(&cache[":collect.same"])), (vec![8.], vec![1.]));
    Ok(())
}
