use std::fs;

use crate::place::{Place, ANNOTATED, PLAIN};

#[test]
fn a_file_is_printed_and_the_summary_is_not_in_the_way() {
    let place = Place::new(&[("a.rs", PLAIN)]);
    let outcome = place.annotate(&["a.rs"]);
    assert_eq!(outcome.succeeds().out, ANNOTATED);
    assert_eq!(outcome.err, "annotated 1 of 1 file: 1 type, 0 impl blocks\n");
    assert_eq!(place.read("a.rs"), PLAIN);
}

#[test]
fn a_file_goes_to_a_file_or_into_a_folder() {
    let place = Place::new(&[("a.rs", PLAIN)]);
    for (out, written) in
        [("b.rs", "b.rs"), ("new/c.rs", "new/c.rs"), ("new", "new/a.rs"), ("other/", "other/a.rs")]
    {
        place.annotate(&["a.rs", "--out", out]).succeeds();
        assert_eq!(place.read(written), ANNOTATED);
    }
}

#[test]
fn in_place_changes_files_once() {
    let place = Place::new(&[("src/a.rs", PLAIN), ("src/b.rs", "fn main() {}\n")]);
    assert!(place.annotate(&["src", "--in-place"]).succeeds().err.contains("annotated 1 of 2 files"));
    assert_eq!(place.read("src/a.rs"), ANNOTATED);
    let again = place.annotate(&["src", "--in-place"]);
    assert!(again.succeeds().err.starts_with("nothing to annotate in 2 files"), "{}", again.err);
    assert_eq!(place.read("src/a.rs"), ANNOTATED);
}

#[test]
fn check_prints_a_diff_and_exits_with_1() {
    let place = Place::new(&[("src/a.rs", PLAIN)]);
    let outcome = place.annotate(&["./src", "--check"]);
    assert_eq!(outcome.code, 1);
    assert_eq!(
        outcome.out,
        "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1,4 @@\n+use hookpoint::AutoHook;\n+\n+#[derive(AutoHook)]\n struct Head(Linear);\n"
    );
    assert!(outcome.err.starts_with("would annotate 1 of 1 file"), "{}", outcome.err);
    assert_eq!(place.read("src/a.rs"), PLAIN);
    place.annotate(&["src", "--in-place"]).succeeds();
    assert_eq!(place.annotate(&["src", "--check"]).succeeds().out, "");
}

#[test]
fn a_crate_is_copied_as_a_whole() {
    let place = Place::new(&[
        ("cargo/registry/src/index-1/nets-0.9.0/src/lib.rs", "old"),
        ("cargo/registry/src/index-1/nets-0.10.0/src/lib.rs", "pub mod models;\n"),
        ("cargo/registry/src/index-1/nets-0.10.0/src/models/a.rs", PLAIN),
        ("cargo/registry/src/index-1/nets-0.10.0/src/other.rs", PLAIN),
        ("cargo/registry/src/index-1/nets-0.10.0/Cargo.toml", "[package]\n"),
        ("cargo/registry/src/index-1/nets-0.10.0/.cargo-ok", ""),
    ]);
    let outcome = place.annotate(&["nets", "--out", "copy", "--only", "src/models"]);
    assert!(outcome.succeeds().err.contains("add hookpoint to the [dependencies]"), "{}", outcome.err);
    assert_eq!(place.read("copy/src/models/a.rs"), ANNOTATED);
    assert_eq!(place.read("copy/src/other.rs"), PLAIN);
    assert_eq!(place.read("copy/src/lib.rs"), "pub mod models;\n");
    assert_eq!(place.read("copy/Cargo.toml"), "[package]\n");
    assert!(!place.path("copy/.cargo-ok").exists());

    let outcome = place.annotate(&["nets@0.10.0", "--check", "--only", "**/a.rs"]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.out.starts_with("--- a/nets-0.10.0/src/models/a.rs\n"), "{}", outcome.out);

    place.annotate(&["nets"]).fails_with("`--out FOLDER` or `--check`");
    place.annotate(&["nets@0.10.0", "--in-place"]).fails_with("annotate a copy with `--out FOLDER`");
    place.annotate(&["nets@0.11.0", "--check"]).fails_with("only 0.9.0, 0.10.0");
    place.annotate(&["nests", "--check"]).fails_with("`cargo fetch`");
    place.annotate(&["nets", "--check", "--only", "models"]).fails_with("--only src/lib.rs");
}

#[test]
fn files_that_do_not_parse_are_all_named_and_nothing_is_written() {
    let place = Place::new(&[("src/a.rs", PLAIN), ("src/b.rs", "struct {}\n"), ("src/c.rs", "\n  fn\n")]);
    for output in [&["--in-place"][..], &["--check"], &["--out", "copy"]] {
        let outcome = place.annotate(&[&["src"], output].concat());
        outcome.fails_with("error: src/b.rs:1:8: ");
        outcome.fails_with("error: src/c.rs:");
        outcome.fails_with("nothing was written");
    }
    assert_eq!(place.read("src/a.rs"), PLAIN);
    assert!(!place.path("copy").exists());
    place.annotate(&["src", "--in-place", "--only", "a.rs"]).succeeds();
}

#[test]
fn mistakes_say_what_to_do() {
    let place = Place::new(&[("src/a.rs", PLAIN), ("empty/x.txt", "")]);
    fs::write(place.path("latin.rs"), b"// \xfc\n").unwrap();
    place.annotate(&["src"]).fails_with("`--out FOLDER`, `--in-place` or `--check`");
    place.annotate(&["src", "--out", "src"]).fails_with("--in-place");
    place.annotate(&["src", "--out", "src/sub/new"]).fails_with("choose one outside");
    place.annotate(&["src", "--out", "src/a.rs"]).fails_with("is a file");
    place.annotate(&["b.rs"]).fails_with("there is no file or folder `b.rs`");
    place.annotate(&["empty", "--check"]).fails_with("no Rust files");
    place.annotate(&["latin.rs"]).fails_with("UTF-8");
    place.annotate(&["src/a.rs", "--only", "src"]).fails_with("is one file");
    place.annotate(&["src", "--check", "--in-place"]).fails_with("cannot be used with");
    place.annotate(&["candle@new", "--check"]).fails_with("candle@1.2.3");
}
