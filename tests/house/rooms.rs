use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::modules::Graph;

/// The rooms of `hookpoint/src`, bottom to top: each may use those before it.
const ORDER: &[&str] = &[
    "lookup",
    "nearest",
    "report",
    "error",
    "device",
    "convert",
    "fingerprint",
    "erased",
    "thread",
    "memory",
    "value",
    "pattern",
    "select",
    "tree",
    "point",
    "run",
    "listen",
    "recording",
    "cache",
    "manage",
    "hooked",
    "access",
    "plan",
    "track",
    "capture",
    "check",
    "registry",
    "private",
];

fn engine() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hookpoint/src")
}

#[test]
fn a_room_of_the_engine_uses_only_what_stands_below_it() -> Result<()> {
    let problems = Graph::of(&engine())?.problems(ORDER);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// The engine's source, with `text` behind one file of it.
fn with(file: &str, text: &str) -> Result<Vec<String>> {
    let copy = tempfile::tempdir()?;
    copy_all(&engine(), copy.path())?;
    let planted = copy.path().join(file);
    let before = fs::read_to_string(&planted).unwrap_or_default();
    fs::write(&planted, before + text)?;
    Ok(Graph::of(copy.path())?.problems(ORDER))
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

#[test]
fn a_planted_upward_edge_is_reported_however_it_is_written() -> Result<()> {
    for (file, text) in [
        ("pattern/glob.rs", "\nuse crate::plan::Plan as _;\n"),
        ("pattern/glob.rs", "\nuse super::super::{plan::{Plan as _}};\n"),
        ("pattern/mod.rs", "\nmod planted { use super::super::plan::Plan as _; }\n"),
        ("pattern/glob.rs", "\nfn planted(_: &crate::plan::Plan<'_, ()>) {}\n"),
        // By the name that `lib.rs` gives it.
        ("pattern/glob.rs", "\nuse crate::Plan as _;\n"),
        ("pattern/glob.rs", "\nplanted! { crate::plan::Plan }\n"),
    ] {
        let problems = with(file, text)?;
        let expected = format!("`pattern` uses `plan`, which stands above it, in {file}");
        assert_eq!(problems, [expected], "{text}");
    }
    // Tests may use what they like.
    assert!(with("pattern/glob.rs", "\n#[cfg(test)]\nmod planted { use crate::plan::Plan; }\n")?.is_empty());
    Ok(())
}

#[test]
fn a_cycle_is_reported_where_it_goes_up() -> Result<()> {
    // `cache` uses `tree`, so this closes a cycle.
    assert_eq!(
        with("tree/dict.rs", "\nuse crate::cache::ActivationCache;\n")?,
        ["`tree` uses `cache`, which stands above it, in tree/dict.rs"]
    );
    Ok(())
}

#[test]
fn a_new_room_has_to_be_given_a_place() -> Result<()> {
    let problems = with("planted.rs", "//! A room.\n")?;
    assert_eq!(problems, ["`planted` has no place in the order of the rooms"]);
    Ok(())
}
