use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{ids, linear, loss, loss_of, mlp, transformer, wave, Test};

#[test]
fn a_loss_of_several_numbers() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let error = model.plan().cache_grad("up")?.backward(|m| m.forward(&wave(2, &[2, 4]))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LossNotScalar { shape } if *shape == [2, 4]), "{error}");
    assert!(error.to_string().contains(".sum_all()"), "{error}");
    Ok(())
}

#[test]
fn a_loss_that_is_an_integer() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let plan = model.plan().cache_grad("up")?;
    let error = plan.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?)?.to_dtype(DType::U32)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LossUntracked { dtype: Some(dtype), .. } if dtype == "u32"));
    Ok(())
}

#[test]
fn a_loss_that_nothing_wanted_is_upstream_of() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let error = model.plan().backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LossUntracked { dtype: None, .. }), "{error}");
    assert!(error.to_string().contains(".cache_grad("), "{error}");
    Ok(())
}

#[test]
fn gradients_of_a_run_without_a_backward_pass() -> Test {
    let mut model = Hooked::new(mlp(1, 4));
    let x = wave(2, &[2, 4]);
    let plan = model.plan().cache("up")?.cache_grad("up")?;
    let mut errors =
        vec![plan.run(|m| m.forward(&x)).unwrap_err(), plan.collect(|m| m.forward(&x)).unwrap_err()];
    drop(plan);
    let plan = model.plan_mut().cache("up")?.hook_grad("up", |_, _| Ok(None))?;
    errors.push(plan.run(|m| m.forward(&x)).unwrap_err());
    errors.push(plan.collect(|m| m.forward(&x)).unwrap_err());
    for (error, name) in errors.iter().zip(["run", "collect", "run", "collect"]) {
        let ErrorKind::NeedsBackward { method, requests } = error.kind() else { panic!("{error}") };
        assert_eq!((method.as_str(), requests.len()), (name, 1));
        assert!(error.to_string().contains(".backward(..)"), "{error}");
    }
    Ok(())
}

#[test]
fn a_point_that_the_loss_does_not_depend_on() -> Test {
    let model = transformer();
    let plan = || model.plan().cache_grad(["blocks.0", "blocks.1", "head"]);
    let first = |m: &crate::models::Transformer| {
        let _ = m.forward(&ids())?;
        loss_of(&m.wte.forward(&ids())?)
    };
    let error = plan()?.backward(first).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LossUntracked { .. }), "{error}");

    let plan = || model.plan().cache("blocks.0")?.cache_grad(["blocks.0", "blocks.1", "head"]);
    let of_block = |_: &Tensor, cache: &ActivationCache| loss_of(&cache["blocks.0"]);
    let error = plan()?.differentiate(|m| m.forward(&ids()), of_block).unwrap_err();
    let ErrorKind::NoGradient { points, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(*points, ["blocks.1", "head"]);
    assert!(error.to_string().contains(".allow_unfired()"), "{error}");

    let run = plan()?.allow_unfired().differentiate(|m| m.forward(&ids()), of_block)?;
    assert_eq!(run.grads.keys().collect::<Vec<_>>(), ["blocks.0"]);
    Ok(())
}

#[test]
fn a_point_that_is_never_reached() -> Test {
    let model = transformer();
    let error = model.plan().cache_grad("blocks.0#1")?.backward(loss).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    Ok(())
}

#[test]
fn the_gradient_of_token_numbers() -> Test {
    let model = transformer();
    for pattern in ["wte:in", ":ids", ":in"] {
        let error = model.plan().cache_grad(pattern)?.backward(loss).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NotDifferentiable { point, dtype } if point == pattern && dtype == "u32"),
            "{error}"
        );
    }
    // Of many points, those that have one.
    let run = model.plan().cache_grad("{wte,head}:in")?.backward(loss)?;
    assert_eq!(run.grads.keys().collect::<Vec<_>>(), ["head:in"]);
    Ok(())
}

#[test]
fn a_point_inside_of_a_module_whose_output_is_patched() -> Test {
    let model = transformer();
    let patch = wave(3, &[2, 3, 4]);
    let plan = model.plan().patch("blocks.0", &patch)?.cache_grad(["blocks.0.mlp", "blocks.0"])?;
    let error = plan.backward(loss).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NoGradient { points, .. } if *points == ["blocks.0.mlp"]),
        "{error}"
    );
    Ok(())
}

/// Quantized weights inside a type that shows nothing of them.
struct Hidden(QMatMul);

impl Module for Hidden {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

#[derive(AutoHook)]
struct Quantized {
    first: Linear,
    hard: Hidden,
    last: Linear,
}

#[auto_hook]
impl Module for Quantized {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.first.forward(x)?;
        let y = self.hard.forward(&x)?;
        // There is a way around it.
        self.last.forward(&(y + x)?)
    }
}

fn quantized() -> Result<Hooked<Quantized>> {
    let f32s = |linear: Linear| -> Result<Linear> {
        let bias = linear.bias().map(|bias| bias.to_dtype(DType::F32)).transpose()?;
        Ok(Linear::new(linear.weight().to_dtype(DType::F32)?, bias))
    };
    let weight = wave(5, &[32, 32]).to_dtype(DType::F32)?;
    let hard = Hidden(QMatMul::from_qtensor(QTensor::quantize(&weight, GgmlDType::Q8_0)?)?);
    Ok(Hooked::new(Quantized { first: f32s(linear(1, 32, 32))?, hard, last: f32s(linear(2, 32, 32))? }))
}

#[test]
fn a_layer_that_no_gradient_can_pass() -> Test {
    let model = quantized()?;
    let x = wave(6, &[2, 32]).to_dtype(DType::F32)?;
    let loss = |m: &Quantized| m.forward(&x)?.sqr()?.sum_all();
    for pattern in ["first", "hard:in", ":in"] {
        let error = model.plan().cache_grad(pattern)?.backward(loss).unwrap_err();
        let ErrorKind::GradientLost { operations } = error.kind() else { panic!("{error}") };
        assert_eq!(*operations, ["`hard`, a `Hidden`"]);
    }
    // Behind it there is nothing to pass.
    let run = model.plan().cache_grad(["hard", "last:in"])?.backward(loss)?;
    assert_eq!(run.grads["hard"].dims(), [2, 32]);
    // And a loss that it plays no part in needs nothing of it.
    let plan = model.plan().cache(":x.1")?.cache_grad("first")?;
    plan.differentiate(|m| m.forward(&x), |_, cache| cache[":x.1"].sqr()?.sum_all())?;
    Ok(())
}

#[derive(AutoHook)]
struct Cut {
    first: Linear,
    inner: Inner,
    last: Linear,
}

#[derive(AutoHook)]
struct Inner {
    layer: Linear,
}

#[auto_hook]
impl Module for Inner {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let before = self.layer.forward(x)?;
        let after = before.detach();
        after * 2.
    }
}

#[auto_hook]
impl Module for Cut {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.first.forward(x)?;
        self.last.forward(&self.inner.forward(&x)?)
    }
}

#[test]
fn a_model_that_detaches() -> Test {
    let inner = Inner { layer: linear(2, 4, 4) };
    let model = Hooked::new(Cut { first: linear(1, 4, 4), inner, last: linear(3, 4, 4) });
    let loss = |m: &Cut| loss_of(&m.forward(&wave(6, &[2, 4]))?);
    let error = model.plan().cache_grad(["first", "last:in"])?.backward(loss).unwrap_err();
    let ErrorKind::GradientLost { operations } = error.kind() else { panic!("{error}") };
    assert!(operations[0].starts_with("`detach` at ") && operations[0].contains("errors.rs:"), "{error}");
    assert!(error.to_string().contains(".allow_barriers()"), "{error}");
    // With leave, nothing is left of it.
    let error = model.plan().cache_grad("first")?.allow_barriers().backward(loss).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("`first`") && text.contains("`detach` at "), "{text}");
    // Behind it all is well.
    model.plan().cache_grad(["inner", "last"])?.backward(loss)?;
    Ok(())
}

#[test]
fn a_cache_without_gradients() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let (_, cache) = model.run_with_cache("up", |m| m.forward(&wave(2, &[2, 4])))?;
    assert!(cache.grad("up").unwrap_err().to_string().contains("cache_grad"));
    let run = model.plan().cache_grad("up")?.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?))?;
    let error = run.cache.grad("upp").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::MissingKey { nearest, .. } if *nearest == ["up"]), "{error}");
    Ok(())
}

#[derive(AutoHook)]
struct Reads {
    first: Linear,
    last: Linear,
}

#[auto_hook]
impl Module for Reads {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.first.forward(x)?;
        let weights = x.to_vec2::<f64>()?;
        let scale = weights[0][0];
        self.last.forward(&(x * scale)?)
    }
}

#[test]
fn a_model_that_reads_numbers_and_goes_on_with_them() -> Test {
    let model = Hooked::new(Reads { first: linear(1, 4, 4), last: linear(2, 4, 4) });
    let loss = |m: &Reads| loss_of(&m.forward(&wave(6, &[2, 4]))?);
    let error = model.plan().cache_grad("first")?.backward(loss).unwrap_err();
    let ErrorKind::GradientLost { operations } = error.kind() else { panic!("{error}") };
    assert!(operations[0].starts_with("`to_vec2` at ") && operations[0].contains("errors.rs:"), "{error}");
    assert!(error.to_string().contains(".allow_barriers()"), "{error}");
    // Behind it all is well, and what is left of a gradient can be had by those who know.
    model.plan().cache_grad("last:in")?.backward(loss)?;
    let run = model.plan().allow_barriers().cache_grad("first")?.backward(loss)?;
    assert_eq!(run.grads["first"].dims(), [2, 4]);
    Ok(())
}

#[derive(Clone, HookValue)]
struct Pair {
    a: Tensor,
    b: Tensor,
}

/// Not annotated, and without a gradient for one of its arguments.
fn product(pair: &Pair) -> Result<Tensor> {
    pair.a.mul(&pair.b.detach())
}

#[derive(AutoHook)]
struct Pairs {
    first: Linear,
}

#[auto_hook]
impl Module for Pairs {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.first.forward(x)?;
        let pair = Pair { a: y.clone(), b: (y * 2.)? };
        product(&pair)
    }
}

#[test]
fn a_function_that_loses_the_gradient_of_a_part_of_its_argument() -> Test {
    let model = Hooked::new(Pairs { first: linear(1, 4, 4) });
    let loss = |m: &Pairs| loss_of(&m.forward(&wave(6, &[2, 4]))?);
    let error = model.plan().cache_grad("first")?.backward(loss).unwrap_err();
    let ErrorKind::GradientLost { operations } = error.kind() else { panic!("{error}") };
    assert!(operations[0].starts_with("`product` at "), "{error}");
    Ok(())
}
