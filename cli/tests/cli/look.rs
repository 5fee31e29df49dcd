//! The numbers themselves have their tests beside the libraries, and in the example `gpt2`.

use crate::place::Place;

#[test]
fn without_arguments_the_embedded_model_names_the_indirect_object() {
    let place = Place::new(&[]);
    let all = place.json(&["look"]);
    assert_eq!(all["model"]["name"], "the embedded GPT-2");
    assert_eq!((&all["answer"]["text"], &all["wrong"]["text"]), (&" Mary".into(), &" John".into()));
    assert_eq!(all["next"][0]["text"], " Mary");
    let text = place.run(&["look"]);
    assert_eq!(text.succeeds().err, "");
    for title in ["Next token", "Logit lens", "Heads", "Activation patching"] {
        assert!(text.out.lines().any(|line| line == title), "{title}");
    }
}

#[test]
fn the_numbers_are_those_of_the_library() {
    use candle_core::Device;
    use hookpoint::Hooked;
    use hookpoint_interp::look::{Look, Question};
    use hookpoint_models::gpt2::Gpt2;

    let model = Hooked::new(Gpt2::embedded(&Device::Cpu).unwrap());
    let tokenizer = model.tokenizer().unwrap();
    let (clean, corrupted) = (tokenizer.encode("The dogs").unwrap(), tokenizer.encode("The dog").unwrap());
    let question = Question::about(&clean).corrupted(&corrupted).of(&model).unwrap();
    let look = Look::into(&model).name("the embedded GPT-2").context(64).top(3);
    let found = look.text(|id| tokenizer.token(id).unwrap()).ask(&question).unwrap();
    let printed =
        Place::new(&[]).json(&["look", "--prompt", "The dogs", "--corrupt", "The dog", "--top", "3"]);
    // Both as text that was read back: numbers of f32 have more than one way to be written.
    let expected: serde_json::Value = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
    assert_eq!(printed, expected);
}

#[test]
fn numbers_of_half_the_size_say_nearly_the_same() {
    let place = Place::new(&[]);
    let whole = place.json(&["look"])["attribution"]["difference"].as_f64().unwrap();
    for dtype in ["f16", "bf16"] {
        let half = place.json(&["look", "--dtype", dtype])["attribution"]["difference"].as_f64().unwrap();
        assert!((whole - half).abs() < 0.3 && whole != half, "{dtype}: {whole} and {half}");
    }
}

#[test]
fn mistakes_say_what_to_do() {
    let place = Place::new(&[("file.txt", "")]);
    let look = |list: &[&str]| place.run(&[&["look"], list].concat());
    look(&["--prompt", "When Jhon went"]).fails_with("`John`");
    look(&["--prompt", &["Monday"; 65].join(" ")]).fails_with("65 tokens");
    look(&["--corrupt", "When Mary"]).fails_with("14 tokens");
    look(&["--answer", "Mary gave"]).fails_with("one token");
    look(&["nowhere"]).fails_with("no file or folder nowhere");
    look(&["file.txt"]).fails_with("no GGUF file");
    look(&["--device", "abacus"]).fails_with("no device `abacus`");
    look(&["--quantized"]).fails_with("not quantized");
    look(&["--top", "0"]).fails_with("1..=50");
}
