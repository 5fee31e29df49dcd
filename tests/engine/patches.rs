use std::collections::{BTreeMap, HashMap};

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::{LayerNorm, Linear};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, device, full, input, linear, model, numbers, wave, zeros, Mlp, Test};

/// Asserts that patching `point` with a tensor of these dims is refused with these shapes.
fn assert_refused(point: &str, found: &[usize], expected: &[usize]) {
    let hooked = model();
    let error = hooked.plan().patch(point, &zeros(found)).unwrap().run(|m| m.forward(&input())).unwrap_err();
    match error.kind() {
        ErrorKind::Shape { point: at, expected: e, found: f, .. } => {
            assert_eq!((f.as_slice(), e.as_slice()), (found, expected), "{error}");
            assert!(at.starts_with(point.split('[').next().unwrap()), "{error}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_whole_patch_must_have_the_very_shape() {
    let whole = &[2, 3, 4];
    for wrong in [&[2, 3, 5][..], &[2, 3], &[1, 3, 4], &[4], &[2, 1, 4], &[], &[2, 3, 4, 1]] {
        assert_refused("blocks.0", wrong, whole);
        assert_refused("blocks.0.mlp", wrong, whole);
        assert_refused("blocks.1.norm", wrong, whole);
        assert_refused("blocks.0.attn:z", wrong, whole);
        assert_refused("blocks.1:in", wrong, whole);
        assert_refused("blocks.1.mlp.up:in", wrong, whole);
        assert_refused("blocks.0.mlp.scale", wrong, whole);
    }
    for wrong in [&[2, 3, 4][..], &[2, 3], &[1, 3, 3], &[3]] {
        assert_refused("head", wrong, &[2, 3, 3]);
        assert_refused("", wrong, &[2, 3, 3]);
    }
    assert_refused("blocks.0.mlp.up", &[2, 3, 4], &[2, 3, 8]);
}

#[test]
fn with_an_index_a_patch_may_broadcast() -> Test {
    let hooked = model();
    for dims in [&[2, 4][..], &[1, 4], &[4], &[1], &[], &[2, 1]] {
        let run = hooked
            .plan()
            .patch("blocks.0[:, -1]", &full(3., dims))?
            .cache("blocks.0")?
            .run(|m| m.forward(&input()))?;
        assert!(numbers(&run.cache["blocks.0[:, -1]"]).iter().all(|x| *x == 3.));
        assert!(numbers(&run.cache["blocks.0[:, :2]"]).iter().all(|x| *x != 3.));
    }
    assert_refused("blocks.0[:, -1]", &[3, 4], &[2, 4]);
    assert_refused("blocks.0[:, -1]", &[2, 1, 4], &[2, 4]);
    assert_refused("blocks.0[*]", &[2, 3, 4], &[3, 4]);
    Ok(())
}

#[test]
fn an_index_out_of_range_is_an_error_with_the_shape() {
    let hooked = model();
    let plan = hooked.plan().patch("blocks.0[:, 3]", &zeros(&[4])).unwrap();
    let error = plan.run(|m| m.forward(&input())).unwrap_err();
    match error.kind() {
        ErrorKind::IndexOutOfRange { point, index, shape, .. } => {
            assert_eq!(
                (point.as_str(), index.as_str(), shape.as_slice()),
                ("blocks.0", ":, 3", &[2, 3, 4][..])
            );
        }
        other => panic!("{other}"),
    }
    let error = hooked.plan().cache("head[0, 0, 0, 0]").unwrap().run(|m| m.forward(&input())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { .. }), "{error}");
}

#[test]
fn floats_are_cast_and_integers_are_refused() -> Test {
    let hooked = model();
    let patch = wave(5, &[2, 3, 4]);
    let points =
        ["blocks.0", "blocks.0.mlp.down", "blocks.1.norm", "blocks.0.attn:z", "blocks.1:in", "blocks.0[:]"];
    for point in points {
        let run =
            |patch: &Tensor| hooked.plan().patch(point, patch)?.cache(point)?.run(|m| m.forward(&input()));
        let done = run(&patch.to_dtype(DType::F64)?)?;
        assert_eq!(done.cache[point].dtype(), DType::F32);
        assert_eq!(bits(&done.cache[point]), bits(&patch), "{point}");
        for dtype in [DType::U32, DType::I64, DType::U8] {
            let error = run(&patch.to_dtype(dtype)?).unwrap_err();
            match error.kind() {
                ErrorKind::DType { expected, found, .. } => {
                    assert_eq!((expected.as_str(), found.as_str()), ("f32", dtype.as_str()));
                }
                other => panic!("{point}: {other}"),
            }
        }
    }
    Ok(())
}

#[test]
fn a_patch_in_half_precision_stays_what_the_model_computes_in() -> Test {
    let mlp = Mlp::new(1, 4);
    let half = |t: &Tensor| t.to_dtype(DType::F16).unwrap();
    let layer = |l: &Linear| Linear::new(half(l.weight()), l.bias().map(half));
    let hooked = Hooked::new(Mlp { up: layer(&mlp.up), down: layer(&mlp.down), scale: half(&mlp.scale) });
    let x = half(&wave(1, &[2, 4]));
    for point in ["up", "", ":hidden"] {
        let dims = if point.is_empty() { [2, 4] } else { [2, 8] };
        let run = hooked.plan().patch(point, &wave(2, &dims))?.cache(point)?.run(|m| m.forward(&x))?;
        assert_eq!(run.cache[point].dtype(), DType::F16);
        assert_eq!(run.output.dtype(), DType::F16);
    }
    Ok(())
}

#[test]
fn what_a_hook_returns_is_checked_like_a_patch() {
    let hooked = model();
    let run = |new: Tensor| {
        let plan = hooked.plan().hook("blocks.0", |_, _| Ok(Some(new.clone()))).unwrap();
        plan.run(|m| m.forward(&input())).map(|_| ())
    };
    let error = run(zeros(&[4])).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Shape { what, .. } if what == "what the hook returned"),
        "{error}"
    );
    let integers = zeros(&[2, 3, 4]).to_dtype(DType::U32).unwrap();
    assert!(matches!(run(integers).unwrap_err().kind(), ErrorKind::DType { .. }));
    assert!(run(zeros(&[2, 3, 4]).to_dtype(DType::F64).unwrap()).is_ok());
}

#[test]
fn patching_with_what_was_there_changes_no_bit() -> Test {
    let (hooked, x) = (model(), input());
    for patterns in ["**", "**:*", "blocks.*[:, -1]", "**.attn:{q,k,v,z,qkv}", "blocks.*.attn:pattern[*, *]"]
    {
        let (plain, clean) = hooked.run_with_cache(patterns, |m| m.forward(&x))?;
        let run = hooked.plan().patch_all(&clean)?.run(|m| m.forward(&x))?;
        assert_eq!(bits(&run.output), bits(&plain), "{patterns}");
    }
    Ok(())
}

/// Values in every layout, each met by operations that care about it.
#[derive(AutoHook)]
struct Layouts {
    norm: LayerNorm,
    last: Last,
    mix: Linear,
}

/// Gives the last position: a view with gaps.
#[derive(AutoHook)]
struct Last;

#[auto_hook]
impl Module for Last {
    /// [batch, pos, width] to [batch, 1, width]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.narrow(1, x.dim(1)? - 1, 1)
    }
}

#[auto_hook]
impl Module for Layouts {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let turned = x.transpose(0, 1)?;
        let left = x.narrow(2, 0, 4)?;
        let wide = self.norm.forward(&left)?;
        let turned = self.norm.forward(&turned.narrow(2, 4, 4)?)?.transpose(0, 1)?;
        let last = self.norm.forward(&self.last.forward(&left)?)?;
        let twice = (0..2).map(|_| self.mix.forward(&wide)).collect::<Result<Vec<_>>>()?;
        ((&twice[0] + &twice[1])? + turned)?.broadcast_add(&last)
    }
}

#[test]
fn patches_keep_the_layout_so_that_candle_computes_the_same_bits() -> Test {
    let norm = LayerNorm::new(wave(1, &[4]), wave(2, &[4]), 1e-5);
    let hooked = Hooked::new(Layouts { norm, last: Last, mix: linear(3, 4, 4) });
    let x = wave(4, &[3, 5, 8]);
    for patterns in [vec!["**"], vec!["**:*"], vec!["last", "mix"], vec![":turned.0", ":left"]] {
        let (plain, clean) = hooked.run_with_cache(&patterns, |m| m.forward(&x))?;
        // Twice: the second time, modules are skipped by what the first run has shown.
        for _ in 0..2 {
            let run = hooked.plan().patch_all(&clean)?.run(|m| m.forward(&x))?;
            assert_eq!(bits(&run.output), bits(&plain), "{patterns:?}");
        }
    }
    Ok(())
}

#[derive(AutoHook)]
struct Repeats {
    layer: Linear,
    scale: Tensor,
}

#[auto_hook]
impl Module for Repeats {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for _ in 0..3 {
            x = self.layer.forward(&x)?.tanh()?.broadcast_mul(&self.scale)?;
        }
        Ok(x)
    }
}

fn repeats() -> Hooked<Repeats> {
    Hooked::new(Repeats { layer: linear(1, 4, 4), scale: wave(2, &[4]) })
}

#[test]
fn repeated_calls_are_patched_each_with_its_own() -> Test {
    let (hooked, x) = (repeats(), wave(1, &[2, 4]));
    for patterns in ["**", "**:*", "layer[0]", "layer#1", "scale#2", "layer#0[1]"] {
        let (plain, clean) = hooked.run_with_cache(patterns, |m| m.forward(&x))?;
        let run = hooked.plan().patch_all(&clean)?.run(|m| m.forward(&x))?;
        assert_eq!(bits(&run.output), bits(&plain), "{patterns}");
    }
    Ok(())
}

#[test]
fn a_patch_of_one_call_leaves_the_others() -> Test {
    let (hooked, x) = (repeats(), wave(1, &[2, 4]));
    let zero = zeros(&[2, 4]);
    let run = hooked.plan().patch("layer#1", &zero)?.cache("layer")?.run(|m| m.forward(&x))?;
    let sums: Vec<bool> = run.cache.calls("layer").iter().map(|t| bits(t) == bits(&zero)).collect();
    assert_eq!(sums, [false, true, false]);
    let run = hooked.plan().patch("layer", &zero)?.cache("layer")?.run(|m| m.forward(&x))?;
    assert!(run.cache.calls("layer").iter().all(|t| bits(t) == bits(&zero)));
    Ok(())
}

#[test]
fn any_map_of_names_to_tensors_is_accepted() -> Test {
    let hooked = model();
    let patch = full(2., &[2, 3, 4]);
    let outputs = [
        hooked
            .plan()
            .patch_all(&HashMap::from([("blocks.1", patch.clone())]))?
            .run(|m| m.forward(&input()))?
            .output,
        hooked
            .plan()
            .patch_all(&HashMap::from([("blocks.1".to_string(), patch.clone())]))?
            .run(|m| m.forward(&input()))?
            .output,
        hooked
            .plan()
            .patch_all(&BTreeMap::from([("blocks.1", patch.clone())]))?
            .run(|m| m.forward(&input()))?
            .output,
        hooked.plan().patch_all(&[("blocks.1", patch.clone())])?.run(|m| m.forward(&input()))?.output,
        hooked
            .plan()
            .patch_all(&vec![("blocks.1".to_string(), patch.clone())])?
            .run(|m| m.forward(&input()))?
            .output,
        hooked.plan().patch_all(&[("blocks.1", patch.clone())][..])?.run(|m| m.forward(&input()))?.output,
        hooked
            .plan()
            .patch_all(&ActivationCache::from_iter([("blocks.1", patch.clone())]))?
            .run(|m| m.forward(&input()))?
            .output,
        hooked.plan().patch("blocks.1", &patch)?.run(|m| m.forward(&input()))?.output,
    ];
    for output in &outputs {
        assert_eq!(bits(output), bits(&outputs[0]));
    }
    Ok(())
}

#[test]
fn a_difference_of_caches_is_a_patch() -> Test {
    let (hooked, x) = (model(), input());
    let (_, a) = hooked.run_with_cache("blocks.0[:, -1]", |m| m.forward(&x))?;
    let (_, b) = hooked.run_with_cache("blocks.0[:, -1]", |m| m.forward(&(&x * 2.)?))?;
    let half = (&a + &(&b - &a)?)?;
    let run = hooked.plan().patch_all(&half)?.cache("blocks.0")?.run(|m| m.forward(&x))?;
    assert_eq!(bits(&run.cache["blocks.0[:, -1]"]), bits(&half["blocks.0[:, -1]"]));
    Ok(())
}

#[test]
fn a_stepped_slice_is_written_where_it_was_read() -> Test {
    let hooked = model();
    let run = hooked
        .plan()
        .hook("blocks.0[:, ::2, 1]", |_, x| {
            assert_eq!(x.dims(), [2, 2]);
            Ok(Some(x.zeros_like()?))
        })?
        .cache("blocks.0")?
        .run(|m| m.forward(&input()))?;
    let zero: Vec<usize> = numbers(&run.cache["blocks.0"])
        .iter()
        .enumerate()
        .filter(|(_, x)| **x == 0.)
        .map(|(n, _)| n)
        .collect();
    assert_eq!(zero, [1, 9, 13, 21]);
    Ok(())
}

#[test]
fn a_patch_comes_to_the_device_of_the_model() -> Test {
    let hooked = model();
    let cpu = full(1., &[2, 3, 4]).to_device(&candle_core::Device::Cpu)?;
    let run = hooked.plan().patch("blocks.0", &cpu)?.cache("blocks.0")?.run(|m| m.forward(&input()))?;
    assert!(run.cache["blocks.0"].device().same_device(&device()));
    Ok(())
}
