//! `sae train`, `eval`, `features`.

use candle_core::{DType, Device};
use hookpoint_sae::Sae;

use crate::place::Place;

const TRAIN: &[&str] = &[
    "sae",
    "train",
    "--point",
    "blocks.1.hook_resid_post",
    "--features",
    "64",
    "--steps",
    "40",
    "--batch",
    "256",
];

#[test]
fn an_autoencoder_is_trained_judged_and_looked_into() {
    let place = Place::new(&[]);
    let trained = place.json(&[TRAIN, &["--out", "new/sae"]].concat());
    assert_eq!((&trained["steps"], &trained["width"]), (&40.into(), &96.into()));
    assert_eq!(place.list("new"), ["sae/", "sae/cfg.json", "sae/sae_weights.safetensors"]);
    let sae = Sae::from_dir(place.path("new/sae"), DType::F32, &Device::Cpu).unwrap();
    assert_eq!(sae.config().point(), Some("blocks.1.hook_resid_post"));

    let judged = place.json(&["sae", "eval", "--sae", "new/sae", "--texts", "8"]);
    assert_eq!((&judged["texts"], &judged["tokens"]), (&8.into(), &(8 * 48).into()));
    let (clean, spliced) =
        (judged["loss"]["clean"].as_f64().unwrap(), judged["loss"]["spliced"].as_f64().unwrap());
    assert!(clean < spliced && spliced < judged["loss"]["zeroed"].as_f64().unwrap(), "{judged}");
    assert!(judged["l0"].as_f64().unwrap() <= 8.);

    let found = place.json(&["sae", "features", "--sae", "new/sae", "--texts", "16", "--top", "3"]);
    let features = found["features"].as_array().unwrap();
    assert_eq!(features.len(), 3);
    for feature in features {
        let places = feature["places"].as_array().unwrap();
        let strengths: Vec<f64> = places.iter().map(|place| place["activation"].as_f64().unwrap()).collect();
        assert!(
            !strengths.is_empty() && strengths.windows(2).all(|pair| pair[0] >= pair[1]),
            "{strengths:?}"
        );
        assert_eq!(feature["promotes"].as_array().unwrap().len(), 8);
    }
    let number = features[1]["number"].to_string();
    let one = place.json(&["sae", "features", "--sae", "new/sae", "--texts", "16", "--feature", &number]);
    assert_eq!(one["features"][0], features[1]);
    let text = place.run(&["sae", "features", "--sae", "new/sae", "--texts", "4"]);
    assert!(text.succeeds().out.contains("promotes"), "{}", text.out);
    place.run(&["sae", "eval", "--sae", "new/sae", "--texts", "2"]).succeeds();
    place.run(&["sae", "features", "--sae", "new/sae", "--feature", "64"]).fails_with("there are 64");
}

#[test]
fn texts_of_a_file_are_read_again_and_again_and_equal_seeds_give_equal_weights() {
    let place = Place::new(&[("texts.txt", "Monday Tuesday Wednesday Thursday\nThe dogs and the girls\n")]);
    let train = |out: &str| {
        place.run(&[TRAIN, &["--prompts", "texts.txt", "--seed", "3", "--out", out]].concat()).succeeds();
        std::fs::read(place.path(&format!("{out}/sae_weights.safetensors"))).unwrap()
    };
    assert_eq!(train("a"), train("b"));
}

#[test]
fn mistakes_leave_no_folder() {
    let place = Place::new(&[("empty.txt", "\n"), ("there/file", "")]);
    let train = |list: &[&str]| place.run(&[TRAIN, list].concat());
    train(&["--prompts", "empty.txt", "--out", "a"]).fails_with("no texts");
    train(&["--store", "there", "--out", "a"]).fails_with("there");
    train(&["--out", "there"]).fails_with("is there already");
    place.run(&["sae", "train", "--point", "blocks.*", "--out", "a"]).fails_with("name one");
    place
        .run(&["sae", "train", "--point", "blocks.0.attn.hook_z", "--out", "a"])
        .fails_with("[batch, pos, features]");
    place.run(&["sae", "eval", "--sae", "there"]).fails_with("cfg.json");
    assert_eq!(place.list("."), ["empty.txt", "there/", "there/file"]);
}
