//! The example as a whole: arguments in, text out.

#![allow(clippy::unwrap_used, clippy::panic)]

use clap::Parser;
use hookpoint_cli::args::{CORRUPTED, PROMPT};
use hookpoint_cli::render;
use hookpoint_examples::{Colours, Screen};
use hookpoint_interp::look::{Findings, Token};
use serde_json::Value;

use crate::args::Args;
use crate::{look, page, run};

const PLAIN: Screen = Screen { colours: Colours::None, width: 100, light: false };
const SCRIPT: &str = "<script type=\"application/json\" id=\"findings\">";

fn args(list: &[&str]) -> Args {
    Args::try_parse_from(["gpt2"].iter().chain(list)).unwrap()
}

fn shown(list: &[&str], screen: &Screen) -> String {
    let mut out = Vec::new();
    run(&args(list), screen, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(list: &[&str]) -> Value {
    let list: Vec<&str> = list.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&shown(&list, &PLAIN)).unwrap()
}

fn found() -> Findings {
    look(&args(&[])).unwrap()
}

/// The error, as `main` shows it, and nothing on standard output.
fn mistake(list: &[&str]) -> String {
    let mut out = Vec::new();
    let error = run(&args(list), &PLAIN, &mut out).unwrap_err();
    assert!(out.is_empty());
    format!("{error:#}")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn text_of(tokens: &Value) -> String {
    tokens.as_array().unwrap().iter().map(|token| token["text"].as_str().unwrap()).collect()
}

#[test]
fn the_numbers_of_the_json_add_up() {
    let all = json(&[]);
    assert_eq!(text_of(&all["prompt"]).trim(), PROMPT);
    assert_eq!(
        (all["answer"]["text"].as_str(), all["wrong"]["text"].as_str()),
        (Some(" Mary"), Some(" John"))
    );

    let parts = all["attribution"]["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| number(&part["adds"])).sum();
    let difference = number(&all["attribution"]["difference"]);
    assert!((sum - difference).abs() < 1e-3, "{sum} and {difference}");
    assert!((difference - number(&all["patching"]["clean"])).abs() < 1e-3);

    let (layers, heads) = (all["model"]["layers"].as_u64().unwrap(), all["model"]["heads"].as_u64().unwrap());
    let (count, all_heads) = (all["prompt"].as_array().unwrap().len(), all["heads"].as_array().unwrap());
    assert_eq!(all_heads.len() as u64, layers * heads);
    for head in all_heads {
        let part = parts.iter().find(|part| part["label"] == head["label"]).unwrap();
        assert_eq!(part["adds"], head["adds"]);
        let rows = head["pattern"].as_array().unwrap();
        assert_eq!(rows.len(), count);
        for (query, row) in rows.iter().enumerate() {
            let row = numbers(row);
            assert!((row.iter().sum::<f64>() - 1.).abs() < 1e-4);
            assert!(row[query + 1..].iter().all(|share| *share == 0.), "a head looks ahead");
        }
    }

    // The last stage of the lens is what the model says.
    let stages = all["lens"]["top"].as_array().unwrap();
    assert_eq!(stages.len() as u64, layers + 1);
    assert_eq!(stages.last().unwrap()[count - 1], all["next"]);
    assert_eq!(all["lens"]["answer_ranks"].as_array().unwrap().last(), Some(&Value::from(0)));
}

#[test]
fn patching_brings_back_what_it_has_to() {
    let all = json(&[]);
    let patching = &all["patching"];
    assert_eq!(text_of(&patching["prompt"]).trim(), CORRUPTED);
    let (clean, corrupted) = (number(&patching["clean"]), number(&patching["corrupted"]));
    assert!(clean > 5. && corrupted < -5., "{clean} and {corrupted}");
    let ids = |tokens: &Value| -> Vec<u64> {
        tokens.as_array().unwrap().iter().map(|token| token["id"].as_u64().unwrap()).collect()
    };
    let (one, other) = (ids(&all["prompt"]), ids(&patching["prompt"]));
    let differs: Vec<usize> = (0..one.len()).filter(|at| one[*at] != other[*at]).collect();
    assert_eq!(differs, [9]);

    let maps = patching["maps"].as_array().unwrap();
    let names: Vec<&str> = maps.iter().map(|map| map["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["resid", "attn_out", "mlp_out", "head_out"]);
    for map in maps {
        let (measured, recovered) =
            (map["measured"].as_array().unwrap(), map["recovered"].as_array().unwrap());
        assert_eq!(measured.len(), map["points"].as_array().unwrap().len());
        for (measured, recovered) in measured.iter().zip(recovered) {
            for (measured, share) in numbers(measured).into_iter().zip(numbers(recovered)) {
                assert!((corrupted + share * (clean - corrupted) - measured).abs() < 1e-6);
            }
        }
    }
    let resid: Vec<Vec<f64>> = maps[0]["recovered"].as_array().unwrap().iter().map(numbers).collect();
    // All of the difference comes in at one token and goes out at the last. Elsewhere nothing has changed yet, or
    // nothing is read any more.
    let last = one.len() - 1;
    let (first, end) = (&resid[0], &resid[resid.len() - 1]);
    for (at, (first_row, last_row)) in first.iter().zip(end).enumerate() {
        assert!((first_row - f64::from(at == 9)).abs() < 1e-4, "{first_row} at {at}");
        assert!((last_row - f64::from(at == last)).abs() < 1e-4, "{last_row} at {at}");
    }
}

#[test]
fn the_points_are_those_of_the_model_with_shapes() {
    let found = found();
    let pattern = found.points.iter().find(|point| point.name == "blocks.2.attn:pattern").unwrap();
    assert_eq!(pattern.shape.as_deref(), Some([1, 4, 14, 14].as_slice()));
    assert_eq!((pattern.kind.as_str(), pattern.value.as_str()), ("value", "pattern"));
    assert_eq!(pattern.path, ["blocks", "2", "attn"]);
    let layer = found.points.iter().find(|point| point.name == "blocks.0.ln1").unwrap();
    assert_eq!((layer.kind.as_str(), layer.type_name.as_str()), ("module", "LayerNorm"));
}

#[test]
fn a_previous_token_head_feeds_an_induction_head() {
    let found = found();
    let kind = |label: &str| {
        let head = found.heads.iter().find(|head| head.label == label).unwrap();
        head.scores.and_then(|scores| scores.kind()).map(|(kind, _)| kind)
    };
    assert_eq!((kind("L0H0"), kind("L1H0"), kind("L2H0")), (Some("previous token"), Some("induction"), None));
}

#[test]
fn tables_are_plain_without_a_terminal_and_the_same_with_colours() {
    let plain = shown(&[], &PLAIN);
    assert!(!plain.contains('\u{1b}'));
    for title in ["Next token", "Logit lens", "Heads", "Activation patching"] {
        assert!(plain.lines().any(|line| line == title), "{title}");
    }
    assert!(plain.lines().all(|line| console::measure_text_width(line) <= 100), "{plain}");
    for colours in [Colours::Palette, Colours::True] {
        for light in [false, true] {
            let coloured = shown(&[], &Screen { colours, light, ..PLAIN });
            assert!(coloured.contains("\u{1b}["));
            let stripped = console::strip_ansi_codes(&coloured);
            let mary = stripped.lines().find(|line| line.contains("\" Mary\"")).unwrap();
            assert!(plain.contains(mary), "{mary}");
        }
    }
}

#[test]
fn narrow_windows_get_narrow_tables() {
    for width in [40, 60, 80] {
        let text = shown(&[], &Screen { width, ..PLAIN });
        let widest = text.lines().map(console::measure_text_width).max().unwrap();
        // A bar, and a pattern, are as wide as they are.
        assert!(widest <= width.max(53), "{widest} columns in a window of {width}:\n{text}");
    }
}

#[test]
fn without_a_corrupted_prompt_there_is_no_patching_and_it_says_so() {
    let list = ["--prompt", "Monday Tuesday Wednesday"];
    let all = json(&list);
    assert_eq!(all["patching"], Value::Null);
    assert_eq!(all["answer"]["text"], " Thursday");
    assert_eq!(all["wrong"]["text"], all["next"][1]["text"]);
    assert!(shown(&list, &PLAIN).contains("it needs `--corrupt`"));
}

#[test]
fn answers_can_be_chosen() {
    let all = json(&["--answer", "John", "--wrong", "Mary", "--top", "3"]);
    assert_eq!(
        (all["answer"]["text"].as_str(), all["wrong"]["text"].as_str()),
        (Some(" John"), Some(" Mary"))
    );
    assert!(number(&all["attribution"]["difference"]) < -5.);
    assert_eq!(all["next"].as_array().unwrap().len(), 3);
    // The most likely token cannot be both.
    let all = json(&["--wrong", "Mary"]);
    assert_ne!(all["answer"]["text"], " Mary");
}

#[test]
fn one_token_is_a_prompt() {
    let all = json(&["--prompt", "Monday"]);
    assert_eq!(all["prompt"].as_array().unwrap().len(), 1);
    shown(&["--prompt", "Monday"], &PLAIN);
}

#[test]
fn every_mistake_is_named() {
    let long = ["Monday"; 65].join(" ");
    let here = env!("CARGO_MANIFEST_DIR");
    let file = format!("{here}/Cargo.toml");
    for (list, words) in [
        (vec!["--prompt", "When Zaphod went"], vec!["`Zaphod`"]),
        (vec!["--prompt", ""], vec!["empty"]),
        (vec!["--prompt", "  "], vec!["empty"]),
        (vec!["--prompt", "Monday "], vec!["spaces", "none behind the last"]),
        (vec!["--prompt", &long], vec!["65 tokens", "64"]),
        (vec!["--corrupt", "When Zaphod went"], vec!["--corrupt", "`Zaphod`"]),
        (vec!["--corrupt", PROMPT], vec!["the prompt itself"]),
        (vec!["--corrupt", "When Mary"], vec!["14 tokens", "2 tokens", " When| Mary\n"]),
        (vec!["--answer", "Mary gave"], vec!["--answer", "one token", "2", "` Mary`, ` gave`"]),
        (vec!["--wrong", "Zaphod"], vec!["--wrong", "`Zaphod`"]),
        (vec!["--answer", "Mary", "--wrong", "Mary"], vec!["the same token"]),
        (vec!["--model", &file], vec!["is a file"]),
        (vec!["--model", here], vec!["config.json"]),
        (vec!["--device", "abacus"], vec!["there is no device `abacus`"]),
        (
            vec!["--out", "/nowhere/at/all/page.html"],
            vec!["cannot write the page", "/nowhere/at/all/page.html"],
        ),
    ] {
        let error = mistake(&list);
        assert!(words.iter().all(|word| error.contains(word)), "{list:?}: {error}");
    }
}

#[cfg(not(feature = "hub"))]
/// A file of the tests of the workspace.
fn fixture(name: &str) -> String {
    format!("{}/../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn folders_and_gguf_files_of_other_models() {
    for (name, layers) in [
        ("gpt2/base", 2),
        ("llama/base", 2),
        ("llama/qwen2", 2),
        ("llama/gguf/llama.f32.gguf", 2),
        ("llama/gguf/llama.q8_0.gguf", 2),
    ] {
        let path = fixture(name);
        let all = json(&["--model", &path, "--prompt", "the cat", "--corrupt", "the dog"]);
        assert_eq!(all["model"]["name"], path.as_str());
        assert_eq!(all["model"]["layers"], layers, "{name}");
        let parts = all["attribution"]["parts"].as_array().unwrap();
        let sum: f64 = parts.iter().map(|part| number(&part["adds"])).sum();
        assert!((sum - number(&all["attribution"]["difference"])).abs() < 1e-3, "{name}");
        assert_eq!(all["patching"]["maps"].as_array().unwrap().len(), 4);
    }
}

/// The one that `scripts/real-models` fetches.
#[test]
fn a_real_model_from_a_gguf_file() {
    let path =
        format!("{}/../real-models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", env!("CARGO_MANIFEST_DIR"));
    if !std::path::Path::new(&path).exists() {
        let said = format!("SKIPPED: {path} is not there; `scripts/real-models` fetches it\n");
        std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes()).unwrap();
        return;
    }
    let all = json(&["--model", &path, "--prompt", "The capital of France is"]);
    assert_eq!(all["answer"]["text"], " Paris");
    assert_eq!(all["model"]["layers"], 30);
}

#[test]
fn a_model_that_is_not_there() {
    let error = mistake(&["--model", "not/there"]);
    assert!(
        error.contains("there is no file or folder not/there") && error.contains("--features hub"),
        "{error}"
    );
}

#[test]
fn counts_that_make_no_sense_are_refused() {
    for count in ["0", "51", "many"] {
        assert!(Args::try_parse_from(["gpt2", "--top", count]).is_err());
    }
}

/// What the script of a page is given.
fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once(SCRIPT).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_needs_nothing_else() {
    let page = page::text(&found()).unwrap();
    let mut outside = page.clone();
    // The only thing that looks like an address is the name of an HTML attribute.
    outside = outside.replace("http-equiv", "");
    for word in ["http", "src=", "@import", "url(", "{{", "innerHTML", "insertAdjacentHTML", "document.write"]
    {
        assert!(!outside.contains(word), "{word}");
    }
    assert!(page.contains("default-src 'none'"));
    let data = data_of(&page);
    assert_eq!(data["prompt"].as_array().unwrap().len(), 14);
    assert_eq!(data["heads"][0]["pattern"][0][0], Value::from(1.));
}

#[test]
fn hostile_tokens_stay_text() {
    let hostile = [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<!--<script>",
        "\"'`\\",
        "a\nb\r\tc\0",
        "\u{202e}txet\u{2066}\u{200f}",
        "\u{2028}\u{2029}",
        "{{findings}}{{style}}",
        "&lt;&amp;]]>",
    ];
    let mut found = found();
    let clean = page::text(&found).unwrap();
    let token = |at: usize| Token { id: at as u32, text: hostile[at % hostile.len()].to_string() };
    found.model.name = hostile.concat();
    found.prompt = (0..found.prompt.len()).map(token).collect();
    (found.answer, found.wrong) = (token(0), token(1));
    for guess in found.lens.top.iter_mut().flatten().flatten().chain(&mut found.next) {
        guess.token = token(0);
    }
    let patching = found.patching.as_mut().unwrap();
    patching.prompt = (0..patching.prompt.len()).map(|at| token(at + 1)).collect();
    found.points.iter_mut().for_each(|point| point.name = hostile.concat());

    let page = page::text(&found).unwrap();
    // Outside of the data the page is what it always is.
    let frame = |page: &str| {
        let (before, rest) = page.split_once(SCRIPT).unwrap();
        (before.to_string(), rest.split_once("</script>").unwrap().1.to_string())
    };
    assert_eq!(frame(&page), frame(&clean));
    let (_, rest) = page.split_once(SCRIPT).unwrap();
    let inside = rest.split_once("</script>").unwrap().0;
    for c in ['<', '>', '&', '\u{2028}', '\u{2029}', '\n', '\0'] {
        assert!(!inside.contains(c), "{c:?}");
    }
    // And the data are what they were.
    let data = data_of(&page);
    for (at, token) in data["prompt"].as_array().unwrap().iter().enumerate() {
        assert_eq!(token["text"], hostile[at % hostile.len()]);
    }
    assert_eq!(data["model"]["name"], hostile.concat());

    // In a terminal nothing acts either.
    let text = render::look::text(&found, args(&[]).top, &PLAIN);
    for c in ['\0', '\r', '\t', '\u{202e}', '\u{2066}', '\u{2028}', '\u{1b}'] {
        assert!(!text.contains(c), "{c:?}");
    }
}
