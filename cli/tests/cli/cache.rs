use candle_core::Device;
use hookpoint::{ActivationCache, Hooked};
use hookpoint_models::gpt2::Gpt2;

use crate::place::Place;

fn loaded(place: &Place, name: &str) -> ActivationCache {
    ActivationCache::load(place.path(name), &Device::Cpu).unwrap()
}

#[test]
fn one_prompt_gives_one_file() {
    let place = Place::new(&[]);
    let list = [
        "cache",
        "--points",
        "blocks.*.hook_resid_post",
        "--points",
        "unembed[:, -1]",
        "--out",
        "new/a.safetensors",
    ];
    let saved = place.json(&list);
    let cache = loaded(&place, "new/a.safetensors");
    assert_eq!((&saved["tensors"], cache.len()), (&4.into(), 4));
    assert_eq!(cache["unembed[:, -1]"].dims().len(), 2);
    assert_eq!(place.list("new"), ["a.safetensors"]);
    // Over a file that is there, and through a link to it.
    #[cfg(unix)]
    std::os::unix::fs::symlink("a.safetensors", place.path("new/link.safetensors")).unwrap();
    let list =
        ["cache", "--points", "blocks.0", "--out", "new/link.safetensors", "--keep", "f16", "--tokens", "2"];
    assert!(place.run(&list).succeeds().out.contains("× 2"));
    assert_eq!(loaded(&place, "new/a.safetensors").calls("blocks.0").len(), 2);
    assert_eq!(place.list("new"), ["a.safetensors", "link.safetensors"]);
}

#[test]
fn many_prompts_give_files_of_bounded_size_and_an_index() {
    let texts = ["The dogs", "Monday Tuesday Wednesday", "The capital of France is"];
    let lines: String = (0..200).map(|line| format!("{}\n", texts[line % 3])).collect();
    let place = Place::new(&[("lines.txt", &lines)]);
    let list = [
        "cache",
        "--points",
        "blocks.*.attn.hook_pattern",
        "--points",
        "blocks.*.hook_resid_post",
        "--points",
        "blocks.*.mlp.hook_post",
    ];
    let list = [&list[..], &["--prompts", "lines.txt", "--out", "out", "--file-size", "1"]].concat();
    let saved = place.json(&list);
    assert_eq!(saved["prompts"], 200);
    let files = place.list("out");
    assert!(files.len() > 3, "{files:?}");
    assert_eq!(files.last().map(String::as_str), Some("index.jsonl"));
    let index = place.read("out/index.jsonl");
    let last: serde_json::Value = serde_json::from_str(index.lines().last().unwrap()).unwrap();
    assert_eq!((&last["line"], &last["prompt"]), (&200.into(), &"Monday Tuesday Wednesday".into()));

    // Each prompt has in its file what it gives alone.
    let model = Hooked::new(Gpt2::embedded(&Device::Cpu).unwrap());
    for (at, line) in index.lines().enumerate().step_by(37) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["line"], at + 1);
        let cache = loaded(&place, &format!("out/{}", line["file"].as_str().unwrap()));
        let found = cache.select(format!("{}.blocks.2.attn:pattern", at + 1).as_str()).unwrap();
        let ids = model.tokenizer().unwrap().encode(texts[at % 3]).unwrap();
        let ids = candle_core::Tensor::new(ids, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let (_, own) = model.run_with_cache("blocks.2.attn:pattern", |m| m.forward(&ids)).unwrap();
        let numbers = |tensor: &candle_core::Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let name = found.keys().next().unwrap().to_string();
        assert_eq!(numbers(&found[name.as_str()]), numbers(&own["blocks.2.attn:pattern"]));
    }
    place.run(&list).fails_with("is there already");
}

#[test]
fn prompts_come_from_standard_input_and_from_jsonl() {
    let place =
        Place::new(&[("p.jsonl", "{\"q\": \"The dogs\", \"n\": 1}\n{\"q\": \"The dog\", \"n\": 2}\n")]);
    let list = ["cache", "--points", "blocks.0", "--prompts"];
    place.run_input(&[&list[..], &["-", "--out", "a"]].concat(), "The dogs\nThe dog\n").succeeds();
    place.run(&[&list[..], &["p.jsonl", "--field", "q", "--out", "b"]].concat()).succeeds();
    assert_eq!(place.list("a"), ["00000.safetensors", "index.jsonl"]);
    assert_eq!(place.read("a/index.jsonl"), place.read("b/index.jsonl"));
    let bits = |name: &str| std::fs::read(place.path(name)).unwrap();
    assert_eq!(bits("a/00000.safetensors"), bits("b/00000.safetensors"));
    place.run(&[&list[..], &["p.jsonl", "--out", "c"]].concat()).fails_with("--field");
}

#[test]
fn mistakes_leave_nothing_behind() {
    let place = Place::new(&[("p.txt", "The dogs\nThe unicorn\n"), ("none.txt", "\n\n"), ("file", "")]);
    let cache = |list: &[&str]| place.run(&[&["cache", "--points", "blocks.0"], list].concat());
    let outcome = cache(&["--prompts", "p.txt", "--out", "a"]);
    outcome.fails_with("p.txt:2");
    outcome.fails_with("unicorn");
    cache(&["--prompts", "none.txt", "--out", "a"]).fails_with("no prompts");
    cache(&["--prompts", "nowhere.txt", "--out", "a"]).fails_with("nowhere.txt");
    cache(&["--out", "file/a.safetensors"]).fails_with("file");
    cache(&["--out", "."]).fails_with("is a folder");
    place.run(&["cache", "--points", "blocks.*.atn", "--out", "a"]).fails_with("did you mean");
    assert_eq!(place.list("."), ["file", "none.txt", "p.txt"]);
}
