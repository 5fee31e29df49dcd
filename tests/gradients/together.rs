use candle_core::Module;
use hookpoint::prelude::*;

use crate::models::{bits, ids, loss, loss_of, mlp, numbers, transformer, wave, Test};

#[test]
fn the_gradient_is_that_of_what_the_model_went_on_with() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let x = wave(2, &[2, 4]);
    let other = wave(40, &[2, 8]);
    // With a patch, the gradient at the point is that of the patched value.
    let run = model
        .plan()
        .patch("up", &other)?
        .cache_grad("up")?
        .cache("up")?
        .backward(|m| loss_of(&m.forward(&x)?))?;
    assert_eq!(bits(&run.cache["up"]), bits(&other));
    let hooked = model
        .plan()
        .hook("up", |_, _| Ok(Some(other.clone())))?
        .cache_grad("up")?
        .backward(|m| loss_of(&m.forward(&x)?))?;
    assert_eq!(bits(&run.grads["up"]), bits(&hooked.grads["up"]));
    assert_eq!(run.skipped().collect::<Vec<_>>(), ["up"]);
    Ok(())
}

#[test]
fn what_a_hook_returns_stays_in_the_graph() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let x = wave(2, &[2, 4]);
    let run = model
        .plan()
        .hook("up", |_, value| Ok(Some((value * 3.)?)))?
        .cache_grad(["up:in", "up"])?
        .backward(|m| loss_of(&m.forward(&x)?))?;
    // At `up` the gradient of the tripled value, and three times as much before it.
    let expected = (run.grads["up"].matmul(model.up.weight())? * 3.)?;
    for (a, b) in numbers(&run.grads["up:in"]).iter().zip(numbers(&expected)) {
        assert!((a - b).abs() < 1e-12);
    }
    Ok(())
}

#[test]
fn a_patched_part_gets_no_gradient_from_before() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let x = wave(2, &[2, 4]);
    let run = model
        .plan()
        .patch(":hidden[0]", &wave(3, &[8]))?
        .patch(":hidden[1, ::2]", &wave(4, &[4]))?
        .cache_grad([":hidden", "up"])?
        .backward(|m| loss_of(&m.forward(&x)?))?;
    assert!(numbers(&run.grads[":hidden"]).iter().all(|n| *n != 0.));
    let up = numbers(&run.grads["up"]);
    for (n, grad) in up.iter().enumerate() {
        assert_eq!(*grad != 0., n >= 8 && n % 2 == 1, "{up:?}");
    }
    Ok(())
}

#[test]
fn all_of_it_in_one_run() -> Test {
    let model = transformer();
    let clean = model.run_with_cache("blocks.0", |m| m.forward(&ids()))?.1;
    let plan = model
        .plan()
        .patch("blocks.0[:, 0]", &(&clean["blocks.0[:, 0]"] * 2.)?)?
        .hook("blocks.1.attn:pattern", |_, pattern| Ok(Some((pattern * 0.5)?)))?
        .hook_grad("head", |_, grad| Ok(Some((grad * 2.)?)))?
        .cache("blocks.1")?
        .cache_grad(["wte", "blocks.1"])?;
    // The same plan, run twice, gives the same.
    let (a, b) = (plan.backward(loss)?, plan.backward(loss)?);
    for name in ["wte", "blocks.1"] {
        assert_eq!(bits(&a.grads[name]), bits(&b.grads[name]));
    }
    let fired: Vec<_> = a.fired().collect();
    assert_eq!(fired.len(), 6);
    assert!(fired.iter().all(|(_, times)| *times == 1), "{fired:?}");
    Ok(())
}
