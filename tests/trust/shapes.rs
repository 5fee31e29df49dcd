use std::collections::{BTreeMap, HashMap};

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::Linear;
use hookpoint::prelude::*;
use hookpoint::{CacheOptions, ErrorKind};

use crate::models::{bits, device, full, linear, wave, Test};

/// Computes in half precision.
#[derive(AutoHook)]
struct Half {
    dtype: DType,
}

#[auto_hook]
impl Half {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = x.to_dtype(self.dtype)?;
        let y = h.affine(0.5, 0.)?;
        let ids = x.to_dtype(DType::U32)?;
        let n = ids.to_dtype(DType::F32)?.sum_all()?;
        y.to_dtype(DType::F32)?.broadcast_add(&n)
    }
}

fn number(x: f64, dtype: DType) -> Tensor {
    Tensor::full(x, (2, 4), &device()).unwrap().to_dtype(dtype).unwrap()
}

/// Is this refused because numbers would be lost?
fn is_refused<T>(result: hookpoint::Result<T>, what: &str) {
    let error = match result {
        Ok(_) => panic!("{what} passed"),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(
        text.contains("f16") || text.contains("f32") || text.contains("u32") || text.contains("u8"),
        "{what}: {text}"
    );
}

#[test]
fn numbers_that_overflow_are_refused() -> Test {
    let (half, single) = (Hooked::new(Half { dtype: DType::F16 }), Hooked::new(Half { dtype: DType::F32 }));
    let x = full(1., &[2, 4]);
    let big = number(1e6, DType::F32);
    let bigger = number(1e300, DType::F64);
    is_refused(half.plan().patch(":h", &big)?.run(|m| m.forward(&x)), "f32 to f16");
    is_refused(
        half.plan().patch(":h[:, 1]", &big.narrow(1, 0, 1)?.squeeze(1)?)?.run(|m| m.forward(&x)),
        "a part",
    );
    is_refused(
        half.plan().patch(":h[0, 0]", &Tensor::new(1e6f32, x.device())?)?.run(|m| m.forward(&x)),
        "a number",
    );
    is_refused(half.plan().hook(":h", |_, _| Ok(Some(big.clone())))?.run(|m| m.forward(&x)), "a hook");
    is_refused(single.plan().patch(":h", &bigger)?.run(|m| m.forward(&x)), "f64 to f32");
    is_refused(single.plan().patch(":x", &bigger)?.run(|m| m.forward(&x)), "an argument");
    is_refused(single.plan().patch("", &bigger)?.run(|m| m.forward(&x)), "a whole model");
    // What fits, and what was infinite before, passes.
    half.plan().patch(":h", &number(6e4, DType::F32))?.run(|m| m.forward(&x))?;
    half.plan().patch(":h", &number(f64::INFINITY, DType::F32))?.run(|m| m.forward(&x))?;
    half.plan().patch(":h", &number(f64::NAN, DType::F32))?.run(|m| m.forward(&x))?;
    single.plan().patch(":h", &number(1e30, DType::F64))?.run(|m| m.forward(&x))?;
    Ok(())
}

#[test]
fn a_cache_in_another_dtype_does_not_lose_numbers() -> Test {
    let hooked = Hooked::new(Half { dtype: DType::F32 });
    let x = full(1e6, &[2, 4]);
    let options = || CacheOptions::new().dtype(DType::F16);
    is_refused(hooked.plan().cache(options().at(":h"))?.run(|m| m.forward(&x)), "a cache in f16");
    let (_, cache) = hooked.run_with_cache([":h", ":ids"], |m| m.forward(&x))?;
    is_refused(cache.to_dtype(DType::F16), "a cache made f16");
    is_refused(cache.to_dtype(DType::U8), "a cache made u8");
    let small = full(1.5, &[2, 4]);
    let (_, cache) = hooked.run_with_cache(":h", |m| m.forward(&small))?;
    assert_eq!(cache.to_dtype(DType::F16)?[":h"].dtype(), DType::F16);
    Ok(())
}

#[test]
fn integers_are_not_taken_for_floats_nor_floats_for_integers() -> Test {
    let hooked = Hooked::new(Half { dtype: DType::F32 });
    let x = full(1., &[2, 4]);
    for (point, dtype) in [(":h", DType::I64), (":h", DType::U8), (":ids", DType::F32), (":ids", DType::F64)]
    {
        is_refused_dtype(hooked.plan().patch(point, &number(3., dtype))?.run(|m| m.forward(&x)), point);
        is_refused_dtype(
            hooked.plan().hook(point, |_, _| Ok(Some(number(3., dtype))))?.run(|m| m.forward(&x)),
            point,
        );
        is_refused_dtype(
            hooked.plan().patch(format!("{point}[...]"), &number(3., dtype))?.run(|m| m.forward(&x)),
            point,
        );
    }
    for dtype in [DType::I64, DType::U8] {
        is_refused_dtype(
            hooked.plan().patch(":ids", &number(3., dtype))?.run(|m| m.forward(&x)),
            "integers of another size",
        );
    }
    Ok(())
}

fn is_refused_dtype<T>(result: hookpoint::Result<T>, what: &str) {
    match result {
        Ok(_) => panic!("{what} passed"),
        Err(error) => assert!(matches!(error.kind(), ErrorKind::DType { .. }), "{what}: {error}"),
    }
}

/// Maps whose keys look like paths, and lists.
#[derive(AutoHook)]
struct Maps {
    map: BTreeMap<String, Linear>,
    nested: BTreeMap<String, BTreeMap<String, Linear>>,
}

#[auto_hook]
impl Maps {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in self.map.values() {
            x = layer.forward(&x)?;
        }
        for map in self.nested.values() {
            for layer in map.values() {
                x = layer.forward(&x)?;
            }
        }
        Ok(x)
    }
}

#[test]
fn names_that_look_like_paths_are_told_apart() -> Test {
    let names =
        ["a.b", "a", "a:b", "a#0", "a[0]", "*", "{a,b}", "", " ", "ä", "\\", "0", "a.b.c", "in", "out"];
    let map: BTreeMap<String, Linear> =
        names.iter().enumerate().map(|(n, name)| (name.to_string(), linear(n, 4, 4))).collect();
    let inner =
        |n| BTreeMap::from([("c".to_string(), linear(n, 4, 4)), ("b.c".to_string(), linear(n + 1, 4, 4))]);
    let nested = BTreeMap::from([("a".to_string(), inner(30)), ("a.b".to_string(), inner(40))]);
    let hooked = Hooked::new(Maps { map, nested });
    let x = wave(1, &[1, 4]);
    let all: Vec<String> = hooked.hook_dict().keys().map(str::to_string).collect();
    let mut unique = all.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), all.len(), "{all:?}");
    let (_, cache) = hooked.run_with_cache("**", |m| m.forward(&x))?;
    assert_eq!(cache.keys().count(), names.len() + 4 + 1, "{:?}", cache.keys().collect::<Vec<_>>());
    for name in &all {
        if name.is_empty() || cache.get(name).is_none() {
            continue;
        }
        let run = hooked.plan().cache(name.as_str())?.run(|m| m.forward(&x))?;
        assert_eq!(run.cache.keys().collect::<Vec<_>>(), [name.as_str()]);
        assert_eq!(bits(&run.cache[name.as_str()]), bits(&cache[name.as_str()]), "{name}");
        let fired = std::cell::Cell::new(0);
        let plan = hooked.plan().hook(name.as_str(), |ctx, _| {
            assert_eq!(ctx.path(), name);
            fired.set(fired.get() + 1);
            Ok(None)
        })?;
        plan.run(|m| m.forward(&x))?;
        assert_eq!(fired.get(), 1, "{name}");
    }
    Ok(())
}

/// A result with many parts.
#[derive(AutoHook)]
struct Parts;

#[auto_hook]
impl Parts {
    fn forward(&self, x: &Tensor) -> Result<HashMap<String, Tensor>> {
        let all: HashMap<String, Tensor> =
            (0..2_000).map(|n| Ok((format!("part{n}"), (x * n as f64)?))).collect::<Result<_>>()?;
        Ok(all)
    }
}

#[test]
fn two_thousand_parts_of_one_value_are_told_apart() -> Test {
    let hooked = Hooked::new(Parts);
    let x = full(1., &[1]);
    let (_, cache) = hooked.run_with_cache(":out.*", |m| m.forward(&x))?;
    assert_eq!(cache.keys().count(), 2_000);
    for n in 0..2_000 {
        // The first of all is the output as such.
        let name = if n == 0 { String::new() } else { format!(":out.part{n}") };
        assert_eq!(bits(&cache[name.as_str()]), bits(&full(n as f32, &[1])), "{n}");
    }
    let nine = full(9., &[1]);
    let run = hooked.plan().patch(":out.part7", &nine)?.run(|m| m.forward(&x))?;
    let others = run.output.iter().filter(|(name, _)| *name != "part7");
    for (name, tensor) in others {
        let n: f32 = name.trim_start_matches("part").parse()?;
        assert_eq!(bits(tensor), bits(&full(n, &[1])), "{name}");
    }
    assert_eq!(bits(&run.output["part7"]), bits(&nine));
    Ok(())
}

/// Patches of calls, and of shapes that broadcast.
#[derive(AutoHook)]
struct Repeats {
    layer: Linear,
}

#[auto_hook]
impl Repeats {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.layer.forward(x)?;
        self.layer.forward(&Tensor::cat(&[&first, &first], 0)?)
    }
}

#[test]
fn a_patch_of_one_call_has_the_shape_of_that_call() -> Test {
    let hooked = Hooked::new(Repeats { layer: linear(1, 4, 4) });
    let x = wave(1, &[2, 4]);
    let (two, four) = (full(1., &[2, 4]), full(2., &[4, 4]));
    for _ in 0..3 {
        let run = hooked.plan().patch("layer#1", &four)?.run(|m| m.forward(&x))?;
        assert_eq!(bits(&run.output), bits(&four));
        let run = hooked.plan().patch("layer#0", &two)?.cache("layer#0")?.run(|m| m.forward(&x))?;
        assert_eq!(bits(&run.cache["layer#0"]), bits(&two));
        for (point, tensor) in [("layer#0", &four), ("layer#1", &two), ("layer", &two), ("layer", &four)] {
            let error = hooked.plan().patch(point, tensor)?.run(|m| m.forward(&x)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Shape { .. }), "{point}: {error}");
        }
        let error = hooked.plan().patch("layer#2", &two)?.run(|m| m.forward(&x)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unfired { .. }), "{error}");
    }
    let _ = hooked.layer.weight().dims();
    let _: &dyn Module = &hooked.layer;
    Ok(())
}
