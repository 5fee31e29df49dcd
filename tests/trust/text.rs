//! Texts that somebody may give: patterns, made by changing good ones. `HOOKPOINT_FUZZ` says how many are tried.

use hookpoint::pattern::escape_segment;
use hookpoint::{Index, Pattern};

/// The same numbers every time.
struct Lots(u64);

impl Lots {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most.max(1) as u64) as usize
    }
}

const GOOD: [&str; 16] = [
    "blocks.3.attn",
    "blocks.*.attn:pattern[:, -1]",
    "**.c_proj",
    "blocks.{0,5}.mlp:in.1#2",
    "a[*]",
    "blocks.0.attn.hook_pattern",
    ":hidden.0",
    "",
    "**:*",
    "a\\.b.{x,y{z}}",
    "blocks.3:resid_mid[1:5:2, *, -1]",
    "fc1.hook_point",
    "x[::-1]",
    "{a,b}.{c,d}:{e,f}",
    "größe.😀[0]",
    "a:out#0[-3:, :]",
];

const PIECES: [&str; 22] = [
    ".",
    ":",
    "#",
    "[",
    "]",
    "{",
    "}",
    ",",
    "*",
    "**",
    "\\",
    "-",
    "0",
    "99999999999999999999",
    "in",
    "out",
    " ",
    "ß",
    "😀",
    "::",
    "hook_",
    "\0",
];

fn changed(lots: &mut Lots) -> String {
    let mut text: Vec<char> = GOOD[lots.below(GOOD.len())].chars().collect();
    for _ in 0..=lots.below(4) {
        let at = lots.below(text.len() + 1);
        match lots.below(5) {
            0 => drop(text.drain(at..text.len().min(at + 1 + lots.below(3)))),
            1 => text.truncate(at),
            2 => {
                let end = text.len().min(at + 1 + lots.below(6));
                let part = text[at..end].to_vec();
                let to = lots.below(text.len() + 1);
                text.splice(to..to, part);
            }
            _ => drop(text.splice(at..at, PIECES[lots.below(PIECES.len())].chars())),
        }
    }
    text.into_iter().collect()
}

fn tries() -> usize {
    std::env::var("HOOKPOINT_FUZZ").ok().and_then(|tries| tries.parse().ok()).unwrap_or(100_000)
}

#[test]
fn no_text_makes_a_pattern_panic_and_what_is_printed_means_what_was_read() {
    let mut lots = Lots(0x5eed);
    let (mut parsed, mut refused) = (0usize, 0usize);
    let segments = ["blocks", "3", "attn"];
    for _ in 0..tries() {
        let text = changed(&mut lots);
        match text.parse::<Pattern>() {
            Ok(pattern) => {
                parsed += 1;
                let printed = pattern.to_string();
                let again: Pattern =
                    printed.parse().unwrap_or_else(|error| panic!("{text:?}: {printed:?}: {error}"));
                assert_eq!(again, pattern, "{text:?} {printed:?}");
                assert_eq!(again.to_string(), printed, "{text:?}");
                if let Some(path) = pattern.literal_path() {
                    assert!(pattern.matches_path(&path), "{text:?}");
                }
                pattern.matches_path(&segments);
                pattern.matches_value("pattern");
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty(), "{text:?}");
            }
        }
        let escaped: Pattern = escape_segment(&text).parse().unwrap();
        assert_eq!(escaped.literal_path(), Some(vec![text.clone()]));
        if let Ok(index) = Index::parse(&text) {
            assert_eq!(Index::parse(&index.to_string()).unwrap(), index, "{text:?}");
            let shape = [lots.below(4), lots.below(5), lots.below(3)];
            if index.selected_shape("x", &shape).is_ok() {
                for element in index.elements("x", &shape).unwrap_or_default() {
                    assert!(element.selected_shape("x", &shape).is_ok(), "{text:?}");
                }
            }
        }
    }
    println!("{parsed} patterns and {refused} errors");
    assert!(parsed > tries() / 10 && refused > tries() / 10, "{parsed} {refused}");
}
