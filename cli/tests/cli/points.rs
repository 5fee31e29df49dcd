use crate::place::Place;

#[test]
fn points_are_a_tree_with_shapes() {
    let place = Place::new(&[]);
    let text = place.run(&["points", "--prompt", "Monday Tuesday"]);
    assert!(text.succeeds().out.contains("[1, 2, 96]"), "{}", text.out);
    let all = place.json(&["points", "--prompt", "Monday Tuesday"]);
    assert_eq!((&all["tokens"], &all["matched"]), (&2.into(), &serde_json::Value::Null));
    let points = all["points"].as_array().unwrap();
    let pattern = points.iter().find(|point| point["name"] == "blocks.2.attn:pattern").unwrap();
    assert_eq!(pattern["shape"], serde_json::json!([1, 4, 2, 2]));
}

#[test]
fn a_pattern_shows_what_it_selects_with_its_index() {
    let place = Place::new(&[]);
    let list = ["points", "--match", "blocks.{0,2}.attn:pattern[:, 1]", "--prompt", "Monday Tuesday"];
    let found = place.json(&list);
    let names: Vec<&str> = found["matched"]["values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["blocks.0.attn:pattern[:, 1]", "blocks.2.attn:pattern[:, 1]"]);
    assert_eq!(found["matched"]["values"][0]["shape"], serde_json::json!([1, 2, 2]));
    let text = place.run(&list);
    assert!(text.succeeds().out.contains("selects 2 points"), "{}", text.out);
    // Parameters that no operation gives a result of are selected and have no value.
    place.run(&["points", "--match", "**"]).succeeds();
}

#[test]
fn a_pattern_that_selects_nothing_is_a_no_with_the_nearest_names() {
    let place = Place::new(&[]);
    let outcome = place.run(&["points", "--match", "blocks.*.atn"]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.out.contains("selects nothing") && outcome.out.contains("attn"), "{}", outcome.out);
    let outcome = place.run(&["points", "--match", "blocks.*.atn", "--json"]);
    assert_eq!(outcome.code, 1);
    let json: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert!(!json["matched"]["nearest"].as_array().unwrap().is_empty());
    place.run(&["points", "--match", "blocks.["]).fails_with("blocks.[");
}

// `--points PATTERN MODEL` took the model for a second pattern.
#[test]
fn the_model_may_stand_anywhere() {
    let place = Place::new(&[]);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/llama/gguf/llama.q8_0.gguf");
    let prompts = ["--prompt", "the cat", "--corrupt", "the dog"];
    for (command, format) in [
        ("look", vec![]),
        ("patch", vec!["--points", "blocks.*"]),
        ("attribute", vec!["--points", "blocks.*"]),
    ] {
        let list = [&[command], &prompts[..], &format, &[model, "--quantized"]].concat();
        let found = place.json(&list);
        let name = found["model"]["name"].as_str().or(found["model"].as_str());
        assert_eq!(name, Some(model), "{command}");
    }
}
