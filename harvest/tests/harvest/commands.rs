use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::corpus::{assert_same, Place, Test};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hookpoint-harvest");

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    command
}

fn output(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = program(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

fn plan(place: &Place, root: &str) {
    let (root, corpus) = (place.text(root), place.text("*.jsonl"));
    let points = ["--point", "blocks.0.hook_resid_post", "blocks.1.attn.hook_z"];
    let sizes = ["--context", "32", "--batch", "4", "--unit-tokens", "400", "--shard-bytes", "197632"];
    let arguments = ["plan", &root, "--model", "embedded", "--corpus", &corpus, "--text", "text"];
    let (code, out, err) = output(&[&arguments[..], &points, &sizes].concat());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("blocks.1.attn:z [4, 24] f32") && out.contains("$ a month"), "{out}");
}

#[test]
fn a_harvest_by_commands_with_one_and_two_threads() -> Test {
    let place = Place::new(80);
    place.harvested("whole");
    for threads in ["1", "2"] {
        let root = place.text(threads);
        plan(&place, threads);
        let (code, out, _) = output(&["status", &root]);
        assert!(code == 0 && out.starts_with("0 of "), "{out}");
        let (code, _, err) = output(&["seal", &root]);
        assert!(code == 2 && err.contains("units are missing") && err.contains("--allow-missing"), "{err}");
        let run = program(&["run", &root]).env("RAYON_NUM_THREADS", threads).output()?;
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        assert_eq!(output(&["seal", &root]).0, 0);
        assert_eq!(output(&["gc", &root]).1, "removed 0 files, 0 bytes\n");
        let (_, out, _) = output(&["status", &root, "--json"]);
        let status: serde_json::Value = serde_json::from_str(&out)?;
        assert_eq!((&status["missing"], &status["sealed"]), (&0.into(), &true.into()));
        assert_same(&place.path(threads), &place.path("whole"));
    }
    Ok(())
}

#[test]
fn a_worker_answers_line_by_line_and_ends_with_its_input() -> Test {
    let place = Place::new(40);
    plan(&place, "root");
    let mut worker = program(&["worker", &place.text("root"), "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut input = worker.stdin.take().unwrap();
    let mut answers = BufReader::new(worker.stdout.take().unwrap()).lines();
    let mut next =
        || -> serde_json::Value { serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["ready"], true);
    for (unit, result) in [(1, "done"), (1, "already"), (0, "done")] {
        writeln!(input, "{unit}")?;
        let answer = next();
        assert_eq!((&answer["unit"], &answer["result"]), (&unit.into(), &result.into()));
    }
    drop(input);
    assert!(worker.wait()?.success());
    Ok(())
}

#[test]
fn exit_codes_say_what_an_engine_should_do() -> Test {
    let place = Place::new(200);
    plan(&place, "root");
    let root = place.text("root");
    assert_eq!(output(&["worker", &root, "--units", "99999"]).0, 2);
    assert_eq!(output(&["worker", &place.text("nowhere"), "--units", "0"]).0, 2);
    // Asked to go.
    let mut worker =
        program(&["worker", &root, "--stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut ready = String::new();
    BufReader::new(worker.stdout.as_mut().unwrap()).read_line(&mut ready)?;
    assert!(Command::new("kill").args(["-TERM", &worker.id().to_string()]).status()?.success());
    let begun = Instant::now();
    // `wait` closes the input, whose end is another reason to go.
    let _input = worker.stdin.take();
    assert_eq!(worker.wait()?.code(), Some(75));
    assert!(begun.elapsed() < Duration::from_secs(10));
    // A unit that cannot be computed.
    std::fs::write(place.path("corpus.jsonl"), b"{\"text\": \"Mary\"}\n{\"text\": 7}\n")?;
    let planned = [
        "plan",
        &place.text("bad"),
        "--model",
        "embedded",
        "--corpus",
        &place.text("corpus.jsonl"),
        "--point",
        "blocks.0",
        "--context",
        "2",
        "--unit-tokens",
        "1",
    ]
    .map(str::to_string);
    let planned: Vec<&str> = planned.iter().map(String::as_str).collect();
    let (code, _, err) = output(&planned);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = output(&["run", &place.text("bad")]);
    assert!(code == 1 && err.contains("the field `text`"), "{code} {err}");
    let (_, out, _) = output(&["status", &place.text("bad")]);
    assert!(out.contains("unit 1 (3 attempts)"), "{out}");
    Ok(())
}

#[test]
fn the_script_for_slurm_sends_what_is_missing() -> Test {
    let place = Place::new(80);
    plan(&place, "root");
    let root = place.text("root");
    assert_eq!(output(&["worker", &root, "--units", "0-1"]).0, 0);
    let submit = [
        "submit",
        &root,
        "--slurm",
        "--workers",
        "3",
        "--units-per-element",
        "2",
        "--print",
        "--",
        "--partition=gpu",
    ];
    let (code, script, err) = output(&submit);
    assert_eq!(code, 0, "{err}");
    assert!(script.contains("#SBATCH --partition=gpu") && script.contains("units=(2-3 4-5 "), "{script}");
    // It is a script, and does what it says when Slurm is played to it.
    std::fs::write(place.path("script"), &script)?;
    let element = Command::new("bash").arg(place.path("script")).env("SLURM_ARRAY_TASK_ID", "1").output()?;
    assert!(element.status.success(), "{}", String::from_utf8_lossy(&element.stderr));
    assert!(place.path("root/units/000004.json").exists() && place.path("root/units/000005.json").exists());
    assert!(!place.path("root/units/000002.json").exists());
    output(&["run", &root]);
    assert!(output(&submit).1.contains("all units are committed"));
    Ok(())
}
