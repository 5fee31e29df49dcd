use candle_core::{Module, Result, Tensor, Var};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::{ErrorKind, Recording};
use hookpoint_interp::ablate;

use crate::models::*;

/// What a plan gives with and without replay is the same to the bit.
macro_rules! same {
    ($recording:expr, $plan:expr, $x:expr) => {{
        let plain = $plan()?.run(|m| m.forward($x))?;
        let replayed = $plan()?.replay($recording)?.run(|m| m.forward($x))?;
        assert_eq!(bits(&plain.output), bits(&replayed.output));
        assert_eq!(plain.cache.keys().collect::<Vec<_>>(), replayed.cache.keys().collect::<Vec<_>>());
        for key in plain.cache.keys() {
            let (one, other) = (plain.cache.calls(key), replayed.cache.calls(key));
            assert_eq!(one.len(), other.len(), "{key}");
            assert!(one.iter().zip(other).all(|(one, other)| bits(one) == bits(other)), "{key}");
        }
        assert_eq!(plain.fired().collect::<Vec<_>>(), replayed.fired().collect::<Vec<_>>());
        replayed.replayed().map(str::to_string).collect::<Vec<_>>()
    }};
}

#[test]
fn whole_layers_before_the_change_do_not_run() -> Test {
    let (model, x) = (stack(6), wave(0, &[2, 3, 4]));
    let (output, recording) = model.record(|m| m.forward(&x))?;
    assert_eq!(bits(&output), bits(&model.forward(&x)?));
    model.ran.take();
    let run = model.plan().hook("layers.3:hidden[:, 1]", ablate::zero())?.replay(&recording)?;
    let run = run.run(|m| m.forward(&x))?;
    assert_eq!(run.replayed().collect::<Vec<_>>(), ["layers.0", "layers.1", "layers.2", "layers.3.up"]);
    assert_eq!(model.ran.take(), 3); // 3, 4 and 5
    let plain = model.plan().hook("layers.3:hidden[:, 1]", ablate::zero())?.run(|m| m.forward(&x))?;
    assert_eq!(bits(&run.output), bits(&plain.output));
    Ok(())
}

#[test]
fn every_kind_of_point_is_where_the_same_ends() -> Test {
    let (model, x) = (stack(4), wave(0, &[2, 3, 4]));
    let (_, recording) = model.record(|m| m.forward(&x))?;
    let double = |_: &hookpoint::HookCtx<'_>, t: &candle_core::Tensor| Ok(Some((t * 2.)?));
    for (point, expected) in [
        ("layers.2", vec!["layers.0", "layers.1", "layers.2"]), // its own output needs no run
        ("layers.2:in", vec!["layers.0", "layers.1"]),
        ("layers.2:x", vec!["layers.0", "layers.1"]),
        ("layers.2.up", vec!["layers.0", "layers.1", "layers.2.up"]),
        ("layers.2.down:in", vec!["layers.0", "layers.1", "layers.2.up"]),
        ("layers.2.scale", vec!["layers.0", "layers.1", "layers.2.up", "layers.2.down"]),
        (":stream.0", vec![]),
        ("", vec!["layers.0", "layers.1", "layers.2", "layers.3", "head"]),
    ] {
        let mut replayed = same!(&recording, (|| model.plan().hook(point, double)), &x);
        if point.is_empty() {
            // All of it was the same: the model itself is answered.
            replayed =
                if replayed == [""] { expected.iter().map(ToString::to_string).collect() } else { replayed };
        }
        assert_eq!(replayed, expected, "{point}");
    }
    Ok(())
}

#[test]
fn what_is_wanted_on_the_way_fires_as_always() -> Test {
    let (model, x) = (stack(4), wave(0, &[2, 3, 4]));
    let (_, recording) = model.record(|m| m.forward(&x))?;
    let plan = || model.plan().cache(["layers.1:hidden", "layers.0", "layers.3"]);
    let replayed = same!(&recording, plan, &x);
    assert_eq!(replayed, ["layers.0", "layers.1.up", "layers.1.down", "layers.2", "layers.3", "head"]);
    let everything = same!(&recording, (|| model.plan().cache(["**", "**:*"])), &x);
    assert!(!everything.iter().any(|name| name == "layers.0"), "{everything:?}");
    let plan = || {
        model.plan().hook_call("layers.2", |_, call| Ok(Some(vec![(&call.outputs[0] + &call.inputs[0])?])))
    };
    assert_eq!(same!(&recording, plan, &x), ["layers.0", "layers.1"]);
    Ok(())
}

#[test]
fn a_run_that_collects_ends_where_it_would() -> Test {
    let (model, x) = (stack(4), wave(0, &[2, 3, 4]));
    let (_, recording) = model.record(|m| m.forward(&x))?;
    for point in ["layers.2", "layers.2:hidden", "layers.2.up:in"] {
        let plain = model.plan().cache(point)?.collect(|m| m.forward(&x))?;
        let replayed = model.plan().cache(point)?.replay(&recording)?.collect(|m| m.forward(&x))?;
        assert_eq!(bits(&plain[point]), bits(&replayed[point]));
    }
    Ok(())
}

#[test]
fn calls_of_a_repeated_module_are_told_apart() -> Test {
    let (model, x) = (repeated(5), wave(0, &[2, 3, 4]));
    let (_, recording) = model.record(|m| m.forward(&x))?;
    for call in 0..5 {
        let patch = || model.plan().patch(format!("layer#{call}[:, 1]"), &wave(9, &[2, 4]));
        assert_eq!(same!(&recording, patch, &x), vec!["layer"; call + 1]);
        let inside = || model.plan().hook(format!("layer:hidden#{call}"), ablate::zero());
        let replayed = same!(&recording, inside, &x);
        assert_eq!(replayed.iter().filter(|name| *name == "layer.up").count(), call + 1);
    }
    Ok(())
}

#[test]
fn a_shared_module_is_answered_by_its_path() -> Test {
    let (model, x) = (shared(), wave(0, &[2, 3, 4]));
    let (_, recording) = model.record(|m| m.forward(&x))?;
    let plan = || model.plan().hook("second:hidden", ablate::zero());
    assert_eq!(same!(&recording, plan, &x), ["first", "middle", "second.up"]);
    Ok(())
}

#[test]
fn a_module_with_a_cell_runs() -> Test {
    let (model, x) = (remembers(), wave(0, &[2, 3, 4]));
    let (_, recording) = model.record(|m| m.forward(&x))?;
    model.memory.calls.set(0);
    let plan = || model.plan().hook("layer:hidden", ablate::zero());
    assert_eq!(same!(&recording, plan, &x), ["memory.linear", "memory.linear", "layer.up"]);
    assert_eq!(model.memory.calls.get(), 4);
    Ok(())
}

#[test]
fn methods_that_take_something_mutably_run() -> Test {
    let (mut model, x) = (counting(), wave(0, &[2, 3, 4]));
    let (output, recording): (_, Recording) = model.plan_mut().record(|m| m.forward(&x))?;
    assert_eq!(bits(&output), bits(&model.plan_mut().run(|m| m.forward(&x))?.output));
    let plain = model.plan_mut().hook("head", ablate::scale(2.))?.run(|m| m.forward(&x))?;
    let plan = model.plan_mut().hook("head", ablate::scale(2.))?.replay(&recording)?;
    for _ in 0..2 {
        let run = plan.run(|m| m.forward(&x))?;
        assert_eq!(bits(&run.output), bits(&plain.output));
        assert_eq!(run.replayed().collect::<Vec<_>>(), ["counts.linear", "counts.linear", "layer", "head"]);
    }
    drop(plan);
    assert_eq!(model.counts.seen, 2);
    Ok(())
}

#[test]
fn a_gradient_run_cannot_be_replayed() -> Test {
    let (model, x) = (stack(2), wave(0, &[2, 3, 4]));
    let (_, recording) = model.record(|m| m.forward(&x))?;
    let Err(error) = model.plan().cache_grad("layers.0")?.replay(&recording) else { panic!() };
    assert!(error.to_string().contains("has no gradients"), "{error}");
    let plan = model.plan().replay(&recording)?.cache_grad("layers.0")?;
    let error = plan.backward(|m| m.forward(&x)?.sum_all()).unwrap_err();
    assert!(error.to_string().contains("has no gradients"), "{error}");
    Ok(())
}

#[test]
fn a_recording_of_another_model_is_refused() -> Test {
    let x = wave(0, &[2, 3, 4]);
    let (_, recording) = stack(3).record(|m| m.forward(&x))?;
    let other = stack(2);
    let Err(error) = other.plan().replay(&recording) else { panic!() };
    assert!(error.to_string().contains("another model"), "{error}");
    Ok(())
}

/// Why a recording is refused.
fn stale<T>(result: hookpoint::Result<T>) -> String {
    let Err(error) = result else { panic!("the old numbers were given") };
    match error.kind() {
        ErrorKind::StaleRecording { what } => what.clone(),
        other => panic!("{other}"),
    }
}

/// Two blocks and what comes in between; the second input comes late.
#[derive(AutoHook)]
struct Late {
    first: Linear,
    block: LateBlock,
    last: Linear,
}

#[derive(AutoHook)]
struct LateBlock {
    linear: Linear,
    scale: Tensor,
}

#[auto_hook]
impl LateBlock {
    fn forward(&self, x: &Tensor, position: usize, mask: Option<&Tensor>) -> Result<Tensor> {
        let hidden = (self.linear.forward(x)? + position as f64)?.broadcast_mul(&self.scale)?;
        match mask {
            Some(mask) => hidden.broadcast_mul(mask),
            None => Ok(hidden),
        }
    }
}

#[auto_hook]
impl Late {
    fn forward(&self, x: &Tensor, y: &Tensor, position: usize, mask: Option<&Tensor>) -> Result<Tensor> {
        let first = self.first.forward(x)?;
        let block = self.block.forward(&(first + y)?, position, mask)?;
        self.last.forward(&block)
    }
}

fn late() -> Late {
    let block = LateBlock { linear: linear(2, 4, 4), scale: wave(3, &[4]) };
    Late { first: linear(1, 4, 4), block, last: linear(4, 4, 4) }
}

#[test]
fn another_input_than_the_recorded_one_is_an_error() -> Test {
    let model = Hooked::new(late());
    let (x, y, mask) = (wave(1, &[2, 4]), wave(2, &[2, 4]), wave(5, &[4]));
    let (output, recording) = model.record(|m| m.forward(&x, &y, 3, Some(&mask)))?;
    let plan = model.plan().hook("last:in", |_, x| Ok(Some((x * 1.)?)))?.replay(&recording)?;
    let run = plan.run(|m| m.forward(&x, &y, 3, Some(&mask)))?;
    assert_eq!(bits(&run.output), bits(&output));
    assert_eq!(run.replayed().collect::<Vec<_>>(), ["first", "block"]);
    // The same numbers somewhere else are the same input.
    plan.run(|m| m.forward(&x.copy()?, &y.copy()?, 3, Some(&mask.copy()?)))?;

    let other = wave(9, &[2, 4]);
    assert_eq!(
        stale(plan.run(|m| m.forward(&other, &y, 3, Some(&mask)))),
        "`first` is called with something else"
    );
    assert_eq!(
        stale(plan.run(|m| m.forward(&x, &other, 3, Some(&mask)))),
        "`block` is called with something else"
    );
    stale(plan.run(|m| m.forward(&x, &y, 4, Some(&mask))));
    stale(plan.run(|m| m.forward(&x, &y, 3, Some(&other.get(0)?))));
    stale(plan.run(|m| m.forward(&x, &y, 3, None)));
    stale(plan.run(|m| m.forward(&x.narrow(0, 0, 1)?, &y.narrow(0, 0, 1)?, 3, Some(&mask))));
    Ok(())
}

#[test]
fn one_bit_of_the_input_is_another_input() -> Test {
    let model = Hooked::new(late());
    let (x, y) = (wave(1, &[2, 4]), wave(2, &[2, 4]));
    let (_, recording) = model.record(|m| m.forward(&x, &y, 0, None))?;
    let plan = model.plan().cache("last")?.replay(&recording)?;
    let mut bits: Vec<f32> = x.flatten_all()?.to_vec1()?;
    bits[7] = f32::from_bits(bits[7].to_bits() ^ 1);
    let other = Tensor::from_vec(bits, (2, 4), x.device())?;
    stale(plan.run(|m| m.forward(&other, &y, 0, None)));
    Ok(())
}

#[test]
fn weights_that_were_set_after_the_recording_are_an_error() -> Test {
    let weight = Var::from_tensor(&wave(7, &[4, 4]))?;
    let scale = Var::from_tensor(&wave(8, &[4]))?;
    let mut all = late();
    all.first = Linear::new(weight.as_tensor().clone(), None);
    all.block.scale = scale.as_tensor().clone();
    let model = Hooked::new(all);
    let (x, y) = (wave(1, &[2, 4]), wave(2, &[2, 4]));
    let run = |m: &Late| m.forward(&x, &y, 0, None);
    let record = || model.record(run).map(|(_, recording)| recording);
    let changed = |variable: &Var| variable.set(&(variable.as_tensor() * 1.001)?);

    let recording = record()?;
    let plan = model.plan().cache("last")?.replay(&recording)?;
    plan.run(run)?;
    changed(&weight)?;
    stale(plan.run(run));
    let recording = record()?;
    let plan = model.plan().cache("last")?.replay(&recording)?;
    changed(&scale)?;
    stale(plan.run(run));
    // One element, in the middle.
    let recording = record()?;
    let plan = model.plan().cache("last")?.replay(&recording)?;
    weight.slice_set(&Tensor::zeros((1, 4), candle_core::DType::F32, x.device())?, 0, 2)?;
    stale(plan.run(run));
    let recording = record()?;
    assert!(model.plan().cache("last")?.replay(&recording)?.run(run)?.replayed().count() > 0);
    Ok(())
}

#[test]
fn a_layer_that_was_replaced_after_the_recording_is_an_error() -> Test {
    let mut model = Hooked::new(late());
    let (x, y) = (wave(1, &[2, 4]), wave(2, &[2, 4]));
    let run = |m: &Late| m.forward(&x, &y, 0, None);
    let (_, recording) = model.record(run)?;
    model.block.linear = linear(20, 4, 4);
    let what = stale(model.plan().cache("last")?.replay(&recording)?.run(run));
    assert!(what.contains("`block.linear"), "{what}");
    Ok(())
}

/// A layer of somebody else's, which does not show its weight.
struct Closed(Tensor);

impl candle_core::Module for Closed {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.broadcast_mul(&self.0)
    }
}

#[derive(AutoHook)]
struct HasClosed {
    closed: Closed,
    last: Linear,
}

#[auto_hook]
impl HasClosed {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.closed.forward(x)?;
        self.last.forward(&hidden)
    }
}

#[test]
fn a_variable_that_a_layer_does_not_show_is_noticed_too() -> Test {
    let hidden = Var::from_tensor(&wave(7, &[4]))?;
    let closed = Closed(hidden.as_tensor().clone());
    let model = Hooked::new(HasClosed { closed, last: linear(1, 4, 4) });
    let x = wave(1, &[2, 4]);
    let (_, recording) = model.record(|m| m.forward(&x))?;
    let plan = model.plan().cache("last:in")?.replay(&recording)?;
    assert_eq!(plan.run(|m| m.forward(&x))?.replayed().count(), 1);
    hidden.set(&wave(8, &[4]))?;
    assert_eq!(stale(plan.run(|m| m.forward(&x))), "a variable was set since then");
    Ok(())
}

#[derive(AutoHook)]
struct Normed {
    first: Linear,
    norm: candle_nn::RmsNorm,
    slope: candle_nn::PReLU,
    mix: candle_core::quantized::QMatMul,
    last: Linear,
}

#[auto_hook]
impl Normed {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.slope.forward(&self.norm.forward(&self.first.forward(x)?)?)?;
        self.last.forward(&self.mix.forward(&hidden)?)
    }
}

#[test]
fn the_weight_of_any_layer_that_shows_it_is_noticed_when_it_is_replaced() -> Test {
    use candle_core::quantized::QMatMul;
    use candle_nn::{PReLU, RmsNorm};
    let x = wave(1, &[2, 4]);
    type Change = fn(&mut Normed);
    let changes: [(&str, Change); 3] = [
        ("`norm", |m| m.norm = RmsNorm::new(wave(21, &[4]), 1e-5)),
        ("`slope", |m| m.slope = PReLU::new(wave(22, &[1]), true)),
        ("`mix", |m| m.mix = QMatMul::Tensor(wave(23, &[4, 4]))),
    ];
    for (name, change) in changes {
        let mut model = Hooked::new(Normed {
            first: linear(1, 4, 4),
            norm: RmsNorm::new(wave(2, &[4]), 1e-5),
            slope: PReLU::new(wave(3, &[1]), true),
            mix: QMatMul::Tensor(wave(4, &[4, 4])),
            last: linear(5, 4, 4),
        });
        let (_, recording) = model.record(|m| m.forward(&x))?;
        model.plan().cache("last:in")?.replay(&recording)?.run(|m| m.forward(&x))?;
        change(&mut model);
        let what = stale(model.plan().cache("last:in")?.replay(&recording)?.run(|m| m.forward(&x)));
        assert!(what.contains(name), "{what}");
    }
    Ok(())
}
