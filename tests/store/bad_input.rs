use std::fs;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use hookpoint::prelude::*;
use hookpoint_harvest::{Reading, Rows, Store};
use hookpoint_tests::compare::Test;
use hookpoint_tests::spoil::{assert_says, write_safetensors};
use proptest::prelude::*;

use crate::corpus::{corpus, model, record, recorder, POINTS};

fn error(folder: &Path) -> String {
    Store::open(folder).err().expect("this store is damaged").to_string()
}

fn set(folder: &Path, pointer: &str, value: serde_json::Value) {
    let path = folder.join("manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    *manifest.pointer_mut(pointer).unwrap() = value;
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn damaged_shards_are_named() -> Test {
    let folder = tempfile::tempdir()?;
    record(folder.path(), 4)?;
    let path = folder.path().join("shard-000001.safetensors");
    let bytes = fs::read(&path)?;
    fs::write(&path, &bytes[..bytes.len() - 10])?;
    assert_says(&error(folder.path()), &["shard-000001", "bytes, and the manifest says", "damaged"]);
    fs::remove_file(&path)?;
    assert_says(&error(folder.path()), &["shard-000001"]);
    // As long as it should be, with another number in it: found when it is read.
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&path, changed)?;
    let store = Store::open(folder.path())?;
    assert_says(&store.verify().unwrap_err().to_string(), &["shard-000001", "its content was changed"]);
    let mut batches = store.read(POINTS[0], &Reading::new(10))?;
    assert_says(&batches.next().unwrap().unwrap_err().to_string(), &["its content was changed"]);
    assert!(batches.next().is_none());
    assert!(store.get(POINTS[0], 0..96, &Device::Cpu).is_err());
    // A header that speaks of other shapes, dtypes, names, or of terabytes.
    let long = |header: &str| {
        write_safetensors(&path, header, 0);
        let length = fs::metadata(&path).unwrap().len();
        set(folder.path(), "/shards/1/bytes", length.into());
        error(folder.path())
    };
    let says = long(
        r#"{"blocks.0:resid_post":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}"#,
    );
    assert_says(&says, &["shard-000001", "its header speaks of"]);
    assert_says(&long("{}"), &["it has no `blocks.0:resid_post`"]);
    let says = long(r#"{"blocks.0:resid_post":{"dtype":"F32","shape":[0,64],"data_offsets":[0,0]}}"#);
    assert_says(
        &says,
        &["`blocks.0:resid_post` is F32 of shape [0, 64], and the manifest says f32 of shape [24,"],
    );
    assert_says(&long("not json"), &["its header cannot be read"]);
    Ok(())
}

#[test]
fn manifests_that_claim_too_much_are_refused() -> Test {
    let folder = tempfile::tempdir()?;
    record(folder.path(), 4)?;
    let text = fs::read(folder.path().join("manifest.json"))?;
    let huge = 1u64 << 45;
    for (pointer, value, says) in [
        ("/rows", huge.into(), "do not add up"),
        ("/shards/0/rows", huge.into(), "do not add up"),
        ("/shards/0/rows", u64::MAX.into(), "do not add up"),
        ("/points/0/shape", serde_json::json!([huge, huge]), "rows of shape"),
        ("/points/0/shape", serde_json::json!([1u64 << 40]), "and the manifest says f32 of shape"),
        ("/points/0/shape", serde_json::json!([0]), "rows of shape"),
        ("/points/0/name", "blocks.1.mlp:in".into(), "twice"),
        ("/points", serde_json::json!([]), "names no points"),
        ("/dtype", "q4_0".into(), "cannot hold numbers of type `q4_0`"),
        ("/dtype", "f16".into(), "is F32 of shape"),
        ("/shards/0/file", "../../etc/passwd".into(), "shard 0 has the name `../../etc/passwd`"),
        ("/shards/1/prompts", "".into(), "is not the hash of its prompts"),
        ("/format", "something else".into(), "of the format `something else`"),
        ("/version", 2.into(), "version 2"),
        ("/rows", "many".into(), "not the manifest of a store"),
    ] {
        fs::write(folder.path().join("manifest.json"), &text)?;
        set(folder.path(), pointer, value);
        assert_says(&error(folder.path()), &[says]);
    }
    fs::write(folder.path().join("manifest.json"), &text[..text.len() / 2])?;
    assert_says(&error(folder.path()), &["manifest.json", "not the manifest of a store"]);
    fs::remove_file(folder.path().join("manifest.json"))?;
    assert_says(&error(folder.path()), &["this is no activation store"]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is changed in a manifest: an error, or a store whose files are what it says.
    #[test]
    fn no_manifest_makes_it_panic(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let folder = tempfile::tempdir().unwrap();
        let tensor = Tensor::new(&[[1f32, 2.], [3., 4.]], &Device::Cpu).unwrap();
        let run = |_: &u32| Ok(ActivationCache::from_iter([("x", tensor.clone())]));
        recorder().record_caches(folder.path(), [1u32, 2], run).unwrap();
        let path = folder.path().join("manifest.json");
        let mut text = fs::read(&path).unwrap();
        let place = place.index(text.len());
        text[place] = byte;
        fs::write(&path, text).unwrap();
        if let Ok(store) = Store::open(folder.path()) {
            let _ = store.verify();
            for point in store.points() {
                if let Ok(batches) = store.read(point, &Reading::new(3)) {
                    prop_assert!(batches.count() <= 3);
                }
            }
        }
    }
}

#[test]
fn a_store_is_continued_only_as_it_was_begun() -> Test {
    let folder = tempfile::tempdir()?;
    record(folder.path(), 4)?;
    let before = fs::read(folder.path().join("manifest.json"))?;
    let model = model();
    let plan = model.plan().cache(POINTS)?;
    let forward = |m: &hookpoint_models::gpt2::Gpt2, ids: &Tensor| m.forward(ids);
    let mut errors = Vec::new();
    let mut note = |result: hookpoint::Result<Store>, says: &'static str| {
        errors.push((result.err().expect(says).to_string(), says));
    };
    let other_name = recorder_named("another").record(folder.path(), &plan, corpus(5), forward);
    note(other_name, "begun with the model \"embedded\"");
    let other_points = model.plan().cache(POINTS[0])?;
    note(recorder().record(folder.path(), &other_points, corpus(5), forward), "begun with the points");
    let half = recorder().dtype(DType::F16).record(folder.path(), &plan, corpus(5), forward);
    note(half, "begun with the dtype \"f32\"");
    note(
        recorder().rows(Rows::Prompts).record(folder.path(), &plan, corpus(5), forward),
        "begun with the points",
    );
    note(recorder().record(folder.path(), &plan, corpus(5).skip(1), forward), "batches 0 to 2 of the corpus");
    let last = corpus(3).chain(corpus(1)).chain(corpus(5));
    note(recorder().record(folder.path(), &plan, last, forward), "batches 3 to 3 of the corpus");
    note(recorder().record(folder.path(), &plan, corpus(2), forward), "the corpus has only 2");
    // Other weights under the same name.
    let changed = model.plan().cache(POINTS)?.hook("blocks.0.mlp", |_, x| Ok(Some((x * 0.9)?)))?;
    note(
        recorder().record(folder.path(), &changed, corpus(5), forward),
        "makes something else of the first batch",
    );
    for (text, says) in errors {
        assert_says(&text, &[says, "another folder"]);
    }
    assert_eq!(fs::read(folder.path().join("manifest.json"))?, before);
    // What another machine computes may differ in the last bits.
    let close = model.plan().cache(POINTS)?.hook("blocks.0.mlp", |_, x| Ok(Some((x * 1.00001)?)))?;
    recorder().record(folder.path(), &close, corpus(5), forward)?;
    Ok(())
}

fn recorder_named(name: &str) -> hookpoint_harvest::Recorder<'static> {
    hookpoint_harvest::Recorder::new(name)
}

#[test]
fn folders_with_other_files_are_left_alone() -> Test {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("thesis.tex"), "")?;
    let error = record(folder.path(), 1).err().unwrap().to_string();
    assert_says(&error, &["holds other files, such as `thesis.tex`"]);
    assert!(folder.path().join("thesis.tex").exists());
    Ok(())
}
