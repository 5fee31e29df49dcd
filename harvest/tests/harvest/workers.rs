use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use candle_core::Device;
use hookpoint::Result;
use hookpoint_harvest::program::load_bundled;
use hookpoint_harvest::{
    collect_garbage, missing, seal, HarvestError, Job, NextBatch, Outcome, Seal, Status, Storage, Store,
    Subject, TakeValues, Worker,
};
use hookpoint_models::english::English;
use object_store::local::LocalFileSystem;

use crate::corpus::{assert_same, files, Place, Test};
use crate::faulty::{Fault, Faulty};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hookpoint-harvest");

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn killing_workers_loses_and_doubles_nothing() -> Test {
    const KILLS: usize = 20;
    let place = Place::new(200);
    place.harvested("whole");
    let mut random = English::new(std::process::id().into());
    let (mut kills, mut roots, mut attempts) = (0, 0, 0);
    while kills < KILLS {
        let name = format!("root{roots}");
        let (storage, units) = place.planned(&name);
        let all = format!("0-{}", units - 1);
        while !missing(&storage)?.is_empty() {
            // Two at once, which compute the same.
            let mut children: Vec<_> = (0..2)
                .map(|_| program(&["worker", &place.text(&name), "--units", &all]).spawn().unwrap())
                .collect();
            attempts += 2;
            if kills < KILLS {
                std::thread::sleep(Duration::from_millis(150 + random.below(400) as u64));
                for child in &mut children {
                    kills += usize::from(child.try_wait()?.is_none());
                    child.kill()?;
                }
            }
            for mut child in children {
                child.wait()?;
            }
        }
        seal(&storage, Seal::Complete)?;
        // What killed workers have written of the units that others committed is the same, or half of it.
        collect_garbage(&storage)?;
        assert_same(&place.path(&name), &place.path("whole"));
        assert!(!files(&place.path(&name)).keys().any(|name| name.contains('#')));
        roots += 1;
    }
    assert!(attempts > 2 * roots, "the kills have not met a worker");
    Ok(())
}

/// Computes something a little else than the model, as another GPU does.
struct Other(Box<dyn Subject>);

impl Subject for Other {
    fn each(&self, points: &[&str], batches: &mut NextBatch<'_>, take: &mut TakeValues<'_>) -> Result<()> {
        self.0.each(points, batches, &mut |ids, cache| {
            let values = cache.iter().map(|(name, value)| (name.to_string(), (value * (1. + 1e-6)).unwrap()));
            take(ids, values.collect())
        })
    }
}

#[test]
fn a_worker_that_was_overtaken_is_refused_and_its_data_removed() -> Test {
    let place = Place::new(40);
    place.harvested("whole");
    let (storage, units) = place.planned("root");
    // It has looked, found no receipt, and computes; before it commits, another one does.
    let first = Worker::start(&storage, &load_bundled)?;
    let overtaken = Worker::start(&storage, &|job: &Job, device: &Device| {
        struct Overtaken(Other, Worker, std::cell::Cell<bool>, usize);
        impl Subject for Overtaken {
            fn each(
                &self,
                points: &[&str],
                batches: &mut NextBatch<'_>,
                take: &mut TakeValues<'_>,
            ) -> Result<()> {
                self.0.each(points, batches, take)?;
                // Not while the probe is made.
                if self.2.replace(true) {
                    self.1.run(0..self.3, |_, _| ())?;
                }
                Ok(())
            }
        }
        let winner = Worker::start(&Storage::open(&place.text("root"))?, &load_bundled)?;
        let other = Other(load_bundled(job, device)?);
        Ok(Box::new(Overtaken(other, winner, std::cell::Cell::new(false), units)))
    })?;
    let mut outcomes = Vec::new();
    overtaken.run([0], |_, outcome| outcomes.push(outcome.clone()))?;
    assert_eq!(outcomes, [Outcome::Lost]);
    assert_eq!(first.run(0..units, |_, _| ())?.already, units);
    seal(&storage, Seal::Complete)?;
    assert_same(&place.path("root"), &place.path("whole"));
    Ok(())
}

/// The local disk with faults: a harvest on it, and the same without.
fn with_faults(faults: &[(Fault, &str, usize)]) -> Test {
    let place = Place::new(40);
    place.harvested("whole");
    std::fs::create_dir(place.path("root"))?;
    let disk = LocalFileSystem::new_with_prefix(place.path("root"))?;
    let faulty = Faulty::new(disk, faults);
    let storage = Storage::with(faulty.clone(), "faulty");
    let (job, _) = place.planner().plan(&storage, &load_bundled)?;
    let summary = Worker::start(&storage, &load_bundled)?.run(0..job.units.len(), |_, _| ())?;
    assert_eq!(summary.done, job.units.len());
    seal(&storage, Seal::Complete)?;
    assert_same(&place.path("root"), &place.path("whole"));
    let times: usize = faults.iter().map(|(_, _, times)| times).sum();
    assert_eq!(*faulty.count.lock().unwrap(), times, "all faults have happened");
    Ok(())
}

#[test]
fn answers_that_are_lost_do_no_harm() -> Test {
    with_faults(&[
        (Fault::AnswerLost, "units/", 3),
        (Fault::AnswerLost, "data/", 3),
        (Fault::AnswerLost, "job", 1),
    ])
}

#[test]
fn a_conflict_with_nobody_loses_no_unit() -> Test {
    with_faults(&[(Fault::ConflictWithNobody, "units/000001", 3), (Fault::ConflictWithNobody, "manifest", 2)])
}

#[test]
fn a_busy_storage_is_asked_again() -> Test {
    with_faults(&[(Fault::Busy, "units/", 4), (Fault::Busy, "data/", 4), (Fault::Busy, "pages/", 2)])
}

#[test]
fn a_full_disk_is_an_error_and_the_rest_comes_later() -> Test {
    let place = Place::new(40);
    place.harvested("whole");
    let (_, units) = place.planned("root");
    let disk = LocalFileSystem::new_with_prefix(place.path("root"))?;
    let storage = Storage::with(Faulty::new(disk, &[(Fault::Full, "data/u000002", 1)]), "full");
    let worker = Worker::start(&storage, &load_bundled)?;
    let error = worker.run(0..units, |_, _| ()).unwrap_err();
    assert!(matches!(HarvestError::of(&error), Some(HarvestError::Storage { .. })), "{error}");
    let status = Status::of(&storage)?;
    assert!(status.done >= 2 && status.missing > 0 && status.failed.is_empty(), "{status:?}");
    worker.run(0..units, |_, _| ())?;
    seal(&storage, Seal::Complete)?;
    assert_same(&place.path("root"), &place.path("whole"));
    Ok(())
}

#[test]
fn storage_that_ignores_the_condition_is_refused() -> Test {
    let place = Place::new(10);
    let memory = object_store::memory::InMemory::new();
    let storage = Storage::with(Faulty::new(memory, &[(Fault::Overwrites, "", usize::MAX)]), "look-alike");
    let error = place.planner().plan(&storage, &load_bundled).err().unwrap();
    assert!(matches!(HarvestError::of(&error), Some(HarvestError::NotCreateOnly { .. })), "{error}");
    Ok(())
}

#[test]
fn a_harvest_in_memory_is_a_harvest() -> Test {
    let place = Place::new(40);
    let expected = Store::open_in(&place.harvested("whole"))?;
    let storage = Storage::with(Arc::new(object_store::memory::InMemory::new()), "memory");
    let (job, _) = place.planner().plan(&storage, &load_bundled)?;
    Worker::start(&storage, &load_bundled)?.run(0..job.units.len(), |_, _| ())?;
    seal(&storage, Seal::Complete)?;
    let store = Store::open_in(&storage)?;
    let rows = |store: &Store| {
        let rows = store.get("blocks.0:resid_post", 0..store.rows(), &Device::Cpu).unwrap();
        rows.flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    assert_eq!(rows(&store), rows(&expected));
    assert_eq!(store.tokens(0..store.rows())?, expected.tokens(0..expected.rows())?);
    Ok(())
}
