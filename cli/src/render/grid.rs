//! Tables of all heads: layers downwards, heads to the right.

use std::fmt::Write;

use super::screen::Screen;
use super::words;

/// A table of `layers` and `heads` with cells that are `width` wide; in several parts, if there are more heads than
/// fit into a line.
///
/// ```
/// use hookpoint_cli::render::screen::Screen;
/// use hookpoint_cli::render::{grid, words};
///
/// let cell = |layer: usize, head: usize| words::cell(&(10 * layer + head).to_string(), 4);
/// let table = grid::by_layer_and_head((2, 3), 4, &Screen::plain(80), cell);
/// assert_eq!(table, "       H0  H1  H2\n  L0    0   1   2\n  L1   10  11  12\n");
/// ```
pub fn by_layer_and_head(
    (layers, heads): (usize, usize),
    width: usize,
    screen: &Screen,
    cell: impl Fn(usize, usize) -> String,
) -> String {
    let columns = (screen.width.saturating_sub(6) / width).max(1);
    let mut text = String::new();
    for first in (0..heads).step_by(columns) {
        let part = first..heads.min(first + columns);
        let labels: String = part.clone().map(|head| words::cell(&format!("H{head}"), width)).collect();
        let _ = writeln!(text, "      {}", screen.dim(labels.trim_end()));
        for layer in 0..layers {
            let line: String = part.clone().map(|head| cell(layer, head)).collect();
            let _ = writeln!(text, "  {:<4}{}", format!("L{layer}"), line.trim_end());
        }
    }
    text
}

/// Blocks of lines side by side, as many as fit, and the others below.
///
/// ```
/// use hookpoint_cli::render::{grid, screen::Screen};
///
/// let blocks = ["a\nbbb\n".to_string(), "c\nd\n".to_string()];
/// assert_eq!(grid::beside(&blocks, &Screen::plain(80)), "a    c\nbbb  d\n");
/// assert_eq!(grid::beside(&blocks, &Screen::plain(5)), "a\nbbb\n\nc\nd\n");
/// ```
pub fn beside(blocks: &[String], screen: &Screen) -> String {
    const APART: usize = 2;
    let width = |block: &str| block.lines().map(words::width).max().unwrap_or(0);
    let (mut rows, mut used) = (Vec::<Vec<&str>>::new(), 0);
    for block in blocks {
        match rows.last_mut() {
            Some(row) if used + APART + width(block) <= screen.width => {
                used += APART + width(block);
                row.push(block);
            }
            _ => {
                used = width(block);
                rows.push(vec![block]);
            }
        }
    }
    let mut text = String::new();
    for (number, row) in rows.into_iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        for at in 0..row.iter().map(|block| block.lines().count()).max().unwrap_or(0) {
            let lines = row.iter().map(|block| {
                let line = block.lines().nth(at).unwrap_or_default();
                format!("{line}{}", " ".repeat(width(block) - words::width(line) + APART))
            });
            let _ = writeln!(text, "{}", lines.collect::<String>().trim_end());
        }
    }
    text
}
