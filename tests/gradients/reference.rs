use candle_core::{Module, Tensor, Var};
use candle_nn::Linear;
use hookpoint::prelude::*;

use crate::models::{bits, loss_of, wave, Mlp, Test};

/// The same numbers, up to the order in which candle adds them.
fn assert_same(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.dims(), expected.dims());
    let difference = (found - expected).unwrap().abs().unwrap().max_all().unwrap();
    assert!(difference.to_scalar::<f64>().unwrap() < 1e-12, "{found} {expected}");
}

fn variables(seed: usize) -> candle_core::Result<(Mlp, Vec<Var>)> {
    let shapes: [&[usize]; 5] = [&[8, 4], &[8], &[4, 8], &[4], &[4]];
    let all: Vec<Var> = (0..5).map(|n| Var::from_tensor(&wave(seed + n, shapes[n])).unwrap()).collect();
    let of = |n: usize| all[n].as_tensor().clone();
    let model =
        Mlp { up: Linear::new(of(0), Some(of(1))), down: Linear::new(of(2), Some(of(3))), scale: of(4) };
    Ok((model, all))
}

#[test]
fn variables_of_a_model_get_the_gradients_that_candle_gives_them() -> Test {
    let (model, variables) = variables(1)?;
    let x = Var::from_tensor(&wave(9, &[2, 4]))?;
    let expected = loss_of(&model.forward(&x)?)?.backward()?;
    let hooked = Hooked::new(model);
    let run = hooked.plan().cache_grad("**")?.backward(|m| loss_of(&m.forward(&x)?))?;
    for variable in variables.iter().chain([&x]) {
        assert_same(run.grad_of(variable).unwrap(), expected.get(variable).unwrap());
    }
    Ok(())
}

#[test]
fn frozen_weights_give_the_same_gradients_at_the_input() -> Test {
    let (model, _) = variables(2)?;
    let x = Var::from_tensor(&wave(9, &[2, 4]))?;
    let expected = loss_of(&model.forward(&x)?)?.backward()?;
    let frozen =
        |linear: &Linear| Linear::new(linear.weight().detach(), linear.bias().map(|bias| bias.detach()));
    let model = Mlp { up: frozen(&model.up), down: frozen(&model.down), scale: model.scale.detach() };
    let hooked = Hooked::new(model);
    let plain = x.as_tensor().detach();
    let run = hooked.plan().cache_grad([":in", "up:in"])?.backward(|m| loss_of(&m.forward(&plain)?))?;
    for name in [":in", "up:in"] {
        assert_same(&run.grads[name], expected.get(&x).unwrap());
    }
    assert!(run.grad_of(&plain).is_none());
    Ok(())
}

#[test]
fn a_loss_of_variables_alone_needs_no_points() -> Test {
    let (model, variables) = variables(3)?;
    let x = wave(9, &[2, 4]);
    let expected = loss_of(&model.forward(&x)?)?.backward()?;
    let hooked = Hooked::new(model);
    let run = hooked.plan().backward(|m| loss_of(&m.forward(&x)?))?;
    for variable in &variables {
        assert_same(run.grad_of(variable).unwrap(), expected.get(variable).unwrap());
    }
    assert!(run.grads.is_empty());
    Ok(())
}

#[test]
fn a_run_without_gradients_leaves_the_graph_of_a_model_with_variables_alone() -> Test {
    let (model, variables) = variables(4)?;
    let x = wave(9, &[2, 4]);
    let expected = loss_of(&model.forward(&x)?)?.backward()?;
    let hooked = Hooked::new(model);
    let run = hooked
        .plan()
        .cache("**")?
        .hook("up", |_, x| Ok(Some((x * 1.)?)))?
        .run(|m| loss_of(&m.forward(&x)?))?;
    let found = run.output.backward()?;
    for variable in &variables {
        assert_eq!(bits(found.get(variable).unwrap()), bits(expected.get(variable).unwrap()));
    }
    Ok(())
}

#[test]
fn a_run_without_gradients_records_no_graph() -> Test {
    let frozen = Hooked::new(crate::models::mlp(5, 4));
    let (output, cache) = frozen.run_with_cache(["**", ":*"], |m| m.forward(&wave(9, &[2, 4])))?;
    assert!(!output.track_op());
    assert!(cache.iter().all(|(_, tensor)| !tensor.track_op()));
    Ok(())
}
