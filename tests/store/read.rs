use std::collections::HashSet;

use candle_core::{DType, Device, Tensor};
use hookpoint::ActivationCache;
use hookpoint_harvest::{Position, Reading, Recorder, Store};
use hookpoint_tests::compare::Test;
use hookpoint_tests::spoil::assert_says;
use tempfile::TempDir;

const ROWS: usize = 5_000;

/// Row `n` of `x` is `[n; 64]`, and of `y` it is `[-n]`. About 12 shards.
fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let run = |range: &Vec<u32>| {
        let numbers = Tensor::new(range.as_slice(), &Device::Cpu)?.to_dtype(DType::F32)?.unsqueeze(1)?;
        let x = numbers.repeat((1, 64))?.contiguous()?;
        Ok(ActivationCache::from_iter([("x", x), ("y", numbers.neg()?)]))
    };
    let numbers: Vec<u32> = (0..ROWS as u32).collect();
    let batches: Vec<Vec<u32>> = numbers.chunks(130).map(<[u32]>::to_vec).collect();
    let store =
        Recorder::new("numbers").shard_bytes(110_000).record_caches(folder.path(), batches, run).unwrap();
    assert!(store.manifest().shards.len() > 10);
    (folder, store)
}

/// The rows that were given, by their numbers.
fn numbers(batches: impl Iterator<Item = hookpoint::Result<Tensor>>) -> Vec<u32> {
    batches
        .flat_map(|batch| {
            let rows = batch.unwrap().to_vec2::<f32>().unwrap();
            rows.into_iter().map(|row| {
                assert!(row.iter().all(|number| *number == row[0]));
                row[0] as u32
            })
        })
        .collect()
}

#[test]
fn every_row_is_given_once() -> Test {
    let (_folder, store) = store();
    // Chunks are of 500 rows, so that a buffer of 600 is filled many times; the last holds the whole store.
    for buffer in [1, 600 * 64 * 4, 1 << 30] {
        let given = numbers(store.read("x", &Reading::new(77).buffer_bytes(buffer))?);
        assert_eq!(given.len(), ROWS);
        assert_eq!(given.iter().collect::<HashSet<_>>().len(), ROWS);
        assert!(given.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count() < 50);
    }
    let given = numbers(store.read("x", &Reading::new(77).in_order())?);
    assert!(given.iter().copied().eq(0..ROWS as u32));
    Ok(())
}

/// With a buffer that holds all, where a row comes out says nothing about where it was.
#[test]
fn the_order_is_random() -> Test {
    let (_folder, store) = store();
    let given = numbers(store.read("x", &Reading::new(100))?);
    let middle = (ROWS - 1) as f64 / 2.;
    let (mut both, mut own) = (0., 0.);
    for (place, number) in given.iter().enumerate() {
        both += (place as f64 - middle) * (f64::from(*number) - middle);
        own += (place as f64 - middle).powi(2);
    }
    assert!((both / own).abs() < 0.06, "correlation {}", both / own);
    // A small buffer still mixes rows from everywhere: the first batches have some of each tenth of the store.
    let reading = Reading::new(100).buffer_bytes(2_000 * 64 * 4);
    let given = numbers(store.read("x", &reading)?.take(20));
    let tenths: HashSet<u32> = given.iter().map(|number| number / 500).collect();
    assert!(tenths.len() >= 4, "{tenths:?}");
    Ok(())
}

#[test]
fn seeds_and_epochs_have_orders_of_their_own() -> Test {
    let (_folder, store) = store();
    let read = |seed| numbers(store.read("x", &Reading::new(50).seed(seed)).unwrap());
    assert_eq!(read(1), read(1));
    assert_ne!(read(1), read(2));
    let twice = numbers(store.read("x", &Reading::new(64).seed(1).epochs(2))?);
    let (first, second) = twice.split_at(ROWS);
    assert_eq!(first, read(1));
    assert_ne!(first, second);
    assert_eq!(second.iter().collect::<HashSet<_>>().len(), ROWS);
    let more = store.read("x", &Reading::new(ROWS).endless())?.take(5);
    assert_eq!(more.count(), 5);
    Ok(())
}

#[test]
fn reading_goes_on_at_a_position() -> Test {
    let (_folder, store) = store();
    for buffer in [1, 700 * 64 * 4, 1 << 30] {
        let reading = Reading::new(33).seed(5).epochs(2).buffer_bytes(buffer);
        let all = numbers(store.read("x", &reading)?);
        let mut batches = store.read("x", &reading)?;
        let mut given = 0;
        for steps in [0, 1, 30, 120, 121] {
            while given < steps {
                batches.next().unwrap()?;
                given += 1;
            }
            let text = serde_json::to_string(&batches.position())?;
            let position: Position = serde_json::from_str(&text)?;
            let rest = numbers(store.read("x", &reading.clone().from(position))?);
            // The last batch of an epoch is shorter.
            let before = all.len() - rest.len();
            assert_eq!(before, position.epoch as usize * ROWS + position.row);
            assert_eq!(rest, all[before..], "{steps} batches, buffer {buffer}");
        }
    }
    Ok(())
}

#[test]
fn a_position_in_another_order_is_refused() -> Test {
    let (_folder, store) = store();
    let reading = Reading::new(33).seed(5);
    let mut batches = store.read("x", &reading)?;
    batches.next().unwrap()?;
    let position = batches.position();
    for other in [reading.clone().seed(6), reading.clone().buffer_bytes(99), reading.clone().in_order()] {
        let error = store.read("x", &other.from(position)).err().unwrap();
        assert_says(&error.to_string(), &["another order", "same store, points, seed and buffer"]);
    }
    let mut behind: Position = position;
    behind.row = ROWS + 1;
    assert!(store.read("x", &reading.from(behind)).is_err());
    Ok(())
}

#[test]
fn points_are_read_together() -> Test {
    let (_folder, store) = store();
    let mut rows = 0;
    for batch in store.read_aligned(["y", "x"], &Reading::new(100).seed(2).dtype(DType::F64))? {
        let batch = batch?;
        let (y, x) = (batch[0].to_vec2::<f64>()?, batch[1].to_vec2::<f64>()?);
        for (y, x) in y.iter().zip(&x) {
            assert_eq!(y[0], -x[63]);
            rows += 1;
        }
    }
    assert_eq!(rows, ROWS);
    let error = store.read("z", &Reading::new(1)).err().unwrap();
    assert_says(&error.to_string(), &["`z`", "`x`"]);
    assert_says(&store.read("x", &Reading::new(0)).err().unwrap().to_string(), &["at least one row"]);
    Ok(())
}
