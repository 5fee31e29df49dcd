//! Completions, man pages, and `profile`.

use crate::place::Place;

const COMMANDS: &[&str] =
    &["look", "points", "cache", "patch", "ablate", "attribute", "steer", "generate", "profile", "annotate"];

#[test]
fn every_shell_completes_every_command() {
    let place = Place::new(&[]);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = place.run(&["completions", shell]).succeeds().out.clone();
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
    }
    #[cfg(unix)]
    {
        let script = place.run(&["completions", "bash"]).out;
        place.write("c.bash", &script);
        let checked =
            std::process::Command::new("bash").args(["-n", "c.bash"]).current_dir(place.path("")).status();
        assert!(checked.unwrap().success());
    }
}

#[test]
fn every_command_has_a_man_page_and_examples() {
    let place = Place::new(&[]);
    assert!(place.run(&["man"]).succeeds().out.contains(".TH hookpoint 1"));
    place.run(&["man", "--out", "man1"]).succeeds();
    let pages = place.list("man1");
    for command in COMMANDS {
        let page = format!("hookpoint-{command}.1");
        assert!(pages.contains(&page), "{pages:?}");
        assert!(place.read(&format!("man1/{page}")).contains("Examples"), "{page}");
        let help = place.run(&[command, "--help"]);
        assert!(help.succeeds().out.contains("Examples:"), "{command}");
    }
}

#[test]
fn a_profile_has_every_module_and_own_times_add_up() {
    let place = Place::new(&[]);
    let profile = place.json(&["profile", "--runs", "2", "--trace", "new/trace.json"]);
    let entries = profile["entries"].as_array().unwrap();
    for name in ["blocks.0.attn", "blocks.2.mlp", "unembed"] {
        assert!(entries.iter().any(|entry| entry["name"] == name), "{name}");
    }
    let own: f64 = entries.iter().map(|entry| entry["own"].as_f64().unwrap()).sum();
    assert!((own - profile["total"].as_f64().unwrap()).abs() < 1e-6);
    let trace: serde_json::Value = serde_json::from_str(&place.read("new/trace.json")).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["name"] == "blocks.1.mlp"));
    assert!(place.run(&["profile", "--runs", "1"]).succeeds().out.contains("blocks.0.attn"));
    place.run(&["profile", "--runs", "0"]).fails_with("1..=10000");
    place.write("file", "");
    place.run(&["profile", "--trace", "file/trace.json"]).fails_with("file");
}
