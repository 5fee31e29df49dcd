//! Tokens in a terminal: they may hold anything, and have to fit.

use console::{measure_text_width, pad_str, truncate_str, Alignment};

/// The text with a sign in the place of every character that would act instead of being shown: line breaks,
/// escape codes, marks that turn the direction of writing.
pub fn visible(text: &str) -> String {
    text.chars().map(shown).collect()
}

fn shown(c: char) -> String {
    match c {
        '\n' => "⏎".to_string(),
        '\t' => "⇥".to_string(),
        '\'' | '"' => c.to_string(),
        // Everything that Rust would escape in a string: controls, and marks without a width of their own.
        c => c.escape_debug().to_string().replace(r"\\", r"\"),
    }
}

/// A token in a table, without the space that most begin with.
pub fn bare(token: &str) -> String {
    match token.trim_matches(' ') {
        "" => "␣".repeat(token.len().max(1)),
        text => visible(text),
    }
}

/// A token with its spaces, for lists.
pub fn quoted(token: &str) -> String {
    format!("\"{}\"", visible(token))
}

/// How many columns a text takes.
pub fn width(text: &str) -> usize {
    measure_text_width(text)
}

/// Exactly so wide: cut, or filled up.
pub fn padded(text: &str, width: usize) -> String {
    pad_str(&truncate_str(text, width, "…"), width, Alignment::Left, None).to_string()
}

/// The same for numbers in cells, with a little room behind them.
pub fn cell(text: &str, width: usize) -> String {
    right(text, width.saturating_sub(1)) + " "
}

/// The spaces before a token, and the rest: a ground is for the rest.
pub fn split_spaces(token: &str) -> (&str, String) {
    let rest = token.trim_start_matches(' ');
    (&token[..token.len() - rest.len()], visible(rest))
}

/// The same as `padded`, on the right.
pub fn right(text: &str, width: usize) -> String {
    pad_str(&truncate_str(text, width, "…"), width, Alignment::Right, None).to_string()
}

/// Lines that are at most so wide, if their words are.
pub fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_acts_on_the_terminal() {
        assert_eq!(visible("a\nb\tc"), "a⏎b⇥c");
        assert_eq!(visible("\u{1b}[31mred"), r"\u{1b}[31mred");
        assert_eq!(visible("\u{202e}abc\u{200b}"), r"\u{202e}abc\u{200b}");
        assert_eq!(visible(r#"'"\ é 中"#), r#"'"\ é 中"#);
    }

    #[test]
    fn tokens_fit() {
        assert_eq!(bare(" Mary"), "Mary");
        assert_eq!((bare("  "), bare("")), ("␣␣".to_string(), "␣".to_string()));
        assert_eq!(padded("中中中", 5), "中中…");
        assert_eq!(right("ab", 4), "  ab");
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
    }
}
