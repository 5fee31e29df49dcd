use std::collections::HashMap;

use candle_core::{Device, Module, Result, Tensor};
use hookpoint::prelude::*;
use hookpoint::ErrorKind;

use crate::models::{bits, device, full, input, keys, model, numbers, wave, Counter, Test, Times};

fn round_trip(cache: &ActivationCache) -> anyhow::Result<ActivationCache> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("cache.safetensors");
    cache.save(&path)?;
    Ok(ActivationCache::load(&path, &device())?)
}

fn assert_same(a: &ActivationCache, b: &ActivationCache) {
    assert_eq!(keys(a), keys(b));
    for key in a.keys() {
        let (calls_a, calls_b) = (a.calls(key), b.calls(key));
        assert_eq!(calls_a.len(), calls_b.len(), "{key}");
        for (a, b) in calls_a.into_iter().zip(calls_b) {
            assert_eq!((a.dims(), a.dtype()), (b.dims(), b.dtype()), "{key}");
            assert_eq!(bits(a), bits(b), "{key}");
        }
    }
}

#[test]
fn a_cache_comes_back_as_it_was_in_its_order() -> Test {
    let (_, cache) = model().run_with_cache(["**", "**:*", "head[*]"], |m| m.forward(&input()))?;
    // Numbers such as `batch` are not tensors, and stay behind.
    let tensors: ActivationCache = cache.iter().map(|(name, tensor)| (name, tensor.clone())).collect();
    let back = round_trip(&cache)?;
    assert!(back.len() > 40);
    assert_eq!(keys(&back), keys(&tensors));
    assert_eq!(back.keys().last(), Some(""));
    Ok(())
}

#[derive(AutoHook)]
struct Loop {
    layer: Times,
}

#[auto_hook]
impl Module for Loop {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for _ in 0..12 {
            x = self.layer.forward(&x)?;
        }
        Ok(x)
    }
}

fn looping() -> Hooked<Loop> {
    Hooked::new(Loop { layer: Times(1.5, Counter::default()) })
}

#[test]
fn repeated_calls_come_back_in_order() -> Test {
    let (_, cache) = looping().run_with_cache(["layer", "layer[0]", ""], |m| m.forward(&wave(1, &[3])))?;
    let back = round_trip(&cache)?;
    assert_same(&cache, &back);
    assert_eq!(numbers(&back["layer#11"]), numbers(&cache["layer"]));
    assert_eq!(numbers(&back["layer#7[0]"]), numbers(&cache["layer#7[0]"]));
    Ok(())
}

#[test]
fn a_single_call_keeps_its_number() -> Test {
    let (_, cache) = looping().run_with_cache("layer#7", |m| m.forward(&full(1., &[1])))?;
    let back = round_trip(&cache)?;
    assert_same(&cache, &back);
    assert!(back.get("layer#7").is_some() && back.get("layer#0").is_none());
    Ok(())
}

#[test]
fn names_with_odd_characters_come_back() -> Test {
    let mut cache = ActivationCache::new();
    for (n, name) in [r"a.b\.c", r"a\#3", r"x\ y", "", ":in", r"e\*", "line\\\nbreak"].into_iter().enumerate()
    {
        cache.insert(name, full(n as f32, &[1]));
    }
    cache.insert(r"a\#3", full(9., &[1]));
    assert_same(&cache, &round_trip(&cache)?);
    Ok(())
}

#[test]
fn an_empty_cache_comes_back_empty() -> Test {
    assert!(round_trip(&ActivationCache::new())?.is_empty());
    Ok(())
}

#[test]
fn views_and_every_dtype_come_back() -> Test {
    use candle_core::DType;
    let mut cache = ActivationCache::new();
    cache.insert("view", wave(1, &[2, 3]).t()?);
    cache.insert("scalar", full(1., &[]));
    for dtype in [DType::F16, DType::BF16, DType::F64, DType::U8, DType::U32, DType::I64] {
        cache.insert(dtype.as_str(), full(1., &[2]).to_dtype(dtype)?);
    }
    assert_same(&cache, &round_trip(&cache)?);
    Ok(())
}

#[test]
fn a_file_that_others_wrote_is_read_with_sorted_names() -> Test {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("others.safetensors");
    let tensors = HashMap::from([("b", full(1., &[1])), ("a#1", full(2., &[1])), ("a#0", full(3., &[1]))]);
    candle_core::safetensors::save(&tensors, &path)?;
    let cache = ActivationCache::load(&path, &device())?;
    assert_eq!(keys(&cache), ["a", "b"]);
    assert_eq!(numbers(&cache["a#0"]), [3.]);
    assert_eq!(numbers(&cache["a"]), [2.]);
    Ok(())
}

fn kind_of(path: &std::path::Path) -> String {
    let error = ActivationCache::load(path, &Device::Cpu).expect_err("a damaged file");
    match error.kind() {
        ErrorKind::Io { path: said, .. } => assert_eq!(said, &path.display().to_string()),
        other => panic!("{other:?}"),
    }
    error.to_string()
}

#[test]
fn damaged_files_are_errors_that_name_the_file() -> Test {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("cache.safetensors");
    kind_of(&path);
    let (_, cache) = model().run_with_cache("**", |m| m.forward(&input()))?;
    cache.save(&path)?;
    let good = std::fs::read(&path)?;
    for length in [0, 4, 8, 100, good.len() - 1] {
        std::fs::write(&path, &good[..length])?;
        kind_of(&path);
    }
    let mut huge = good.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(&path, &huge)?;
    kind_of(&path);
    let mut broken = good.clone();
    broken[8..12].copy_from_slice(b"!!!!");
    std::fs::write(&path, &broken)?;
    kind_of(&path);
    Ok(())
}

#[test]
fn a_folder_that_is_not_there_is_an_error_that_names_it() {
    let error = ActivationCache::new().save("/nowhere/at/all.safetensors").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { path, .. } if path == "/nowhere/at/all.safetensors"));
}
