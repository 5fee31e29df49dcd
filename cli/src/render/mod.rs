//! How something looks in a terminal, and where there is none.

pub mod bar;
pub mod diff;
pub mod error;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use crate::target::slashed;

/// Prints on standard output. A reader that has seen enough is no error: `hookpoint annotate .. | head`.
///
/// # Errors
///
/// If standard output cannot be written to.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// A diff as standard output can show it: in colours, or as it is.
pub fn diff_for_stdout(text: String) -> String {
    if has_colours(&io::stdout()) {
        diff::coloured(&text)
    } else {
        text
    }
}

/// A text in a colour of the terminal, where it is one.
pub fn paint(stream: &impl IsTerminal, colour: &str, text: &str) -> String {
    if has_colours(stream) {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_string()
    }
}

fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// `1 file`, `2 files`.
///
/// ```
/// assert_eq!(hookpoint_cli::render::plural(2, "impl block"), "2 impl blocks");
/// ```
pub fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A line on what was left alone because `.gitignore` names it; none if that is nothing.
pub fn left_alone(ignored: &[PathBuf]) -> Option<String> {
    const SHOWN: usize = 5;
    let mut names: Vec<String> = ignored.iter().take(SHOWN).map(|path| slashed(path)).collect();
    if ignored.len() > SHOWN {
        names.push(format!("and {} more", ignored.len() - SHOWN));
    }
    let names = (!names.is_empty()).then(|| names.join(", "))?;
    Some(format!("left alone, as .gitignore or .ignore asks: {names}"))
}
