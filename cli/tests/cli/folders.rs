//! What of a folder is annotated and copied, and what is left alone.

use crate::place::{Place, ANNOTATED, PLAIN};

/// The files of a place that were annotated by a run over a folder.
fn annotated(place: &Place, folder: &str) -> Vec<String> {
    place.annotate(&[folder, "--in-place"]).succeeds();
    let files = place.list(folder).into_iter().filter(|name| !name.ends_with('/'));
    files.filter(|name| place.read(&format!("{folder}/{name}")) == ANNOTATED).collect()
}

// All nine were annotated in place: generated code, and what other tools keep.
#[test]
fn builds_and_hidden_folders_and_what_is_ignored_are_left_alone() {
    let place = Place::new(&[
        ("p/Cargo.toml", ""),
        ("p/.gitignore", "/gen/\n*.out.rs\n!kept.out.rs\n"),
        ("p/src/.ignore", "bench.rs\n"),
        ("p/src/a.rs", PLAIN),
        ("p/src/b.out.rs", PLAIN),
        ("p/src/kept.out.rs", PLAIN),
        ("p/src/gen/c.rs", PLAIN),
        ("p/src/bench.rs", PLAIN),
        ("p/bench.rs", PLAIN),
        ("p/gen/d.rs", PLAIN),
        ("p/target/debug/out.rs", PLAIN),
        ("p/build-of-ci/CACHEDIR.TAG", ""),
        ("p/build-of-ci/out.rs", PLAIN),
        ("p/.git/hooks/x.rs", PLAIN),
        ("p/.venv/lib.rs", PLAIN),
        ("p/src/.hidden.rs", PLAIN),
    ]);
    let expected = ["bench.rs", "src/a.rs", "src/gen/c.rs", "src/kept.out.rs"];
    let before = place.annotate(&["p", "--check"]);
    assert!(before.err.contains("would annotate 4 of 4 files"), "{}", before.err);
    assert!(
        before.err.contains("left alone, as .gitignore or .ignore asks: gen, src/b.out.rs, src/bench.rs"),
        "{}",
        before.err
    );
    place.annotate(&["p", "--out", "copy"]).succeeds();
    let rust: Vec<_> = place.list("copy").into_iter().filter(|name| name.ends_with(".rs")).collect();
    assert_eq!(rust, ["bench.rs", "src/.hidden.rs", "src/a.rs", "src/gen/c.rs", "src/kept.out.rs"]);
    assert_eq!(place.read("copy/src/.hidden.rs"), PLAIN);
    assert!(place.path("copy/.gitignore").is_file());
    assert!(!place.path("copy/.git").exists() && !place.path("copy/target").exists());
    assert_eq!(annotated(&place, "p"), expected);
}

#[test]
fn a_module_named_target_is_no_build() {
    for module in ["src/target/mod.rs", "src/target/deep/a.rs", "target/mod.rs"] {
        let place = Place::new(&[("p/Cargo.toml", ""), (&format!("p/{module}"), PLAIN)]);
        assert_eq!(annotated(&place, "p"), [module]);
    }
    let place = Place::new(&[("p/Cargo.toml", ""), ("p/target.rs", PLAIN), ("p/target/a.rs", PLAIN)]);
    assert_eq!(annotated(&place, "p"), ["target.rs", "target/a.rs"]);
}

#[test]
fn a_folder_that_is_named_is_read_whatever_it_is() {
    let files = [
        ("p/.gitignore", "*\n"),
        ("p/Cargo.toml", ""),
        ("p/target/CACHEDIR.TAG", ""),
        ("p/target/a.rs", PLAIN),
        ("p/.hidden/sub/a.rs", PLAIN),
        ("p/gen/.gitignore", "b.rs\n"),
        ("p/gen/a.rs", PLAIN),
        ("p/gen/b.rs", PLAIN),
    ];
    let place = Place::new(&files);
    for folder in ["p/target", "p/.hidden", "p/.hidden/sub", "p/gen"] {
        let place = Place::new(&files);
        let expected = if folder == "p/.hidden" { "sub/a.rs" } else { "a.rs" };
        assert_eq!(annotated(&place, folder), [expected], "{folder}");
    }
    // So is a file.
    place.annotate(&["p/gen/b.rs", "--in-place"]).succeeds();
    assert_eq!(place.read("p/gen/b.rs"), ANNOTATED);
    place.annotate(&["p", "--check"]).fails_with("no Rust files");
    place.annotate(&["p", "--check"]).fails_with(".gitignore");
}

#[test]
fn what_the_repository_ignores_is_ignored_in_its_folders_too() {
    let place = Place::new(&[
        (".gitignore", "a.rs\n"),
        ("repo/.git/info/exclude", "b.rs\n"),
        ("repo/.gitignore", "/src/c.rs\n"),
        // Another repository inside has rules of its own.
        ("repo/src/inner/.git/HEAD", ""),
        ("repo/src/inner/b.rs", PLAIN),
        ("repo/src/a.rs", PLAIN),
        ("repo/src/b.rs", PLAIN),
        ("repo/src/c.rs", PLAIN),
        ("repo/src/d.rs", PLAIN),
    ]);
    assert_eq!(annotated(&place, "repo/src"), ["a.rs", "d.rs", "inner/b.rs"]);
}

#[test]
fn only_says_that_a_file_is_ignored() {
    let place = Place::new(&[("p/.gitignore", "gen\n"), ("p/a.rs", PLAIN), ("p/gen/b.rs", PLAIN)]);
    let outcome = place.annotate(&["p", "--check", "--only", "gen/b.rs"]);
    outcome.fails_with("selects no Rust file");
    outcome.fails_with("left alone, as .gitignore or .ignore asks: gen");
}
