//! Where output goes, and what becomes of it when that fails.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::{Outcome, Place};

const EVERY: &[&[&str]] = &[&["look"], &["points"], &["look", "--json"], &["points", "--json"]];

/// Runs it with standard output that a shell opens.
#[cfg(target_os = "linux")]
fn shell(place: &Place, args: &[&str], rest: &str) -> Outcome {
    let line = format!("exec \"$0\" \"$@\" {rest}");
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", &line, env!("CARGO_BIN_EXE_hookpoint")]).args(args);
    Outcome::new(command.current_dir(place.path("")).output().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_has_seen_enough_is_no_error_and_a_full_disk_is() {
    let place = Place::new(&[]);
    for args in EVERY {
        let outcome = shell(&place, args, "| head -c 10");
        assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{args:?}");
        let outcome = shell(&place, args, "> /dev/full");
        assert_eq!(outcome.code, 2, "{args:?}");
        assert!(outcome.err.contains("cannot write to standard output"), "{}", outcome.err);
        // Nothing panics without standard streams.
        assert!(shell(&place, args, ">&- 2>&-").code != 101);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn files_that_cannot_be_written_are_named_and_nothing_is_left() {
    let place = Place::new(&[]);
    let list = ["cache", "--points", "blocks.0", "--out"];
    place.run(&[&list[..], &["/proc/nothing/a.safetensors"]].concat()).fails_with("/proc/nothing");
    // A device is not replaced by a file; a pipe stands for all of them.
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    place.run(&[&list[..], &["pipe"]].concat()).fails_with("pipe is no file");
    std::fs::remove_file(place.path("pipe")).unwrap();
    // A limit on the size of files is a disk that is full.
    place.run(&[&list[..], &["a.safetensors"]].concat()).succeeds();
    let before = std::fs::read(place.path("a.safetensors")).unwrap();
    let mut command = Command::new("bash");
    let line = "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\"";
    command.args(["-c", line, env!("CARGO_BIN_EXE_hookpoint")]).args(list).arg("a.safetensors");
    let outcome = Outcome::new(command.current_dir(place.path("")).output().unwrap());
    outcome.fails_with("cannot write a.safetensors");
    assert_eq!(std::fs::read(place.path("a.safetensors")).unwrap(), before);
    assert_eq!(place.list("."), ["a.safetensors"]);
    // Others may read it, as any file.
    use std::os::unix::fs::PermissionsExt;
    place.write("plain", "");
    let mode = |name: &str| std::fs::metadata(place.path(name)).unwrap().permissions().mode();
    assert_eq!(mode("a.safetensors"), mode("plain"));
}

#[test]
fn colours_are_for_terminals_unless_they_are_asked_for() {
    let place = Place::new(&[]);
    let plain = place.run(&["look"]).succeeds().out.clone();
    assert!(!plain.contains('\u{1b}'));
    let coloured = place.run(&["look", "--color", "always"]).succeeds().out.clone();
    assert!(coloured.contains("\u{1b}["));
    assert!(!place.run(&["--color", "never", "look"]).succeeds().out.contains('\u{1b}'));
    let mut command = place.hookpoint(&["look", "--color", "always", "--json"]);
    let outcome = Outcome::new(command.env("NO_COLOR", "1").output().unwrap());
    assert!(!outcome.succeeds().out.contains('\u{1b}'));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_at_once_and_leaves_no_half_written_file() {
    let place = Place::new(&[]);
    let list = ["cache", "--points", "blocks.0", "--prompts", "-", "--out", "out"];
    let mut command = place.hookpoint(&list);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"The dogs\n").unwrap();
    // It waits for more, with the folder begun.
    let started = Instant::now();
    while !place.list(".").iter().any(|name| name.ends_with("index.jsonl")) {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing was begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((said.as_str(), place.list(".")), ("", Vec::new()));
}
