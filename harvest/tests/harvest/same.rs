use candle_core::{Device, Tensor};
use hookpoint::Hooked;
use hookpoint_harvest::program::load_bundled;
use hookpoint_harvest::{seal, Seal, Store, Worker};
use hookpoint_models::gpt2::Gpt2;

use crate::corpus::{assert_same, Place, Test, BATCH, CONTEXT, POINTS};

#[test]
fn any_order_and_any_number_of_workers_give_the_same_bytes() -> Test {
    let place = Place::new(200);
    place.harvested("one");
    let (many, units) = place.planned("many");
    assert!(units > 10, "{units}");
    // All units by each of four, in orders of their own.
    let done: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4usize)
            .map(|worker| {
                let many = &many;
                scope.spawn(move || {
                    let order = (0..units).map(|unit| match worker % 2 {
                        0 => (unit * 7 + worker * 5) % units,
                        _ => units - 1 - unit,
                    });
                    let mut order: Vec<usize> = order.collect();
                    order.sort_by_key(|unit| (unit * 7919 + worker * 104_729) % 1009);
                    Worker::start(many, &load_bundled).unwrap().run(order, |_, _| ()).unwrap().done
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(done, units, "each unit counts once");
    seal(&many, Seal::Complete)?;
    assert_same(&place.path("many"), &place.path("one"));
    // Once more does no harm.
    seal(&many, Seal::Complete)?;
    Ok(())
}

#[test]
fn rows_are_what_the_model_computes() -> Test {
    let place = Place::new(60);
    let storage = place.harvested("root");
    let store = Store::open_in(&storage)?;
    let model = Hooked::new(Gpt2::embedded(&Device::Cpu)?);
    assert_eq!(store.points().collect::<Vec<_>>(), ["blocks.0:resid_post", "blocks.1.attn:z"]);
    assert_eq!(store.manifest().points[1].shape, [4, 24]);
    let job = hookpoint_harvest::Job::load(&storage)?;
    let mut row = 0;
    for unit in 0..job.units.len() {
        let receipt: serde_json::Value =
            serde_json::from_slice(&std::fs::read(place.path(&format!("root/units/{unit:06}.json")))?)?;
        let mut sequences = receipt["sequences"].as_u64().unwrap() as usize;
        while sequences > 0 {
            let count = sequences.min(BATCH);
            let rows = row..row + count * CONTEXT;
            let tokens = store.tokens(rows.clone())?;
            let ids = Tensor::from_vec(tokens, (count, CONTEXT), &Device::Cpu)?;
            let (_, cache) = model.run_with_cache(POINTS, |m| m.forward(&ids))?;
            for point in POINTS {
                let found = store.get(point, rows.clone(), &Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?;
                let expected = cache[point].flatten_all()?.to_vec1::<f32>()?;
                let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                assert_eq!(bits(found), bits(expected), "{point} of unit {unit}");
            }
            (row, sequences) = (rows.end, sequences - count);
        }
    }
    assert_eq!(row, store.rows());
    let separators = store.tokens(0..row)?.into_iter().filter(|token| *token == 0).count();
    assert!(
        (40..=60).contains(&separators),
        "one before each of 60 documents but for pieces that are dropped: {separators}"
    );
    store.verify()?;
    Ok(())
}
