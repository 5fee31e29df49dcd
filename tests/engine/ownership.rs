use std::sync::Mutex;

use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::kv_cache::RotatingKvCache;
use candle_nn::{Linear, Optimizer, SGD};
use hookpoint::prelude::*;

use crate::models::{bits, device, full, linear, numbers, wave, zeros, Test};

/// Keeps what it has seen in a buffer of four positions that is written in place, as KV caches do.
#[derive(AutoHook)]
struct Remembers {
    /// [1, 4, 2]
    buffer: Tensor,
    #[hook(skip)]
    hidden: Mutex<(Tensor, usize)>,
}

#[auto_hook]
impl Remembers {
    /// x: [1, pos, 2]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut state = self.hidden.lock().unwrap();
        let at = state.1 % 4;
        state.0.slice_set(x, 1, at)?;
        self.buffer.slice_set(x, 1, at)?;
        state.1 = at + x.dim(1)?;
        let seen = state.0.narrow(1, 0, state.1)?;
        let buffer = self.buffer.clone();
        let flat = buffer.flatten_all()?;
        let window = self.buffer.narrow(1, 0, 1)?;
        (seen.sum_all()? + flat.sum_all()?)? + window.sum_all()?
    }
}

fn remembers() -> Hooked<Remembers> {
    let hidden = Mutex::new((zeros(&[1, 4, 2]), 0));
    Hooked::new(Remembers { buffer: zeros(&[1, 4, 2]), hidden })
}

#[test]
fn buffers_that_are_written_in_place_do_not_change_what_was_cached() -> Test {
    let hooked = remembers();
    let (_, first) = hooked
        .run_with_cache([":seen", ":buffer", ":flat", ":window"], |m| m.forward(&full(1., &[1, 2, 2])))?;
    let before: Vec<Vec<f32>> = first.iter().map(|(_, tensor)| numbers(tensor)).collect();
    assert_eq!(before[0], [1.; 4]);
    for value in [2., 3., 4.] {
        hooked.forward(&full(value, &[1, 2, 2]))?;
    }
    let after: Vec<Vec<f32>> = first.iter().map(|(_, tensor)| numbers(tensor)).collect();
    assert_eq!(after, before);
    Ok(())
}

#[test]
fn a_cached_part_does_not_keep_the_whole_alive() -> Test {
    let hooked = remembers();
    let (_, cache) =
        hooked.run_with_cache([":seen[:, 0]", ":window"], |m| m.forward(&full(1., &[1, 2, 2])))?;
    for (name, tensor) in cache.iter() {
        let (storage, layout) = tensor.storage_and_layout();
        assert_eq!(layout.start_offset(), 0);
        match &*storage {
            candle_core::Storage::Cpu(candle_core::CpuStorage::F32(data)) => {
                assert_eq!(data.len(), tensor.elem_count(), "{name}");
            }
            _ => assert!(!matches!(device(), Device::Cpu)),
        }
    }
    Ok(())
}

#[derive(AutoHook)]
struct Views;

#[auto_hook]
impl Views {
    /// x: [2, 6]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let left = x.narrow(1, 0, 3)?;
        let row = x.narrow(0, 1, 1)?;
        let turned = x.t()?;
        let repeated = x.narrow(0, 0, 1)?.broadcast_as((4, 6))?;
        (left.sum_all()? + row.sum_all()?)? + (turned.sum_all()? + repeated.contiguous()?.sum_all()?)?
    }
}

#[test]
fn windows_are_copied_and_whole_views_are_shared() -> Test {
    let x = wave(1, &[2, 6]);
    let (_, cache) = Hooked::new(Views).run_with_cache(":*", |m| m.forward(&x))?;
    let shares = |name: &str| {
        let (of_x, _) = x.storage_and_layout();
        let (own, _) = cache[name].storage_and_layout();
        std::ptr::eq(&*of_x, &*own)
    };
    assert!(!shares(":left") && !shares(":row"));
    // The same numbers in another order: nothing is gained by a copy.
    assert!(shares(":x") && shares(":turned"));
    assert_eq!(bits(&cache[":left"]), bits(&x.narrow(1, 0, 3)?.contiguous()?));
    assert_eq!(bits(&cache[":turned"]), bits(&x.t()?.contiguous()?));
    assert_eq!(cache[":repeated"].dims(), [4, 6]);
    Ok(())
}

#[test]
fn what_a_hook_returns_is_contiguous() -> Test {
    let hooked = Hooked::new(Views);
    let run = hooked
        .plan()
        .hook(":in", |_, x| Ok(Some(x.t()?.contiguous()?.t()?)))?
        .cache(":in")?
        .run(|m| m.forward(&wave(1, &[2, 6])))?;
    assert!(run.cache[":in"].is_contiguous());
    Ok(())
}

/// Writes into what it is given, and into what it makes.
#[derive(AutoHook)]
struct Overwrites {
    layer: Linear,
}

#[auto_hook]
impl Overwrites {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let copy = hidden.clone();
        let sum = hidden.sum_all()?;
        hidden.slice_set(&Tensor::zeros((1, 4), DType::F32, x.device())?, 0, 0)?;
        let after = hidden.affine(1., 0.)?;
        copy.sum_all()? + sum + after.sum_all()?
    }
}

fn overwrites() -> Hooked<Overwrites> {
    Hooked::new(Overwrites { layer: linear(1, 4, 4) })
}

#[test]
fn what_is_written_later_in_the_run_was_photographed() -> Test {
    let (hooked, x) = (overwrites(), wave(1, &[2, 4]));
    let expected = bits(&hooked.layer.forward(&x)?);
    let (_, cache) = hooked.run_with_cache(["layer", ":hidden", ":copy", ":after"], |m| m.forward(&x))?;
    for name in ["layer", ":hidden", ":copy"] {
        assert_eq!(bits(&cache[name]), expected, "{name}");
    }
    assert_eq!(numbers(&cache[":after"])[..4], [0.; 4]);
    let collected = hooked.plan().cache("layer")?.collect(|m| m.forward(&x))?;
    assert_eq!(bits(&collected["layer"]), expected);
    Ok(())
}

#[test]
fn a_model_does_not_write_into_a_patch() -> Test {
    let (hooked, x) = (overwrites(), wave(1, &[2, 4]));
    for run in 0..2 {
        for point in ["layer", ":hidden", "layer:in", ":x"] {
            let patch = full(3., &[2, 4]);
            let output = hooked.plan().patch(point, &patch)?.run(|m| m.forward(&x))?.output;
            assert_eq!(numbers(&patch), [3.; 8], "{point} in run {run}");
            let again = hooked.plan().patch(point, &patch)?.run(|m| m.forward(&x))?.output;
            assert_eq!(bits(&output), bits(&again));
            let kept = full(5., &[2, 4]);
            hooked.plan().hook(point, |_, _| Ok(Some(kept.clone())))?.run(|m| m.forward(&x))?;
            assert_eq!(numbers(&kept), [5.; 8], "{point} in run {run}");
        }
        let kept = full(5., &[2, 4]);
        hooked.plan().hook_call("layer", |_, _| Ok(Some(vec![kept.clone()])))?.run(|m| m.forward(&x))?;
        assert_eq!(numbers(&kept), [5.; 8]);
    }
    Ok(())
}

#[test]
fn a_model_does_not_write_into_a_recording() -> Test {
    let (hooked, x) = (overwrites(), wave(1, &[2, 4]));
    let (output, recording) = hooked.record(|m| m.forward(&x))?;
    let plan = hooked.plan().hook(":after", |_, after| Ok(Some((after * 1.)?)))?.replay(&recording)?;
    for _ in 0..3 {
        let run = plan.run(|m| m.forward(&x))?;
        assert_eq!(bits(&run.output), bits(&output));
        assert_eq!(run.replayed().collect::<Vec<_>>(), ["layer"]);
    }
    Ok(())
}

/// A function that writes, and a method that knows nothing of it.
#[auto_hook]
fn clear(x: &Tensor) -> Result<()> {
    x.zero_set()
}

#[derive(AutoHook)]
struct Clears {
    layer: Linear,
}

#[auto_hook]
impl Clears {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let sum = hidden.sum_all()?;
        clear(&hidden)?;
        Ok(sum)
    }
}

#[test]
fn what_a_function_writes_was_photographed() -> Test {
    let (hooked, x) = (Hooked::new(Clears { layer: linear(1, 4, 4) }), wave(1, &[2, 4]));
    let (_, cache) = hooked.run_with_cache(["layer", ":hidden"], |m| m.forward(&x))?;
    assert_eq!(bits(&cache["layer"]), bits(&hooked.layer.forward(&x)?));
    let patch = full(3., &[2, 4]);
    hooked.plan().patch("layer", &patch)?.run(|m| m.forward(&x))?;
    assert_eq!(numbers(&patch), [3.; 8]);
    Ok(())
}

/// One of candle's caches that goes round, full or not.
#[derive(AutoHook)]
struct Rings {
    layer: Linear,
    #[hook(skip)]
    cache: Mutex<RotatingKvCache>,
}

#[auto_hook]
impl Rings {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let (keys, values) = self.cache.lock().unwrap().append(&hidden, &hidden)?;
        let turned = keys.t()?;
        turned.sum_all()? + values.sum_all()?
    }
}

#[test]
fn a_cache_that_goes_round_does_not_change_what_was_cached() -> Test {
    let cache = Mutex::new(RotatingKvCache::new(0, 4));
    let hooked = Hooked::new(Rings { layer: linear(1, 4, 4), cache });
    for step in 0..4 {
        let (_, cached) = hooked.run_with_cache([":keys", ":values", ":turned", ":hidden"], |m| {
            m.forward(&wave(step, &[2, 4]))
        })?;
        let before: Vec<_> = cached.iter().map(|(_, tensor)| bits(tensor)).collect();
        for later in 0..3 {
            hooked.forward(&wave(10 + later, &[1, 4]))?;
        }
        let after: Vec<_> = cached.iter().map(|(_, tensor)| bits(tensor)).collect();
        assert_eq!(after, before, "step {step}");
    }
    Ok(())
}

/// A layer whose weight is looked at.
#[derive(AutoHook)]
struct Weighs {
    layer: Linear,
    scale: Tensor,
}

#[auto_hook]
impl Weighs {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let input = x.reshape((1, 8))?;
        let weight = self.layer.weight().clone();
        let turned = weight.t()?;
        let scale = self.scale.clone();
        let hidden = x.reshape((2, 4))?.matmul(&turned)?.broadcast_mul(&scale)?;
        hidden.sum_all()? + input.sum_all()?
    }
}

#[test]
fn an_optimizer_does_not_change_what_was_cached() -> Test {
    let (weight, scale) = (Var::from_tensor(&wave(2, &[4, 4]))?, Var::from_tensor(&wave(3, &[4]))?);
    let layer = Linear::new(weight.as_tensor().clone(), None);
    let hooked = Hooked::new(Weighs { layer, scale: scale.as_tensor().clone() });
    let x = Var::from_tensor(&wave(1, &[2, 4]))?;
    let (output, cached) = hooked.run_with_cache(":*", |m| m.forward(&x))?;
    let before: Vec<_> = cached.iter().map(|(name, tensor)| (name.to_string(), bits(tensor))).collect();
    let mut optimizer = SGD::new(vec![weight, scale, x.clone()], 0.5)?;
    optimizer.backward_step(&output)?;
    x.set(&zeros(&[2, 4]))?;
    let after: Vec<_> = cached.iter().map(|(name, tensor)| (name.to_string(), bits(tensor))).collect();
    assert_eq!(before.len(), 7, "{:?}", cached.keys().collect::<Vec<_>>());
    assert_eq!(after, before);
    Ok(())
}

/// Writes for others, and is no part of any model.
struct Writer;

#[auto_hook]
impl Writer {
    fn clear(&self, x: &Tensor) -> Result<Tensor> {
        x.zero_set()?;
        Ok(x.clone())
    }
}

#[derive(AutoHook)]
struct HasItWritten {
    layer: Linear,
}

#[auto_hook]
impl HasItWritten {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.layer.forward(x)?;
        let sum = hidden.sum_all()?;
        Writer.clear(&hidden)?;
        Ok(sum)
    }
}

#[test]
fn what_a_stranger_writes_was_photographed_and_a_patch_is_not_overwritten() -> Test {
    let (hooked, x) = (Hooked::new(HasItWritten { layer: linear(1, 4, 4) }), wave(1, &[2, 4]));
    let patch = full(3., &[2, 4]);
    let expected = bits(&hooked.plan().patch("layer", &patch)?.run(|m| m.forward(&x))?.output);
    assert_eq!(numbers(&patch), [3.; 8]);
    assert_eq!(expected, bits(&patch.sum_all()?));
    let patch = full(3., &[2, 4]);
    hooked.plan().patch("layer", &patch)?.run(|m| m.forward(&x))?;
    assert_eq!(numbers(&patch), [3.; 8]);

    let hooked = Hooked::new(HasItWritten { layer: linear(1, 4, 4) });
    for _ in 0..2 {
        let (_, cache) = hooked.run_with_cache(["layer", ":hidden"], |m| m.forward(&x))?;
        assert_eq!(bits(&cache["layer"]), bits(&hooked.layer.forward(&x)?));
        assert_eq!(bits(&cache[":hidden"]), bits(&cache["layer"]));
    }
    Ok(())
}
