use candle_core::{Module, Tensor};
use hookpoint::prelude::*;
use hookpoint::CacheOptions;

use crate::models::{bits, ids, keys, loss, loss_of, mlp, numbers, transformer, wave, Test};

#[test]
fn gradients_come_in_the_order_of_the_forward_pass() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let plan = model.plan().cache("**")?.cache_grad("**")?;
    let run = plan.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?))?;
    assert_eq!(keys(&run.grads), ["up", "down", "scale", ""]);
    assert_eq!(keys(&run.grads), keys(&run.cache));
    for (name, value) in run.cache.iter() {
        assert_eq!(run.grads[name].dims(), value.dims());
        assert_eq!(bits(run.cache.grad(name)?), bits(&run.grads[name]));
    }
    Ok(())
}

#[test]
fn a_part_of_a_gradient_is_that_part_of_the_whole() -> Test {
    let model = transformer();
    let plan = model.plan().cache_grad([
        "blocks.1.attn:pattern",
        "blocks.1.attn:pattern[:, 1, -1]",
        "blocks.0[:, ::2]",
        "blocks.0",
        "head[*, 0]",
        "head",
    ])?;
    let run = plan.backward(loss)?;
    let whole = &run.grads["blocks.1.attn:pattern"];
    let part = &run.grads["blocks.1.attn:pattern[:, 1, -1]"];
    assert_eq!(bits(part), bits(&whole.narrow(1, 1, 1)?.narrow(2, 2, 1)?));
    assert_eq!(run.grads["blocks.0[:, ::2]"].dims(), [2, 2, 4]);
    assert_eq!(bits(&run.grads["head[1, 0]"]), bits(&run.grads["head"].get(1)?.get(0)?));
    Ok(())
}

#[test]
fn every_call_of_a_point_has_its_gradient() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let (first, second) = (wave(2, &[1, 4]), wave(3, &[2, 4]));
    let twice = |m: &crate::models::Mlp| loss_of(&m.forward(&first)?)? + loss_of(&m.forward(&second)?)?;
    let run = model.plan().cache_grad(["up", "down:in"])?.backward(twice)?;
    for name in ["up", "down:in"] {
        let calls = run.grads.calls(name);
        assert_eq!(calls.iter().map(|grad| grad.dim(0).unwrap()).collect::<Vec<_>>(), [1, 2]);
        let alone = model.plan().cache_grad(name)?.backward(|m| loss_of(&m.forward(&second)?))?;
        assert_eq!(bits(calls[1]), bits(&alone.grads[name]));
        assert_eq!(bits(&run.grads[name]), bits(calls[1]));
    }
    let run = model.plan().cache_grad("up#0")?.backward(twice)?;
    assert_eq!(run.grads["up#0"].dims(), [1, 8]);
    assert_eq!(run.grads.calls("up").len(), 1);
    Ok(())
}

#[test]
fn the_gradient_at_an_input_comes_through_that_module_alone() -> Test {
    let model = transformer();
    let run = model.plan().cache_grad(["blocks.1:in", "blocks.1.ln:in", "blocks.0"])?.backward(loss)?;
    // `blocks.0` gives what `blocks.1` is given, and nothing else uses it.
    assert_eq!(bits(&run.grads["blocks.1:in"]), bits(&run.grads["blocks.0"]));
    // The norm is not the only thing in the block that uses its input.
    assert_ne!(bits(&run.grads["blocks.1.ln:in"]), bits(&run.grads["blocks.1:in"]));
    Ok(())
}

#[test]
fn the_gradient_at_a_parameter_is_that_of_what_is_computed_with_it() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let run =
        model.plan().cache_grad(["scale", ""])?.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?))?;
    assert_eq!(bits(&run.grads["scale"]), bits(&run.grads[""]));
    Ok(())
}

#[test]
fn values_are_the_same_bit_for_bit_with_and_without_taps() -> Test {
    let model = transformer();
    let every = ["**", "**:*"];
    let (_, plain) = model.run_with_cache(every, |m| m.forward(&ids()))?;
    let names: Vec<&str> =
        plain.iter().filter(|(_, value)| value.dtype().is_float()).map(|(name, _)| name).collect();
    let run = model.plan().allow_unfired().cache(every)?.cache_grad(&names)?.backward(loss)?;
    for (name, value) in plain.iter().filter(|(_, value)| value.dtype().is_float()) {
        let tapped = &run.cache[name];
        assert_eq!(bits(value), bits(tapped), "{name}");
        assert_eq!(value.is_contiguous(), tapped.is_contiguous(), "{name}");
    }
    Ok(())
}

#[test]
fn nothing_that_a_run_gives_is_tracked() -> Test {
    let model = transformer();
    let plan = model.plan().cache("**")?.cache_grad("**")?;
    let run = plan.differentiate(|m| m.forward(&ids()), |out, _| loss_of(out))?;
    let tensors = run.cache.iter().chain(run.grads.iter()).map(|(_, tensor)| tensor);
    assert!(tensors.chain([&run.output]).all(|tensor| !tensor.track_op()));
    // But for the loss, which refuses to be differentiated again: see `training`.
    assert!(run.loss.track_op());
    Ok(())
}

#[test]
fn a_loss_may_be_computed_from_what_is_cached() -> Test {
    let model = transformer();
    let plan = model.plan().cache("blocks.0.attn:pattern")?.cache_grad(["blocks.0.attn:scores.0", "wte"])?;
    let run =
        plan.differentiate(|m| m.forward(&ids()), |_, cache| loss_of(&cache["blocks.0.attn:pattern"]))?;
    assert_eq!(run.output.dims(), [2, 3, 5]);
    // The gradient of a softmax sums to nothing in each row.
    let sums = numbers(&run.grads["blocks.0.attn:scores.0"].sum(3)?);
    assert!(sums.iter().all(|sum| sum.abs() < 1e-12), "{sums:?}");
    // What comes later is not needed, and a loss of both adds up.
    let both = plan.differentiate(
        |m| m.forward(&ids()),
        |out, cache| loss_of(out)? + loss_of(&cache["blocks.0.attn:pattern"])?,
    )?;
    let other = plan.backward(loss)?;
    let sum = (&run.grads["wte"] + &other.grads["wte"])?;
    for (a, b) in numbers(&sum).iter().zip(numbers(&both.grads["wte"])) {
        assert!((a - b).abs() < 1e-9 * (1. + b.abs()));
    }
    Ok(())
}

#[test]
fn gradients_may_be_kept_in_another_dtype() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let options = CacheOptions::new().dtype(candle_core::DType::F32);
    let run =
        model.plan().cache_grad(options.at("up"))?.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?))?;
    assert_eq!(run.grads["up"].dtype(), candle_core::DType::F32);
    Ok(())
}

#[test]
fn a_part_that_is_kept_owns_its_memory() -> Test {
    let model = Hooked::new(mlp(1, 4));
    let run = model.plan().cache_grad("up[:, 0]")?.backward(|m| loss_of(&m.forward(&wave(2, &[2, 4]))?))?;
    let part: &Tensor = &run.grads["up[:, 0]"];
    let (storage, _) = part.storage_and_layout();
    if let candle_core::Storage::Cpu(candle_core::CpuStorage::F64(data)) = &*storage {
        assert_eq!(data.len(), 2);
    }
    Ok(())
}
