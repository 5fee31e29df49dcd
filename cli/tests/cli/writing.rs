//! `steer` and `generate`.

use candle_core::Device;
use hookpoint_models::gpt2::Gpt2;
use hookpoint_models::language::Generation;

use crate::place::Place;

#[test]
fn a_text_is_what_the_library_writes() {
    let place = Place::new(&[]);
    let model = Gpt2::embedded(&Device::Cpu).unwrap();
    let prompt = "When Mary and John went to the store, John gave a drink to";
    let text = place.json(&["generate", "--tokens", "4"]);
    let written = model.complete(prompt, &Generation::new(4)).unwrap();
    assert_eq!(text["added"].as_str(), Some(written.trim_end_matches("<|endoftext|>")));
    assert_eq!(text["prompt_tokens"], 14);
    let plain = place.run(&["generate", "--tokens", "4"]);
    assert_eq!(plain.succeeds().out.trim_end(), format!("{prompt}{}", text["added"].as_str().unwrap()));
    assert_eq!(place.json(&["generate", "--tokens", "4", "--past", "anew"])["tokens"], text["tokens"]);
}

#[test]
fn equal_seeds_give_equal_texts() {
    let place = Place::new(&[]);
    let with = |seed: &str| {
        place.json(&["generate", "--prompt", "The", "--temperature", "1.5", "--tokens", "8", "--seed", seed])
            ["added"]
            .clone()
    };
    let texts = ["1", "1", "2", "3", "4"].map(with);
    assert_eq!(texts[0], texts[1]);
    assert!(texts[1..].iter().any(|text| *text != texts[0]), "{texts:?}");
}

#[test]
fn prompts_are_continued_one_after_another() {
    let place = Place::new(&[("p.txt", "The dogs\n\nMonday Tuesday\n")]);
    let outcome = place.run(&["generate", "--prompts", "p.txt", "--tokens", "1", "--json"]);
    let lines: Vec<serde_json::Value> =
        outcome.succeeds().out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["line"], &lines[1]["line"]), (&1.into(), &3.into()));
    assert_eq!(lines[1]["added"], " Wednesday");
    // What was written before a mistake is there.
    let outcome =
        place.run_input(&["generate", "--prompts", "-", "--tokens", "1"], "Monday Tuesday\nThe unicorn\n");
    assert_eq!((outcome.code, outcome.out.as_str()), (2, "Monday Tuesday Wednesday\n"));
    assert!(outcome.err.contains("<stdin>:2") && outcome.err.contains("unicorn"), "{}", outcome.err);
}

#[test]
fn a_direction_is_kept_and_added() {
    let place = Place::new(&[]);
    let list = ["--strength", "0", "--strength", "2"];
    let made = place.json(&[&["steer", "--out", "many.safetensors"], &list[..]].concat());
    let read = place.json(&[&["steer", "--vector", "many.safetensors"], &list[..]].concat());
    assert_eq!((&made["texts"], &made["point"]), (&read["texts"], &"blocks.1:resid_pre".into()));
    assert_ne!(made["texts"][0]["next"][0]["token"], made["texts"][1]["next"][0]["token"]);
    // Nothing added is nothing changed, and `generate` adds the same.
    let prompt = ["generate", "--prompt", "The farmer", "--tokens", "12"];
    assert_eq!(place.json(&prompt)["added"], made["texts"][0]["added"]);
    let steered = ["--steer", "many.safetensors", "--strength", "2", "--at", "prompt"];
    assert_eq!(place.json(&[&prompt[..], &steered].concat())["added"], made["texts"][1]["added"]);
    for at in ["new", "1..3", "every"] {
        let steered = ["--steer", "many.safetensors", "--strength", "-9", "--at", at];
        assert_ne!(place.json(&[&prompt[..], &steered].concat())["added"], made["texts"][0]["added"], "{at}");
    }
    let text = place.run(&["steer", "--strength", "1"]);
    assert!(text.succeeds().out.contains("blocks.1:resid_pre"), "{}", text.out);
}

#[test]
fn sets_of_prompts_may_be_files() {
    let place =
        Place::new(&[("a.txt", "The dogs\nThe girls\n"), ("b.txt", "The dog\nThe girl\n"), ("none", "\n")]);
    let strength = ["--strength", "1"];
    let files = ["steer", "--towards-file", "a.txt", "--away-file", "b.txt"];
    let texts = [
        "steer",
        "--towards",
        "The dogs",
        "--towards",
        "The girls",
        "--away",
        "The dog",
        "--away",
        "The girl",
    ];
    assert_eq!(
        place.json(&[&files[..], &strength].concat())["norm"],
        place.json(&[&texts[..], &strength].concat())["norm"]
    );
    place.run(&["steer", "--towards-file", "none", "--away-file", "b.txt"]).fails_with("two ends");
}

#[test]
fn mistakes_say_what_to_do() {
    let place = Place::new(&[("text.txt", "no tensors")]);
    place.run(&["generate", "--temperature", "0"]).fails_with("above 0");
    place.run(&["generate", "--tokens", "100"]).fails_with("shorten it");
    place.run(&["generate", "--steer", "text.txt"]).fails_with("text.txt");
    place.run(&["generate", "--strength", "1"]).fails_with("--steer");
    place.run(&["generate", "--at", "sometimes"]).fails_with("1..4");
    place.run(&["steer", "--towards", "The dog"]).fails_with("--away");
    place.run(&["steer", "--layer", "3"]).fails_with("this model has 3");
    place.run(&["steer", "--towards", "The unicorn", "--away", "The dog"]).fails_with("unicorn");
    place.run(&["cache", "--points", "blocks.*.hook_resid_pre", "--out", "many.safetensors"]).succeeds();
    place.run(&["generate", "--steer", "many.safetensors"]).fails_with("a steering vector is one");
}
