//! The logit lens: tokens downwards, layers to the right.

use std::fmt::Write;

use crate::render::screen::Screen;
use crate::render::words;

use hookpoint_interp::look::{Findings, Guess};

/// The widest that a token is shown.
const WIDEST: usize = 12;

pub fn text(findings: &Findings, screen: &Screen) -> String {
    let lens = &findings.lens;
    let meaning =
        "What the model would say next if it ended there: 0_pre has only the embeddings, every layer adds \
                   to it, final_post is what the model says. The number is the probability in %.";
    let mut text = screen.heading("Logit lens", meaning);
    let best = |stage: usize, pos: usize| lens.top.get(stage)?.get(pos)?.first();
    let given: Vec<String> = findings.prompt.iter().map(|token| words::bare(&token.text)).collect();
    let first = given.iter().map(|token| words::width(token)).max().unwrap_or(0).clamp(6, WIDEST);
    let widths: Vec<usize> = (0..lens.stages.len())
        .map(|stage| {
            let tokens = (0..given.len()).filter_map(|pos| best(stage, pos));
            tokens
                .map(|guess| words::width(&words::bare(&guess.token.text)))
                .max()
                .unwrap_or(0)
                .clamp(6, WIDEST)
        })
        .collect();
    let shown = fitting(&widths, screen.width.saturating_sub(first + 4));

    let mut head = format!("  {}", words::padded("", first));
    for stage in &shown {
        let label = lens.stages.get(*stage).map_or("", String::as_str);
        let _ = write!(head, "  {}", words::padded(label, widths.get(*stage).map_or(0, |width| width + 6)));
    }
    let _ = writeln!(text, "{}", screen.dim(head.trim_end()));
    for (pos, token) in given.iter().enumerate() {
        let mut line = format!("  {}", words::padded(token, first));
        for stage in &shown {
            let width = widths.get(*stage).copied().unwrap_or(0);
            let _ = write!(
                line,
                "  {}",
                best(*stage, pos).map_or(String::new(), |guess| cell(guess, width, screen))
            );
        }
        let _ = writeln!(text, "{line}");
    }
    if shown.len() < lens.stages.len() {
        let left = lens.stages.len() - shown.len();
        text += &screen.note(&format!("{left} more layers do not fit into this window"));
    }
    text
}

fn cell(guess: &Guess, width: usize, screen: &Screen) -> String {
    let token = words::padded(&words::bare(&guess.token.text), width);
    screen.share(&format!(" {token} {:>3.0} ", guess.probability * 100.), f64::from(guess.probability))
}

/// The columns that are shown: all of them, or the last and as many others as there is room for, evenly.
fn fitting(widths: &[usize], room: usize) -> Vec<usize> {
    let needs = |columns: &[usize]| {
        columns.iter().filter_map(|at| widths.get(*at)).map(|width| width + 8).sum::<usize>()
    };
    (1..=widths.len())
        .rev()
        .map(|count| (0..count).map(|at| even(at, count, widths.len())).collect::<Vec<_>>())
        .find(|columns| columns.len() == 1 || needs(columns) <= room)
        .unwrap_or_default()
}

fn even(at: usize, count: usize, all: usize) -> usize {
    match count {
        1 => all - 1,
        _ => at * (all - 1) / (count - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_are_left_out_evenly() {
        assert_eq!(fitting(&[6; 4], 100), [0, 1, 2, 3]);
        assert_eq!(fitting(&[6; 13], 100), [0, 2, 4, 6, 8, 10, 12]);
        assert_eq!(fitting(&[6; 13], 0), [12]);
        assert_eq!(fitting(&[], 10), [0; 0]);
    }
}
