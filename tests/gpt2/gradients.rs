use candle_core::Tensor;
use hookpoint::prelude::*;

use crate::fixtures::{assert_within, expected, model, numbers, Test, CASES};
use crate::parity::our_name;

/// Equal up to one part in ten thousand; numbers next to 0 up to a hundred-thousandth of the largest.
#[track_caller]
fn assert_same_gradient(what: &str, found: &Tensor, expected: &Tensor) {
    let largest = numbers(expected).into_iter().fold(0., |largest: f32, number| largest.max(number.abs()));
    assert!(largest > 0., "{what} is 0 everywhere");
    assert_within(what, found, expected, 1e-4, 1e-5 * largest);
}

fn loss(logits: &Tensor, ids: &Tensor) -> candle_core::Result<Tensor> {
    let (batch, pos) = ids.dims2()?;
    let predicted = logits.narrow(1, 0, pos - 1)?.reshape((batch * (pos - 1), ()))?;
    let targets = ids.narrow(1, 1, pos - 1)?.flatten_all()?.contiguous()?;
    candle_nn::loss::cross_entropy(&predicted, &targets)
}

#[test]
fn gradients_of_hidden_states_patterns_and_modules_are_those_of_pytorch() -> Test {
    // Checkpoints in half precision are left to the tests of the forward pass.
    for case in CASES.into_iter().filter(|case| !case.ends_with("f16")) {
        let (model, expected) = (Hooked::new(model(case)), expected(case));
        let (ids, layers) = (&expected["ids"], model.config().n_layer);
        let points = ["**", "blocks.*:resid_pre", "blocks.*.attn:pattern"];
        let run = model.plan().cache_grad(points)?.backward(|m| loss(&m.forward(ids)?, ids))?;
        assert_within(&format!("{case}: loss"), &run.loss, &expected["loss"], 1e-4, 0.);
        let mut compared = (0, 0, 0);
        for (name, wanted) in &expected {
            let Some(name) = name.strip_prefix("grad.") else { continue };
            let what = format!("{case}: the gradient of {name}");
            if let Some(layer) = name.strip_prefix("attentions.") {
                let point = format!("blocks.{layer}.attn.hook_pattern");
                assert_same_gradient(&what, &run.grads[point.as_str()], wanted);
                compared.0 += 1;
            } else if let Some(layer) = name.strip_prefix("hidden_states.") {
                let point = match layer.parse::<usize>()? == layers {
                    true => "ln_final".to_string(),
                    false => format!("blocks.{layer}.hook_resid_pre"),
                };
                assert_same_gradient(&what, &run.grads[point.as_str()], wanted);
                compared.1 += 1;
            } else if let Some(module) = name.strip_prefix("module.") {
                let wanted = if module.ends_with("wpe") { wanted.squeeze(0)? } else { wanted.clone() };
                assert_same_gradient(&what, &run.grads[our_name(module).as_str()], &wanted);
                compared.2 += 1;
            }
        }
        assert_eq!((compared.0, compared.1), (layers, layers + 1), "{case}");
        assert!(compared.2 > 8 * layers, "{case}: {} modules", compared.2);
    }
    Ok(())
}
