//! Source is never destroyed: a file is replaced whole, or it is what it was.

use std::fs;

use crate::place::{Place, ANNOTATED, PLAIN};
#[cfg(unix)]
use {
    crate::place::Outcome, std::os::unix::fs::MetadataExt, std::os::unix::fs::PermissionsExt,
    std::process::Command,
};

/// A file that is longer than what fits: 24 KiB and more.
fn long() -> String {
    let filler = "// A line of a comment, of the kind that fills files.\n".repeat(500);
    format!("{PLAIN}{filler}")
}

/// Runs the command where no file can grow over 8,192 bytes, as on a disk that is full: the write that goes
/// over it fails. This is a limit of the process, so it needs no rights and no mount.
#[cfg(unix)]
fn annotate_on_a_full_disk(place: &Place, args: &[&str]) -> Outcome {
    let inner = place.command(args);
    let mut shell = Command::new("sh");
    // `-f` counts in 512 bytes; bash, where it is `sh`, does so too in this mode. Without the trap the signal kills.
    shell.args(["-c", "trap '' XFSZ; ulimit -f 16 && exec \"$@\"", "sh"]);
    shell.arg(inner.get_program()).args(inner.get_args()).current_dir(place.path(""));
    let outcome = Outcome::new(shell.output().unwrap());
    assert!(!outcome.err.contains("ulimit"), "the limit cannot be set: {}", outcome.err);
    outcome
}

// The original had its first 8,192 bytes of 27,021 left, and the command said `File too large`.
#[cfg(unix)]
#[test]
fn a_disk_that_is_full_leaves_the_original_and_no_temporary() {
    let text = long();
    let place = Place::new(&[("src/a.rs", &text)]);
    for target in ["src/a.rs", "src"] {
        let outcome = annotate_on_a_full_disk(&place, &[target, "--in-place"]);
        outcome.fails_with("cannot write");
        outcome.fails_with("a.rs");
        outcome.fails_with("nothing was written");
        assert!(place.read("src/a.rs") == text, "{} bytes are left", place.read("src/a.rs").len());
        assert_eq!(place.list("src"), ["a.rs"]);
    }
    place.annotate(&["src", "--in-place"]).succeeds();
    assert!(place.read("src/a.rs").starts_with(ANNOTATED.trim_end()));
    assert_eq!(place.list("src"), ["a.rs"]);
}

// `a.rs` was written, `b.rs` was cut, and nothing said which.
#[cfg(unix)]
#[test]
fn a_folder_on_a_disk_that_is_full_is_not_written_at_all() {
    let text = long();
    let place = Place::new(&[("src/a.rs", PLAIN), ("src/b.rs", &text), ("src/c.rs", PLAIN)]);
    let outcome = annotate_on_a_full_disk(&place, &["src", "--in-place"]);
    outcome.fails_with("b.rs");
    outcome.fails_with("nothing was written");
    assert_eq!([place.read("src/a.rs"), place.read("src/c.rs")], [PLAIN, PLAIN]);
    assert!(place.read("src/b.rs") == text);
    assert_eq!(place.list("src"), ["a.rs", "b.rs", "c.rs"]);
}

#[cfg(unix)]
#[test]
fn a_copy_on_a_disk_that_is_full_leaves_what_was_there() {
    let text = long();
    let place = Place::new(&[("src/a.rs", &text), ("src/data.txt", &text), ("one.rs", "fn old() {}\n")]);
    annotate_on_a_full_disk(&place, &["src/a.rs", "--out", "one.rs"]).fails_with("nothing was written");
    assert_eq!(place.read("one.rs"), "fn old() {}\n");
    annotate_on_a_full_disk(&place, &["src", "--out", "copy/deep"]).fails_with("nothing was written");
    // The folders that were made for it are gone, too.
    assert_eq!(place.list(""), ["one.rs", "src/", "src/a.rs", "src/data.txt"]);
    // A copied file, not an annotated one.
    place.write("src/a.rs", PLAIN);
    place.write("there/data.txt", "old");
    annotate_on_a_full_disk(&place, &["src", "--out", "there"]).fails_with("data.txt");
    assert_eq!(place.list("there"), ["data.txt"]);
    assert_eq!(place.read("there/data.txt"), "old");
}

#[cfg(unix)]
#[test]
fn the_permissions_of_a_file_stay() {
    let place = Place::new(&[("a.rs", PLAIN), ("b.rs", PLAIN), ("src/run.sh", ""), ("src/a.rs", PLAIN)]);
    for (name, mode) in [("a.rs", 0o640), ("b.rs", 0o755), ("src/run.sh", 0o755), ("src/a.rs", 0o600)] {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().mode() & 0o7777;
    for (name, expected) in [("a.rs", 0o640), ("b.rs", 0o755)] {
        place.annotate(&[name, "--in-place"]).succeeds();
        assert_eq!((place.read(name).as_str(), mode(name)), (ANNOTATED, expected));
    }
    place.annotate(&["src", "--out", "copy"]).succeeds();
    assert_eq!([mode("copy/run.sh"), mode("copy/a.rs")], [0o755, 0o600]);
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link_and_what_it_leads_to_is_replaced() {
    use std::os::unix::fs::symlink;
    let place = Place::new(&[("real/a.rs", PLAIN), ("src/other.rs", "")]);
    symlink("../real/a.rs", place.path("src/a.rs")).unwrap();
    symlink("a.rs", place.path("src/again.rs")).unwrap();
    // Two names of one file are one write.
    place.annotate(&["src", "--in-place"]).succeeds();
    for name in ["src/a.rs", "src/again.rs"] {
        assert!(fs::symlink_metadata(place.path(name)).unwrap().is_symlink());
        assert_eq!(place.read(name), ANNOTATED);
    }
    assert!(!fs::symlink_metadata(place.path("real/a.rs")).unwrap().is_symlink());
    assert_eq!(place.list("real"), ["a.rs"]);
    assert_eq!(place.list("src"), ["a.rs", "again.rs", "other.rs"]);

    place.annotate(&["real/a.rs", "--out", "src/again.rs"]).succeeds();
    assert!(fs::symlink_metadata(place.path("src/again.rs")).unwrap().is_symlink());
    symlink("nowhere.rs", place.path("src/broken.rs")).unwrap();
    place.annotate(&["real/a.rs", "--out", "src/broken.rs"]).fails_with("leads nowhere");
}

#[cfg(unix)]
#[test]
fn another_name_of_the_file_keeps_the_old_text_and_a_note_says_so() {
    let place = Place::new(&[("a.rs", PLAIN)]);
    fs::hard_link(place.path("a.rs"), place.path("kept.rs")).unwrap();
    let outcome = place.annotate(&["a.rs", "--in-place"]);
    assert!(
        outcome
            .succeeds()
            .err
            .contains("note: a.rs: 1 other name of this file (a hard link) keeps the old text"),
        "{}",
        outcome.err
    );
    assert_eq!([place.read("a.rs").as_str(), &place.read("kept.rs")], [ANNOTATED, PLAIN]);
    // Where both are annotated, both have the annotated text.
    let place = Place::new(&[("src/a.rs", PLAIN)]);
    fs::hard_link(place.path("src/a.rs"), place.path("src/b.rs")).unwrap();
    place.annotate(&["src", "--in-place"]).succeeds();
    assert_eq!([place.read("src/a.rs").as_str(), &place.read("src/b.rs")], [ANNOTATED, ANNOTATED]);
}

// Also for root, who may write to files that are read-only.
#[test]
fn a_file_that_is_read_only_is_refused_before_anything_is_written() {
    let place = Place::new(&[("src/a.rs", PLAIN), ("src/b.rs", PLAIN)]);
    let path = place.path("src/b.rs");
    let writable = fs::metadata(&path).unwrap().permissions();
    let mut read_only = writable.clone();
    read_only.set_readonly(true);
    fs::set_permissions(&path, read_only).unwrap();
    for args in [&["src", "--in-place"][..], &["src/a.rs", "--out", "src/b.rs"]] {
        let outcome = place.annotate(args);
        outcome.fails_with("b.rs is read-only");
        outcome.fails_with("nothing was written");
        assert_eq!([place.read("src/a.rs"), place.read("src/b.rs")], [PLAIN, PLAIN]);
    }
    assert_eq!(place.list("src"), ["a.rs", "b.rs"]);
    // What does not change is not written, whatever its permissions are.
    place.annotate(&["src", "--in-place", "--only", "a.rs"]).succeeds();
    fs::set_permissions(&path, writable).unwrap();
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_not_replaced_by_one() {
    let place = Place::new(&[("a.rs", PLAIN)]);
    let made = Command::new("mkfifo").arg(place.path("pipe")).status().unwrap();
    assert!(made.success());
    let reader = std::thread::spawn({
        let pipe = place.path("pipe");
        move || fs::read_to_string(pipe).unwrap()
    });
    place.annotate(&["a.rs", "--out", "pipe"]).succeeds();
    assert_eq!(reader.join().unwrap(), ANNOTATED);
    let outcome = place.annotate(&["a.rs", "--out", "/dev/stdout"]);
    assert_eq!(outcome.succeeds().out, ANNOTATED);
    place.annotate(&["a.rs", "--out", "/dev/null"]).succeeds();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}
