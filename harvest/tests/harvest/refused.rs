use hookpoint_harvest::program::load_bundled;
use hookpoint_harvest::{missing, seal, HarvestError, Planner, Seal, Status, Storage, Store, Worker};
use hookpoint_models::english::English;

use crate::corpus::{assert_same, files, Place, Test, CONTEXT, POINTS};

fn of(error: &hookpoint::Error) -> &HarvestError {
    HarvestError::of(error).unwrap_or_else(|| panic!("{error}"))
}

/// A plan over a model in a folder of its own.
fn with_model(place: &Place) -> anyhow::Result<(Storage, Planner)> {
    let embedded = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/embedded");
    std::fs::create_dir_all(place.path("model"))?;
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(embedded.join(name), place.path("model").join(name))?;
    }
    let planner = Planner::new(place.text("model"), POINTS, [place.text("corpus.jsonl")]);
    let planner = planner.context(CONTEXT).batch(4).unit_tokens(400);
    Ok((Storage::open(&place.text("root"))?, planner))
}

#[test]
fn what_differs_from_the_plan_is_refused_by_its_name() -> Test {
    let place = Place::new(20);
    let (storage, planner) = with_model(&place)?;
    planner.plan(&storage, &load_bundled)?;
    let worker = || Worker::start(&storage, &load_bundled);
    worker()?;
    let planned = files(&place.path("root"));
    let change = |name: &str, from: Option<&[u8]>| -> anyhow::Result<Vec<u8>> {
        let bytes = std::fs::read(place.path(name))?;
        let mut changed = bytes.clone();
        let at = from.map_or(bytes.len() - 3, |from| {
            bytes.windows(from.len()).position(|window| window == from).unwrap() + from.len() - 1
        });
        changed[at] ^= 1;
        std::fs::write(place.path(name), changed)?;
        Ok(bytes)
    };
    for name in ["model/model.safetensors", "model/tokenizer.json", "model/config.json"] {
        let before = change(name, Some(if name.ends_with("json") { b"\"" } else { b"{" }))?;
        let error = worker().err().unwrap();
        let HarvestError::Mismatch { what, .. } = of(&error) else { panic!("{error}") };
        assert!(what.contains(name.split_once('/').unwrap().1), "{what}");
        std::fs::write(place.path(name), before)?;
    }
    let before = change("corpus.jsonl", None)?;
    let error = worker()?.run(0..missing(&storage)?.len(), |_, _| ()).unwrap_err();
    let HarvestError::Mismatch { what, .. } = of(&error) else { panic!("{error}") };
    assert!(what.contains("corpus.jsonl"), "{what}");
    std::fs::write(place.path("corpus.jsonl"), before)?;
    let before = change("root/job.json", Some(format!("harvest {}", env!("CARGO_PKG_VERSION")).as_bytes()))?;
    let error = worker().err().unwrap();
    assert!(matches!(of(&error), HarvestError::Mismatch { what, .. } if what == "the program"), "{error}");
    std::fs::write(place.path("root/job.json"), before)?;
    worker()?;
    // But for the units that came before the changed byte of the corpus.
    let written = files(&place.path("root"));
    assert!(planned.iter().all(|(name, bytes)| written[name] == *bytes));
    // Another plan has no place where one is.
    let error = planner.context(16).plan(&storage, &load_bundled).err().unwrap();
    assert!(matches!(of(&error), HarvestError::JobExists { .. }), "{error}");
    Ok(())
}

#[test]
fn a_unit_that_cannot_be_computed_is_named_and_the_others_finish() -> Test {
    let place = Place::new(100);
    let whole = std::fs::read(place.path("corpus.jsonl"))?;
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let mut text: Vec<u8> = lines[..50].concat();
    text.extend_from_slice(b"{\"text\": \"\xff\xfe\"}\n");
    text.extend_from_slice(&lines[50..].concat());
    // Empty documents and a long one are documents.
    text.extend_from_slice(b"{\"text\": \"\"}\n\n");
    let long = " Mary and John went to the store.".repeat(3000);
    text.extend_from_slice(serde_json::json!({ "text": long }).to_string().as_bytes());
    std::fs::write(place.path("corpus.jsonl"), text)?;
    let (storage, units) = place.planned("root");
    let worker = Worker::start(&storage, &load_bundled)?;
    let summary = worker.run(0..units, |_, _| ())?;
    assert_eq!((summary.done, summary.failed.len()), (units - 1, 1));
    let status = Status::of(&storage)?;
    assert_eq!((status.done, status.missing, status.failed.len()), (units - 1, 1, 1));
    assert_eq!(status.failed[0].attempts, 3);
    assert!(
        status.failed[0].error.contains("corpus.jsonl") && status.failed[0].error.contains("UTF-8"),
        "{status}"
    );
    let error = seal(&storage, Seal::Complete).unwrap_err();
    let HarvestError::Incomplete { missing: 1, first, .. } = of(&error) else { panic!("{error}") };
    assert!(first[0].contains("UTF-8"), "{error}");
    // It is not tried for ever.
    assert_eq!(worker.run(0..units, |_, _| ())?.failed.len(), 1);
    assert_eq!(Status::of(&storage)?.failed[0].attempts, 3);
    seal(&storage, Seal::WhatIsThere)?;
    let store = Store::open_in(&storage)?;
    assert!(!store.manifest().complete);
    store.verify()?;
    Ok(())
}

/// Every file that others may have written, changed in some byte: there is an error or the same store, never a panic and
/// never other rows.
#[test]
fn damaged_files_are_errors() -> Test {
    let place = Place::new(40);
    let storage = place.harvested("whole");
    let expected = Store::open_in(&storage)?;
    let rows = |store: &Store| -> hookpoint::Result<Vec<f32>> {
        let rows = store.get("blocks.0:resid_post", 0..store.rows(), &candle_core::Device::Cpu)?;
        Ok(rows.flatten_all()?.to_vec1()?)
    };
    let expected = rows(&expected)?;
    let mut random = English::new(5);
    let (mut errors, mut same) = (0, 0);
    for (name, bytes) in files(&place.path("whole")) {
        let path = place.path("whole").join(&name);
        let bytes = if name.starts_with("units") { std::fs::read(&path)? } else { bytes };
        for _ in 0..12 {
            let mut changed = bytes.clone();
            // Most often in the header, which has the lengths.
            let end = if random.below(3) == 0 { changed.len() } else { changed.len().min(400) };
            match random.below(3) {
                0 => changed[random.below(end)] ^= 1 << random.below(8),
                1 => changed.truncate(random.below(end)),
                _ => {
                    let at = random.below(end);
                    changed.splice(at..at, b"9".iter().copied());
                }
            }
            if changed == bytes {
                continue;
            }
            std::fs::write(&path, &changed)?;
            let read = Store::open_in(&storage).and_then(|store| {
                store.verify()?;
                rows(&store)
            });
            match read {
                Ok(found) => {
                    assert!(name.starts_with("units") || name.contains(".json"), "{name}");
                    assert_eq!(found, expected, "{name}");
                    same += 1;
                }
                Err(_) => errors += 1,
            }
            let _ = Status::of(&storage);
            let _ = seal(&storage, Seal::Complete);
            let _ = Worker::start(&storage, &load_bundled).map(|_| ());
        }
        std::fs::write(&path, &bytes)?;
    }
    assert!(errors > 50 && same > 20, "{errors} errors, {same} the same");
    assert_same(&place.path("whole"), &place.path("whole"));
    Ok(())
}

#[test]
fn numbers_that_are_too_large_take_no_memory() -> Test {
    let place = Place::new(20);
    let storage = place.harvested("root");
    let edit = |name: &str, from: &str, to: &str| -> anyhow::Result<()> {
        let path = place.path("root").join(name);
        let text = std::fs::read_to_string(&path)?;
        assert!(text.contains(from), "{name} has no {from}");
        Ok(std::fs::write(path, text.replacen(from, to, 1))?)
    };
    edit("manifest.json", "\"rows\": ", "\"rows\": 9999999999999")?;
    assert!(Store::open_in(&storage).is_err());
    edit("job.json", "\"context\": 32", "\"context\": 99999999999999999")?;
    assert!(matches!(of(&missing(&storage).unwrap_err()), HarvestError::Damaged { .. }));
    Ok(())
}
