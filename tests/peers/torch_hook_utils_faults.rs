//! What goes wrong in torch-hook-utils, and does not here.

use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{DType, Module, Tensor};
use candle_nn::Activation;
use hookpoint::prelude::*;
use hookpoint::ErrorKind;
use hookpoint_layers::{
    save_maxpool_indices, use_indices_in_maxunpool, AfterUse, Lambda, MaxPool2d, MaxPoolIndices, MaxUnpool2d,
    Rounding, Sample, Sequential,
};

use crate::tensors::{device, linear, numbers, wave, Test};
use crate::torch_hook_utils::{decoder, encoder, image, input, network};

// --- An exception leaves every hook attached --------------------------------------------------------------

#[test]
fn an_error_leaves_nothing_behind() -> Test {
    let model = network(Sample::seeded(1));
    let plain = numbers(&model.forward(&input())?);
    let other = wave(9, &[1, 4]);
    let fail = |m: &Sequential| -> anyhow::Result<Tensor> {
        m.forward(&input())?;
        anyhow::bail!("in the middle")
    };
    for result in [
        model.get_layer_inputs("1", fail).map(|_| ()),
        model.get_layer_outputs("1", fail).map(|_| ()),
        model.replace_layer_inputs(&[("1", other)], fail).map(|_| ()),
        model.replace_layer_outputs(&[("1", wave(9, &[1, 1]))], fail).map(|_| ()),
    ] {
        assert_eq!(result.unwrap_err().to_string(), "in the middle");
        assert_eq!(numbers(&model.forward(&input())?), plain);
    }
    Ok(())
}

#[test]
fn a_panic_leaves_nothing_behind() -> Test {
    let model = network(Sample::seeded(1));
    let plain = numbers(&model.forward(&input())?);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        model.replace_layer_outputs(&[("1", wave(9, &[1, 1]))], |_| -> candle_core::Result<()> {
            panic!("oh")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(numbers(&model.forward(&input())?), plain);
    Ok(())
}

#[test]
fn a_run_that_fails_or_panics_consumes_no_indices() -> Test {
    let (encoded, indices) = save_maxpool_indices(&encoder(), |m| m.forward(&image()))?;
    let decoder = decoder();
    let failed = use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| -> anyhow::Result<()> {
        m.forward(&encoded)?;
        anyhow::bail!("later")
    });
    assert_eq!(failed.unwrap_err().to_string(), "later");
    assert_eq!(indices.len(), 1);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| -> candle_core::Result<()> {
            m.forward(&encoded)?;
            panic!("oh")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(indices.len(), 1);
    assert!(use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| m.forward(&encoded)).is_ok());
    Ok(())
}

#[test]
fn saving_indices_changes_nothing_on_the_layer() -> Test {
    // There, the layer is told to return indices, and stays so if the forward fails.
    let encoder = encoder();
    let before = encoder.get::<MaxPool2d>("pool").cloned();
    let failed = save_maxpool_indices(&encoder, |m| m.forward(&wave(1, &[1, 1])));
    assert!(failed.unwrap_err().to_string().contains("a tensor of shape [1, 1]"));
    assert_eq!(encoder.get::<MaxPool2d>("pool").cloned(), before);
    assert_eq!(encoder.forward(&image())?.to_vec3::<f32>()?, [[[4.]]]);
    Ok(())
}

// --- `replace_layer_outputs` crashes ----------------------------------------------------------------------

#[test]
fn outputs_can_be_replaced() -> Test {
    let model = network(Sample::new());
    let seven = Tensor::full(7f32, (1, 1), &device())?;
    let output = model.replace_layer_outputs(&[("3", seven)], |m| m.forward(&input()))?;
    assert_eq!(numbers(&output), [7.]);
    Ok(())
}

// --- The last call wins -----------------------------------------------------------------------------------

#[test]
fn every_call_is_kept() -> Test {
    let model = network(Sample::seeded(1));
    let (a, b) = (input(), wave(9, &[1, 4]));
    let twice = |m: &Sequential| m.forward(&a).and_then(|_| m.forward(&b));
    let (_, inputs) = model.get_layer_inputs("1", twice)?;
    let calls: Vec<Vec<f32>> = inputs.calls("1:in").into_iter().map(numbers).collect();
    assert_eq!(calls, [numbers(&a), numbers(&b)]);
    assert_eq!(numbers(&inputs["1:in#0"]), numbers(&a));
    Ok(())
}

#[test]
fn every_call_of_a_pooling_is_saved_and_used_in_order() -> Test {
    let (encoder, decoder) = (encoder(), decoder());
    let images = [image(), image().neg()?];
    let (encoded, indices) = save_maxpool_indices(&encoder, |m| {
        images.iter().map(|image| m.forward(image)).collect::<candle_core::Result<Vec<_>>>()
    })?;
    let saved: Vec<_> = indices.calls("pool").iter().map(|indices| numbers(indices)[0]).collect();
    assert_eq!(saved, [3., 0.]);
    let decode = |count: usize| {
        use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| {
            encoded.iter().take(count).map(|x| m.forward(x)).collect::<candle_core::Result<Vec<_>>>()
        })
    };
    // One call uses up one; the rest is there for the next run.
    assert_eq!(decode(1)?[0].to_vec3::<f32>()?, [[[0., 0.], [0., 4.]]]);
    assert_eq!(indices.calls("pool").len(), 1);
    let error = decode(2).unwrap_err().to_string();
    assert!(error.contains("`pool` was called 2 times, and there are indices of 1"), "{error}");
    assert_eq!(indices.calls("pool").len(), 1);
    Ok(())
}

#[test]
fn one_saved_call_serves_every_call_if_it_is_not_consumed() -> Test {
    let (encoded, indices) = save_maxpool_indices(&encoder(), |m| m.forward(&image()))?;
    let decoder = decoder();
    let twice = |m: &Sequential| m.forward(&encoded).and_then(|_| m.forward(&(&encoded * 2.)?));
    let output = use_indices_in_maxunpool(&decoder, &indices, AfterUse::Keep, twice)?;
    assert_eq!(output.to_vec3::<f32>()?, [[[0., 0.], [0., 8.]]]);
    let error =
        use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, twice).unwrap_err().to_string();
    assert!(error.contains("called 2 times"), "{error}");
    assert_eq!(indices.len(), 1);
    Ok(())
}

// --- What is silent or an assertion there -------------------------------------------------------------------

#[test]
fn layers_that_do_not_exist_are_errors() {
    let model = network(Sample::new());
    let x = wave(1, &[1, 1]);
    let nearest = |error: hookpoint::Error| match error.kind() {
        ErrorKind::NoMatch { pattern, .. } => pattern.clone(),
        other => panic!("{other}"),
    };
    assert_eq!(nearest(model.get_layer_inputs("17", |m| m.forward(&input())).unwrap_err()), "17:{in,in.*}");
    assert_eq!(nearest(model.get_layer_outputs("17", |m| m.forward(&input())).unwrap_err()), "17");
    let replaced = model.replace_layer_inputs(&[("17", x.clone())], |m| m.forward(&input()));
    assert_eq!(nearest(replaced.unwrap_err()), "17:in");
    assert_eq!(
        nearest(model.replace_layer_outputs(&[("17", x)], |m| m.forward(&input())).unwrap_err()),
        "17"
    );
}

#[test]
fn values_that_do_not_fit_are_errors() {
    let model = network(Sample::new());
    for dims in [&[1, 5][..], &[4], &[2, 4]] {
        let error = model.replace_layer_inputs(&[("1", wave(1, dims))], |m| m.forward(&input())).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Shape { .. }), "{error}");
    }
    let whole = Tensor::zeros((1, 4), DType::I64, &device()).unwrap();
    let error = model.replace_layer_inputs(&[("1", whole)], |m| m.forward(&input())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DType { .. }), "{error}");
}

fn given(name: &str, indices: Tensor) -> MaxPoolIndices {
    [(name, indices)].into_iter().collect()
}

#[test]
fn indices_that_do_not_fit_are_errors_and_nothing_is_consumed() -> Test {
    let decoder = decoder();
    let x = Tensor::full(4f32, (1, 1, 1), &device())?;
    let decode = |indices: &MaxPoolIndices| {
        let error =
            use_indices_in_maxunpool(&decoder, indices, AfterUse::Consume, |m| m.forward(&x)).unwrap_err();
        assert_eq!(indices.names().len(), 1);
        error
    };
    let error = decode(&given("pool", Tensor::zeros((1, 2, 2), DType::I64, &device())?));
    match error.kind() {
        ErrorKind::Shape { point, expected, found, .. } => {
            assert_eq!(
                (point.as_str(), expected.as_slice(), found.as_slice()),
                ("pool:indices", &[1, 1, 1][..], &[1, 2, 2][..])
            );
        }
        other => panic!("{other}"),
    }
    let error = decode(&given("pool", Tensor::zeros((1, 1, 1), DType::F32, &device())?));
    assert!(matches!(error.kind(), ErrorKind::DType { .. }), "{error}");
    let error = decode(&given("pool", Tensor::full(4i64, (1, 1, 1), &device())?));
    assert!(error.to_string().contains("the index 4") && error.to_string().contains("0 to 3"), "{error}");
    let error = decode(&given("pol", Tensor::full(3i64, (1, 1, 1), &device())?));
    match error.kind() {
        ErrorKind::NoMatch { pattern, nearest } => {
            assert_eq!((pattern.as_str(), &*nearest[0]), ("pol", "pool"))
        }
        other => panic!("{other}"),
    }
    // Of another integer type they fit.
    let small = given("pool", Tensor::full(3u32, (1, 1, 1), &device())?);
    let output = use_indices_in_maxunpool(&decoder, &small, AfterUse::Consume, |m| m.forward(&x))?;
    assert_eq!(output.to_vec3::<f32>()?, [[[0., 0.], [0., 4.]]]);
    Ok(())
}

#[test]
fn indices_that_are_missing_are_errors_that_say_which() -> Test {
    let model = Sequential::new().add("a", MaxUnpool2d::new(2)?)?.add("b", MaxUnpool2d::new(2)?)?;
    let model = Hooked::new(model);
    let x = Tensor::full(4f32, (1, 1, 1), &device())?;
    let indices = given("a", Tensor::zeros((1, 1, 1), DType::I64, &device())?);
    let error = use_indices_in_maxunpool(&model, &indices, AfterUse::Consume, |m| m.forward(&x)).unwrap_err();
    assert!(error.to_string().starts_with("there are no indices for `b`"), "{error}");
    assert_eq!(indices.names(), ["a"]);
    // Without any, the layer says what it needs.
    let error = hookpoint::Error::from(model.forward(&x).unwrap_err()).to_string();
    assert!(error.contains("use_indices_in_maxunpool"), "{error}");
    let error = model.run(|m| m.forward(&x)).unwrap_err().to_string();
    assert!(error.contains("has no indices"), "{error}");
    Ok(())
}

#[test]
fn indices_of_an_image_of_another_size_do_not_end_up_elsewhere() -> Test {
    // An index counts through rows: in a plane of another width it means another place.
    let x = wave(3, &[1, 5, 5]);
    let (encoded, indices) = save_maxpool_indices(&encoder(), |m| m.forward(&x))?;
    let decoded = use_indices_in_maxunpool(&decoder(), &indices, AfterUse::Keep, |m| m.forward(&encoded))?;
    assert_eq!(decoded.dims(), [1, 5, 5]);
    let kept = decoded.ne(0f32)?;
    assert_eq!(numbers(&kept.where_cond(&x, &x.zeros_like()?)?), numbers(&decoded));
    // A layer that is told another size does not fit.
    let fixed = Sequential::new().add("pool", MaxUnpool2d::new(2)?.with_output_size((4, 4)))?;
    let error =
        use_indices_in_maxunpool(&Hooked::new(fixed), &indices, AfterUse::Keep, |m| m.forward(&encoded));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the indices are those of an input of 5 × 5"), "{error}");
    let narrow = Sequential::new().add("pool", MaxUnpool2d::new(2)?.with_stride(1)?)?;
    let error =
        use_indices_in_maxunpool(&Hooked::new(narrow), &indices, AfterUse::Keep, |m| m.forward(&encoded));
    assert!(error.unwrap_err().to_string().contains("cannot be unpooled to 5"));
    Ok(())
}

#[test]
fn models_without_such_layers_are_errors() -> Test {
    let model = Hooked::new(Sequential::new().add("act", Activation::Relu)?);
    let error = save_maxpool_indices(&model, |m| m.forward(&image())).unwrap_err().to_string();
    assert!(error.contains("has no `hookpoint_layers::MaxPool2d`"), "{error}");
    let indices = MaxPoolIndices::new();
    let error =
        use_indices_in_maxunpool(&model, &indices, AfterUse::Keep, |m| m.forward(&image())).unwrap_err();
    assert!(error.to_string().contains("has no `hookpoint_layers::MaxUnpool2d`"), "{error}");
    let error = save_maxpool_indices(&encoder(), |_| image().relu()).unwrap_err().to_string();
    assert!(error.contains("reached no `MaxPool2d`"), "{error}");
    Ok(())
}

// --- State on the model -------------------------------------------------------------------------------------

#[test]
fn threads_share_models_and_each_has_its_own_indices() -> Test {
    let (encoder, decoder) = (encoder(), decoder());
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (encoder, decoder) = (&encoder, &decoder);
            scope.spawn(move || {
                for round in 0..25 {
                    let x = (wave(seed * 100 + round, &[2, 6, 4]) + 2.).unwrap();
                    let (encoded, indices) = save_maxpool_indices(encoder, |m| m.forward(&x)).unwrap();
                    let decoded = use_indices_in_maxunpool(decoder, &indices, AfterUse::Consume, |m| {
                        m.forward(&encoded)
                    })
                    .unwrap();
                    let kept = decoded.ne(0f32).unwrap();
                    let expected = kept.where_cond(&x, &x.zeros_like().unwrap()).unwrap();
                    assert_eq!(numbers(&decoded), numbers(&expected));
                }
            });
        }
    });
    Ok(())
}

#[test]
fn of_several_threads_that_consume_the_same_indices_one_gets_them() -> Test {
    let (encoded, indices) = save_maxpool_indices(&encoder(), |m| m.forward(&image()))?;
    let (decoder, successes) = (decoder(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                if use_indices_in_maxunpool(&decoder, &indices, AfterUse::Consume, |m| m.forward(&encoded))
                    .is_ok()
                {
                    successes.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(successes.into_inner(), 1);
    Ok(())
}

#[test]
fn captured_inputs_and_outputs_do_not_change_the_output() -> Test {
    let model = Sequential::new()
        .add("up", linear(1, 4, 3))?
        .add("square", Lambda::new(|x: &Tensor| x.sqr()))?
        .add("pool", Lambda::new(|x: &Tensor| x.reshape((1, 1, 3))))?
        .add("max", MaxPool2d::new((1, 2))?.with_rounding(Rounding::Ceil))?;
    let model = Hooked::new(model);
    let plain = model.forward(&input())?;
    let (output, _) = model.get_layer_inputs("**", |m| m.forward(&input()))?;
    assert_eq!(numbers(&output), numbers(&plain));
    let (output, _) = model.get_layer_outputs(["**", "**:*"], |m| m.forward(&input()))?;
    assert_eq!(numbers(&output), numbers(&plain));
    Ok(())
}
