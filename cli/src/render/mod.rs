//! How something looks in a terminal, and where there is none.
//!
//! [`screen`] knows colours and widths, [`words`] and [`grid`] fit texts and tables into them; every command has its
//! own file beside these.

pub mod bar;
pub mod cache;
pub mod colour;
pub mod diff;
pub mod error;
pub mod grid;
pub mod look;
pub mod map;
pub mod points;
pub mod sae;
pub mod screen;
pub mod steer;
pub mod words;

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;

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
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Prints one JSON document in one line.
///
/// # Errors
///
/// If standard output cannot be written to.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(&(serde_json::to_string(value)? + "\n"))?)
}

/// Where something is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    fn has_colours(self) -> bool {
        match self {
            Self::Out => console::colors_enabled(),
            Self::Err => console::colors_enabled_stderr(),
        }
    }
}

/// A diff as standard output can show it: in colours, or as it is.
pub fn diff_for_stdout(text: String) -> String {
    if Stream::Out.has_colours() {
        diff::coloured(&text)
    } else {
        text
    }
}

/// A text in a colour of the terminal, where it is one.
pub fn paint(stream: Stream, colour: &str, text: &str) -> String {
    if stream.has_colours() {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_string()
    }
}

/// `1 file`, `2 files`.
///
/// ```
/// assert_eq!(hookpoint_cli::render::plural(2, "impl block"), "2 impl blocks");
/// ```
pub fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// How much memory or space something takes.
///
/// ```
/// assert_eq!(hookpoint_cli::render::size(12_300), "12.3 kB");
/// ```
pub fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=999_999 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
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
