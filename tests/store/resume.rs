use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hookpoint::Error;
use hookpoint_harvest::Store;
use hookpoint_models::english::English;
use hookpoint_tests::compare::Test;

use crate::corpus::{bits, corpus, model, record, recorder, POINTS, ROWS};

/// Where a child process is to record to.
const FOLDER: &str = "HOOKPOINT_TEST_STORE";
const BATCHES: usize = 120;
const KILLS: usize = 20;

/// Every shard in its bytes, and the manifest.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = entries.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        (name, std::fs::read(&path).unwrap())
    });
    let mut files: Vec<_> = named.collect();
    files.sort();
    files
}

#[test]
fn a_writer_that_fails_goes_on_where_it_was() -> Test {
    let whole = tempfile::tempdir()?;
    let expected = record(whole.path(), 10)?;
    for fails_at in 0..10usize {
        let folder = tempfile::tempdir()?;
        let model = model();
        let plan = model.plan().cache(POINTS)?;
        let mut count = 0;
        let failed = recorder().record(folder.path(), &plan, corpus(10), |m, ids| {
            count += 1;
            match count > fails_at {
                true => Err(Error::msg("enough")),
                false => Ok(m.forward(ids)?),
            }
        });
        assert!(failed.err().unwrap().to_string().contains("enough"));
        let mut resumed = None;
        recorder()
            .on_progress(|progress| {
                resumed.get_or_insert(progress.resumed);
            })
            .record(folder.path(), &plan, corpus(10), |m, ids| m.forward(ids))?;
        // Of whole shards: three batches each. What does not fit any more is when a shard is written.
        assert_eq!(resumed, Some(fails_at.saturating_sub(1) / 3 * 3), "{fails_at}");
        assert_eq!(bits(&Store::open(folder.path())?), bits(&expected));
        assert_eq!(files(folder.path()), files(whole.path()), "{fails_at}");
    }
    Ok(())
}

/// The moments between two steps of a writer, as files that it leaves.
#[test]
fn what_a_killed_writer_leaves_does_not_count() -> Test {
    let (whole, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    record(whole.path(), 9)?;
    let place = |name: &str| folder.path().join(name);
    // Before the first manifest: a shard that was being written, or that nobody speaks of.
    std::fs::write(place("shard-000000.safetensors.tmp"), b"half of")?;
    record(folder.path(), 4)?;
    assert!(!place("shard-000000.safetensors.tmp").exists());
    let other = tempfile::tempdir()?;
    std::fs::write(other.path().join("shard-000000.safetensors"), b"whole, but not in a manifest")?;
    std::fs::write(other.path().join("manifest.json.tmp"), b"{")?;
    record(other.path(), 9)?;
    assert_eq!(files(other.path()), files(whole.path()));
    // Later: the same, and a manifest that was being written.
    std::fs::write(place("shard-000002.safetensors"), b"whole, but not in the manifest")?;
    std::fs::write(place("shard-000003.safetensors.tmp"), b"half of")?;
    std::fs::write(place("manifest.json.tmp"), b"{")?;
    assert_eq!(Store::open(folder.path())?.rows(), 4 * ROWS);
    record(folder.path(), 9)?;
    let names: Vec<String> = files(folder.path()).into_iter().map(|(name, _)| name).collect();
    let shards = ["shard-000000.safetensors", "shard-000001.safetensors", "shard-000002.safetensors"];
    assert_eq!(names[..2], ["lock", "manifest.json"]);
    assert_eq!(names[2..5], shards);
    assert_eq!(bits(&Store::open(folder.path())?), bits(&Store::open(whole.path())?));
    Ok(())
}

#[test]
fn a_corpus_that_has_grown_is_recorded_further() -> Test {
    let (whole, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let expected = record(whole.path(), 11)?;
    for batches in [1, 1, 4, 4, 5, 11] {
        let store = record(folder.path(), batches)?;
        assert!(store.manifest().complete);
        assert_eq!(store.rows(), batches * ROWS);
    }
    assert_eq!(bits(&Store::open(folder.path())?), bits(&expected));
    assert_eq!(Store::open(folder.path())?.manifest().prompts, expected.manifest().prompts);
    Ok(())
}

#[test]
fn two_writers_do_not_meet() -> Test {
    let folder = tempfile::tempdir()?;
    let model = model();
    let plan = model.plan().cache(POINTS)?;
    let mut second = None;
    recorder().record(folder.path(), &plan, corpus(2), |m, ids| {
        second = Some(record(folder.path(), 2).err().unwrap().to_string());
        m.forward(ids)
    })?;
    assert!(second.unwrap().contains("somebody else is recording here"));
    Ok(())
}

/// Records to the folder that the variable names. Started as a process of its own, by the test below; without the
/// variable it has nothing to do.
#[test]
fn child() -> Test {
    if let Ok(folder) = std::env::var(FOLDER) {
        record(Path::new(&folder), BATCHES)?;
    }
    Ok(())
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resume::child", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// At any moment: while it starts, computes, writes a file, or renames it.
#[test]
fn killing_a_writer_loses_and_doubles_nothing() -> Test {
    let whole = tempfile::tempdir()?;
    let begun = Instant::now();
    assert!(start(whole.path()).wait()?.success());
    let all = begun.elapsed();
    let (expected, expected_files) = (bits(&Store::open(whole.path())?), files(whole.path()));
    let mut random = English::new(all.as_nanos() as u64);
    let (mut kills, mut stores, mut with_leavings) = (0, 0, 0);
    while kills < KILLS {
        let folder = tempfile::tempdir()?;
        loop {
            let mut child = start(folder.path());
            // Often enough that a store is finished only after many of them.
            let moment = all.mul_f64(random.below(1000) as f64 / 1000. * 0.35);
            let until = Instant::now() + moment;
            while Instant::now() < until && child.try_wait()?.is_none() && kills < KILLS {
                std::thread::sleep(Duration::from_micros(300));
            }
            if kills < KILLS && child.try_wait()?.is_none() {
                child.kill()?; // SIGKILL
                child.wait()?;
                kills += 1;
                with_leavings +=
                    usize::from(files(folder.path()).iter().any(|(name, _)| name.ends_with(".tmp")));
                // What is there is the beginning of what will be there.
                if let Ok(store) = Store::open(folder.path()) {
                    for (found, expected) in bits(&store).iter().zip(&expected) {
                        assert_eq!(found, &expected[..found.len()], "after kill {kills}");
                    }
                }
                continue;
            }
            assert!(child.wait()?.success());
            break;
        }
        let store = Store::open(folder.path())?;
        assert_eq!(store.rows(), BATCHES * ROWS);
        assert_eq!(bits(&store), expected);
        assert_eq!(files(folder.path()), expected_files);
        stores += 1;
    }
    println!(
        "{kills} kills while {stores} stores were written; {with_leavings} of them left an unfinished file"
    );
    Ok(())
}
