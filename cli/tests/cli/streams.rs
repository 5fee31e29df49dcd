//! Standard input and output, and files of any size.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::place::{Place, ANNOTATED, PLAIN};

// `-` was taken for the name of a crate.
#[test]
fn a_dash_is_standard_input() {
    let place = Place::new(&[]);
    let outcome = place.annotate_input(&["-"], PLAIN);
    assert_eq!(outcome.succeeds().out, ANNOTATED);
    assert_eq!(outcome.err, "annotated 1 of 1 file: 1 type, 0 impl blocks\n");
    assert_eq!(place.annotate_input(&["-"], ANNOTATED).succeeds().out, ANNOTATED);

    let outcome = place.annotate_input(&["-", "--check"], PLAIN);
    assert_eq!(outcome.code, 1);
    assert!(outcome.out.starts_with("--- a/<stdin>\n+++ b/<stdin>\n"), "{}", outcome.out);
    place.annotate_input(&["-", "--out", "new/a.rs"], PLAIN).succeeds();
    assert_eq!(place.read("new/a.rs"), ANNOTATED);

    place.annotate_input(&["-", "--in-place"], PLAIN).fails_with("standard input");
    place.annotate_input(&["-", "--only", "src"], PLAIN).fails_with("standard input");
    place.annotate_input(&["-", "--out", "new"], PLAIN).fails_with("name a file");
    place.annotate_input(&["-"], "struct {}").fails_with("<stdin>:1:8: ");
    // A file of that name has a path.
    place.write("-", PLAIN);
    assert_eq!(place.annotate_input(&["./-"], "").succeeds().out, ANNOTATED);
}

/// Runs over 5 MB of source. Without optimization this takes 2 to 5 s, and more on a busy machine. Then half of it
/// tells whether the time grows with the source, or with its square.
fn takes_seconds(source: impl Fn(usize) -> String, parts: usize, types: usize) {
    let text = source(parts);
    assert!(text.len() > 4_000_000, "{} bytes", text.len());
    let took = time(&text, types);
    println!("{} bytes in {took:.1?}", text.len());
    if took > Duration::from_secs(15) {
        let half = time(&source(parts / 2), types / 2);
        assert!(took < half * 3, "{took:?}, and half of it {half:?}");
    }
}

fn time(source: &str, types: usize) -> Duration {
    let place = Place::new(&[("big.rs", source)]);
    let started = Instant::now();
    let outcome = place.annotate(&["big.rs", "--in-place"]);
    let took = started.elapsed();
    assert!(outcome.succeeds().err.contains(&format!(": {types} type")), "{}", outcome.err);
    took
}

fn chain(count: usize, newline: &str) -> String {
    let mut source = String::new();
    for i in 0..count {
        // Each type holds the next: the layer is at the far end.
        let held = if i + 1 == count { "Linear".to_string() } else { format!("Block{}", i + 1) };
        let body = "let hidden = (x * 2.0)?.relu()?.exp()?.log()?;";
        write!(source, "pub struct Block{i}({held});{newline}impl Block{i} {{{newline}fn run(&self, x: &Tensor) -> Result<Tensor> {{{newline}{body}{newline}Ok(hidden)}}{newline}}}{newline}").unwrap();
    }
    source
}

// It took more than 100 s: each type was found in another pass over all of them.
#[test]
fn a_long_chain_of_types_takes_seconds() {
    takes_seconds(|count| chain(count, "\n"), 28_000, 28_000);
}

// 22 s: the start of the line was looked for from every annotation.
#[test]
fn one_long_line_takes_seconds() {
    takes_seconds(|count| chain(count, " "), 28_000, 28_000);
}

// 36 s: all types of the name were looked at for every mention of it.
#[test]
fn types_of_one_name_in_many_modules_take_seconds() {
    let modules = |count| {
        let mut source = String::new();
        for i in 0..count {
            write!(source, "mod part_{i} {{\n    use super::*;\n    /// One of many blocks, which has the name of all others.\n    pub struct Block {{\n        inner: Layer,\n        scale: Tensor,\n    }}\n    pub struct Layer(Linear);\n    impl Block {{\n        fn size(&self) -> usize {{ 0 }}\n    }}\n}}\n").unwrap();
        }
        source
    };
    takes_seconds(modules, 20_000, 40_000);
}

#[test]
fn a_table_of_numbers_takes_seconds() {
    let table = |count| {
        let mut source = format!(
            "{}pub const TABLE: [f32; {count}] = [\n",
            "struct Head(Linear);\n".repeat(count / 300_000)
        );
        for i in 0..count {
            write!(source, "{}.5,{}", i % 1_000_000, if i % 10 == 9 { '\n' } else { ' ' }).unwrap();
        }
        source.push_str("];\n");
        source
    };
    takes_seconds(table, 600_000, 2);
}
