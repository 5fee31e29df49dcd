use candle_core::{DType, Device, Tensor};
use hookpoint::prelude::*;
use hookpoint_harvest::{Recorder, Rows, Store};
use hookpoint_tests::compare::{bits as bits_of, Test};
use hookpoint_tests::spoil::assert_says;

use crate::corpus::{corpus, model, record, recorder, POINTS, ROWS};

#[test]
fn a_store_holds_what_the_model_computes() -> Test {
    let folder = tempfile::tempdir()?;
    let store = record(folder.path(), 8)?;
    assert_eq!(store.points().collect::<Vec<_>>(), ["blocks.0:resid_post", "blocks.1.mlp:in"]);
    assert_eq!((store.rows(), store.manifest().shards.len()), (8 * ROWS, 3));
    let model = model();
    for (number, ids) in corpus(8).enumerate() {
        let (_, cache) = model.run_with_cache(POINTS, |m| m.forward(&ids))?;
        for point in POINTS {
            let rows = store.get(point, number * ROWS..(number + 1) * ROWS, &Device::Cpu)?;
            assert_eq!(bits_of(&rows), bits_of(&cache[point]), "{point} of batch {number}");
        }
    }
    Ok(())
}

#[test]
fn the_manifest_says_what_is_there() -> Test {
    let folder = tempfile::tempdir()?;
    let store = record(folder.path(), 4)?;
    let text = std::fs::read_to_string(folder.path().join("manifest.json"))?;
    let manifest: serde_json::Value = serde_json::from_str(&text)?;
    let width = model().config().n_embd;
    assert_eq!(manifest["model"]["name"], "embedded");
    assert_eq!(manifest["model"]["values"].as_str().unwrap().len(), 64);
    assert_eq!(manifest["prompts"].as_str().unwrap().len(), 64);
    assert_eq!(manifest["dtype"], "f32");
    assert_eq!(manifest["points"][1]["name"], "blocks.1.mlp:in");
    assert_eq!(manifest["points"][1]["shape"], serde_json::json!([width]));
    assert_eq!((manifest["rows"].as_u64(), manifest["batches"].as_u64()), (Some(96), Some(4)));
    assert_eq!(manifest["complete"], true);
    assert_eq!(manifest["shards"][0]["rows"], 3 * ROWS);
    // Shards are safetensors files that any reader understands.
    let shard = candle_core::safetensors::load(folder.path().join("shard-000001.safetensors"), &Device::Cpu)?;
    assert_eq!(shard["blocks.0:resid_post"].dims(), [ROWS, width]);
    store.verify()?;
    Ok(())
}

#[test]
fn memory_is_bounded_by_a_shard_and_a_batch() -> Test {
    let folder = tempfile::tempdir()?;
    let model = model();
    let plan = model.plan().cache(POINTS)?;
    let store = recorder().record(folder.path(), &plan, corpus(20), |m, ids| m.forward(ids))?;
    assert!(store.manifest().shards.iter().all(|shard| shard.batches <= 3), "{:?}", store.manifest());
    // A batch that is larger than a shard may be has one of its own.
    let folder = tempfile::tempdir()?;
    let store = recorder().shard_bytes(1).record(folder.path(), &plan, corpus(3), |m, ids| m.forward(ids))?;
    assert_eq!(store.manifest().shards.len(), 3);
    Ok(())
}

#[test]
fn parts_of_points_and_other_dtypes() -> Test {
    let folder = tempfile::tempdir()?;
    let model = model();
    let plan = model.plan().cache("blocks.0.hook_resid_post[:, 1:]")?;
    let store =
        recorder().dtype(DType::BF16).record(folder.path(), &plan, corpus(2), |m, ids| m.forward(ids))?;
    assert_eq!(store.rows(), 2 * 2 * 11);
    let point = "blocks.0:resid_post[:, 1:]";
    let rows = store.get(point, 0..store.rows(), &Device::Cpu)?;
    assert_eq!(rows.dtype(), DType::BF16);
    let (_, cache) = model.run_with_cache(point, |m| m.forward(&corpus(1).next().unwrap()))?;
    let expected = cache[point].to_dtype(DType::BF16)?;
    assert_eq!(bits_of(&rows.narrow(0, 0, 22)?), bits_of(&expected));
    Ok(())
}

#[test]
fn rows_may_be_positions_or_prompts() -> Test {
    let model = model();
    let (heads, width) = (model.config().n_head, model.config().n_embd / model.config().n_head);
    let plan = model.plan().cache("blocks.0.attn.hook_z")?;
    for (rows, count, shape) in [
        (Rows::Vectors, 24 * heads, vec![width]),
        (Rows::Positions, 24, vec![heads, width]),
        (Rows::Prompts, 2, vec![12, heads, width]),
    ] {
        let folder = tempfile::tempdir()?;
        let store = recorder().rows(rows).record(folder.path(), &plan, corpus(1), |m, ids| m.forward(ids))?;
        assert_eq!((store.rows(), &store.manifest().points[0].shape), (count, &shape), "{rows:?}");
        let dims: Vec<usize> = [vec![count], shape].concat();
        assert_eq!(store.get("blocks.0.attn:z", 0..count, &Device::Cpu)?.dims(), dims);
    }
    Ok(())
}

/// Adds up what it is given.
#[derive(AutoHook)]
struct Counter {
    sum: f64,
}

#[auto_hook]
impl Counter {
    fn forward(&mut self, x: &Tensor) -> candle_core::Result<Tensor> {
        self.sum += 1.;
        let shifted = (x + self.sum)?;
        shifted.sqr()
    }
}

#[test]
fn models_with_state_can_be_recorded() -> Test {
    let folder = tempfile::tempdir()?;
    let mut model = Hooked::new(Counter { sum: 0. });
    let plan = model.plan_mut().cache(":shifted")?;
    let batches = (0..3).map(|_| Tensor::new(&[[0f32, 10.]], &Device::Cpu).unwrap());
    let store = Recorder::new("counter").record(folder.path(), &plan, batches, |m, x| m.forward(x))?;
    let rows = store.get(":shifted", 0..3, &Device::Cpu)?;
    assert_eq!(rows.to_vec2::<f32>()?, [[1., 11.], [2., 12.], [3., 13.]]);
    Ok(())
}

#[test]
fn texts_can_be_the_corpus() -> Test {
    let folder = tempfile::tempdir()?;
    let model = model();
    let texts = ["When Mary and John went to the store", "The dog says"];
    let plan = model.plan().cache(POINTS[0])?;
    let tokens = |text: &str| model.tokenizer().unwrap().encode(text).unwrap();
    let store = recorder().record(folder.path(), &plan, texts, |m, text| {
        m.forward(&Tensor::new(tokens(text), &Device::Cpu)?.unsqueeze(0)?)
    })?;
    assert_eq!(store.rows(), texts.iter().map(|text| tokens(text).len()).sum::<usize>());
    Ok(())
}

#[test]
fn progress_is_told() -> Test {
    let folder = tempfile::tempdir()?;
    let seen = std::cell::RefCell::new(Vec::new());
    let model = model();
    let plan = model.plan().cache(POINTS)?;
    let tell = |progress: &hookpoint_harvest::Progress| seen.borrow_mut().push(*progress);
    recorder().on_progress(tell).record(folder.path(), &plan, corpus(4), |m, ids| m.forward(ids))?;
    let seen = seen.into_inner();
    let batches: Vec<usize> = seen.iter().map(|progress| progress.batches).collect();
    assert_eq!(batches, [0, 1, 2, 3, 4, 4]);
    let last = seen.last().unwrap();
    assert_eq!((last.rows, last.shards, last.resumed), (4 * ROWS, 2, 0));
    Ok(())
}

#[test]
fn points_that_do_not_fit_together_are_refused() -> Test {
    let folder = tempfile::tempdir()?;
    let model = model();
    let plan = model.plan().cache(["blocks.0.hook_resid_pre", "blocks.0.attn.hook_z"])?;
    let error = recorder().record(folder.path(), &plan, corpus(1), |m, ids| m.forward(ids)).err().unwrap();
    assert_says(&error.to_string(), &["rows", "`blocks.0:resid_pre`", "stores of their own"]);
    let error = recorder()
        .record(folder.path(), &model.plan().cache(POINTS)?, Vec::<Tensor>::new(), |m, ids| m.forward(ids))
        .err()
        .unwrap();
    assert_says(&error.to_string(), &["the corpus is empty"]);
    // Too large for half precision.
    let large = |_: &Tensor| {
        let tensor = Tensor::new(&[[1e6f32, 2.]], &Device::Cpu)?;
        Ok(ActivationCache::from_iter([("x", tensor)]))
    };
    let error = recorder().dtype(DType::F16).record_caches(folder.path(), corpus(1), large).err().unwrap();
    assert_says(&error.to_string(), &["`x`", "1000000", "F16", "BF16"]);
    let error = recorder().dtype(DType::U32).record_caches(folder.path(), corpus(1), large).err().unwrap();
    assert_says(&error.to_string(), &["cannot hold u32"]);
    assert!(Store::open(folder.path()).is_err());
    Ok(())
}
