use std::collections::BTreeSet;
use std::time::Instant;

use candle_core::Device;
use hookpoint_harvest::program::load_bundled;
use hookpoint_harvest::{seal, ActivationSource, Reading, Recorder, Seal, Storage, Store, Worker};

use crate::corpus::{Place, Test};

const POINT: &str = "blocks.0:resid_post";

fn bits(rows: &candle_core::Tensor) -> Vec<Vec<u32>> {
    let rows = rows.to_vec2::<f32>().unwrap();
    rows.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect()
}

#[test]
fn every_row_comes_once_and_a_reader_goes_on_where_it_was() -> Test {
    let place = Place::new(120);
    place.harvested("root");
    // By its path, as any other store.
    let store = Store::open(place.path("root"))?;
    let all: BTreeSet<_> = bits(&store.get(POINT, 0..store.rows(), &Device::Cpu)?).into_iter().collect();
    let reading = || Reading::new(50).seed(3).buffer_bytes(1 << 20);
    let (mut found, mut count) = (BTreeSet::new(), 0);
    let mut batches = store.read(POINT, &reading())?;
    let mut third = None;
    while let Some(batch) = batches.next() {
        let batch = bits(&batch?);
        count += batch.len();
        found.extend(batch);
        third.get_or_insert(batches.position());
    }
    assert_eq!((count, &found), (store.rows(), &all));
    let mut rest = store.read(POINT, &reading().from(third.unwrap()))?;
    let mut whole = store.read(POINT, &reading())?;
    whole.next();
    assert_eq!(bits(&rest.next().unwrap()?), bits(&whole.next().unwrap()?));
    // Shapes are those of the point.
    let mut heads = store.read("blocks.1.attn:z", &reading())?;
    assert_eq!(heads.next().unwrap()?.dims(), [50, 4, 24]);
    Ok(())
}

#[test]
fn parts_have_every_row_once_together() -> Test {
    let place = Place::new(120);
    let store = Store::open_in(&place.harvested("root"))?;
    let mut tokens = Vec::new();
    let mut sizes = Vec::new();
    for part in 0..3 {
        let rows: Vec<_> = store
            .read(POINT, &Reading::new(64).part(part, 3))?
            .map(|batch| bits(&batch.unwrap()))
            .collect::<Vec<_>>()
            .concat();
        sizes.push(rows.len());
        tokens.extend(rows);
    }
    assert_eq!(tokens.len(), store.rows());
    tokens.sort();
    let mut all = bits(&store.get(POINT, 0..store.rows(), &Device::Cpu)?);
    all.sort();
    assert_eq!(tokens, all);
    assert!(store.read(POINT, &Reading::new(64).part(3, 3)).is_err());
    // A place in one part is no place in another.
    let mut one = store.read(POINT, &Reading::new(1).part(0, 3))?;
    one.next_rows(20)?;
    let mut other = store.read(POINT, &Reading::new(1).part(1, 3))?;
    assert!(other.seek(ActivationSource::position(&one)).is_err());
    Ok(())
}

#[test]
fn a_recorder_leaves_a_harvest_alone() -> Test {
    let place = Place::new(20);
    place.harvested("root");
    let run = |_: &u32| -> hookpoint::Result<hookpoint::ActivationCache> { panic!("nothing is run") };
    let error = Recorder::new("embedded").record_caches(place.path("root"), [1u32], run).err().unwrap();
    assert!(error.to_string().contains("sealed harvest"), "{error}");
    Store::open(place.path("root"))?.verify()?;
    Ok(())
}

/// As many shards as `HOOKPOINT_SHARDS` says; few unless it is set, because they have to be made first.
#[test]
fn the_first_batch_comes_soon() -> Test {
    let shards: usize = std::env::var("HOOKPOINT_SHARDS").map_or(300, |shards| shards.parse().unwrap());
    // Each has one sequence of two tokens.
    let place = Place::new(shards / 20 + 20);
    let storage = Storage::open(&place.text("root"))?;
    let planner =
        place.planner().context(2).batch(1).shard_bytes(1).unit_tokens(500).tokens(2 * shards as u64);
    let (job, _) = planner.plan(&storage, &load_bundled)?;
    Worker::start(&storage, &load_bundled)?.run(0..job.units.len(), |_, _| ())?;
    seal(&storage, Seal::Complete)?;
    let begun = Instant::now();
    let store = Store::open_in(&storage)?;
    let mut batches = store.read(POINT, &Reading::new(64))?;
    batches.next().unwrap()?;
    let (seconds, shards) =
        (begun.elapsed().as_secs_f64(), std::fs::read_dir(place.path("root/data"))?.count());
    println!("{shards} shards, first batch after {seconds:.3} s");
    assert!(shards >= 150 && seconds < 5., "{shards} {seconds}");
    Ok(())
}
