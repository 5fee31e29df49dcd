//! Tables of cells: heat maps in a terminal, lines with commas for other programs.

use std::fmt::Write;

use hookpoint_interp::look::Token;

use super::screen::Screen;
use super::words;
use crate::map::{Cell, Map, Maps};

/// How wide a number is.
const CELL: usize = 7;
/// The widest that the name of a row is shown.
const WIDEST: usize = 24;

/// Heat maps, one below the other.
pub fn text(maps: &Maps, screen: &Screen) -> String {
    let mut text = screen.opening(&format!("{}: {}", maps.model, maps.method)) + "\n";
    text += &prompt("prompt", &maps.prompt, screen);
    if let Some(corrupted) = &maps.corrupted_prompt {
        text += &prompt("corrupted", corrupted, screen);
    }
    let (answer, wrong) = (words::bare(&maps.answer.text), words::bare(&maps.wrong.text));
    let corrupted =
        maps.corrupted.map_or(String::new(), |value| format!(", and {value:+.2} with the corrupted one"));
    text.push('\n');
    text += &screen.note(&format!(
        "The metric is the logit of {answer} over {wrong}: {:+.2} with the prompt{corrupted}. {}",
        maps.clean,
        match is_share(maps) {
            true =>
                "Cells say how much of the way from the corrupted to the clean prompt they bring back, in %.",
            false => "Cells say by how much they change it.",
        }
    ));
    for map in &maps.maps {
        let _ = write!(text, "\n{}\n", screen.bold(&words::visible(&map.name)));
        text += &table(map, maps, screen);
    }
    text
}

fn is_share(maps: &Maps) -> bool {
    maps.maps.iter().flat_map(|map| &map.cells).any(|cell| cell.recovered.is_some())
}

fn prompt(name: &str, tokens: &[Token], screen: &Screen) -> String {
    let whole: String = tokens.iter().map(|token| words::visible(&token.text)).collect();
    let lines = words::wrapped(whole.trim_start(), screen.width.saturating_sub(13));
    format!("  {} {}\n", screen.dim(&words::padded(name, 10)), lines.join("\n             "))
}

/// Positions downwards and layers to the right; layers downwards and heads to the right; with three axes a table for
/// each layer.
fn table(map: &Map, maps: &Maps, screen: &Screen) -> String {
    let most = map.cells.iter().filter_map(|cell| cell.effect).map(f64::abs).fold(0., f64::max);
    let shown = |cell: Option<&Cell>| shown(cell, most, screen);
    let names = |axis: usize| names(map, axis, maps);
    match map.axes.as_slice() {
        [] => String::new(),
        [_] => heat(&names(0), &[String::new()], screen, |row, _| shown(map.at(&[row]))),
        [_, columns] if columns.name == "position" => {
            heat(&names(1), &names(0), screen, |row, column| shown(map.at(&[column, row])))
        }
        [_, _] => heat(&names(0), &names(1), screen, |row, column| shown(map.at(&[row, column]))),
        [_, ..] => {
            // More than three axes: all but the last two are the title.
            let outer: usize = map.axes[..map.axes.len() - 2].iter().map(|axis| axis.labels.len()).product();
            let mut text = String::new();
            for at in 0..outer {
                let (mut place, mut rest) = (Vec::new(), at);
                for axis in map.axes[..map.axes.len() - 2].iter().rev() {
                    place.insert(0, rest % axis.labels.len());
                    rest /= axis.labels.len();
                }
                let title: Vec<String> =
                    place.iter().enumerate().filter_map(|(axis, at)| names(axis).get(*at).cloned()).collect();
                let _ = writeln!(text, "  {}", screen.bold(&title.join(" ")));
                let inner = |row: usize, column: usize| {
                    let whole: Vec<usize> = place.iter().copied().chain([row, column]).collect();
                    shown(map.at(&whole))
                };
                text += &heat(&names(map.axes.len() - 2), &names(map.axes.len() - 1), screen, inner);
            }
            text
        }
    }
}

/// Short names: `L3` for the point of a layer, the token at a position, `H2`.
fn names(map: &Map, axis: usize, maps: &Maps) -> Vec<String> {
    let Some(axis) = map.axes.get(axis) else { return Vec::new() };
    let name = |(at, label): (usize, &String)| match axis.name.as_str() {
        "layer" => format!("L{at}"),
        "head" => format!("H{label}"),
        "position" | "query" => {
            maps.prompt.get(at).map_or_else(|| label.clone(), |token| words::bare(&token.text))
        }
        _ => words::visible(label),
    };
    axis.labels.iter().enumerate().map(name).collect()
}

fn shown(cell: Option<&Cell>, most: f64, screen: &Screen) -> String {
    let Some(effect) = cell.and_then(|cell| cell.effect) else {
        return screen.dim(&words::cell("?", CELL));
    };
    match cell.and_then(|cell| cell.recovered) {
        Some(share) if share.abs() < 0.005 => screen.dim(&words::cell("·", CELL)),
        Some(share) => screen.heat(&words::cell(&format!("{:.0}", share * 100.), CELL), share),
        None if effect.abs() < 0.005 => screen.dim(&words::cell("·", CELL)),
        None => screen.heat(&words::cell(&number(effect), CELL), effect / most),
    }
}

/// With a sign, in five columns.
fn number(effect: f64) -> String {
    match effect.abs() {
        large if large >= 1000. => format!("{effect:+.0}"),
        middle if middle >= 10. => format!("{effect:+.1}"),
        _ => format!("{effect:+.2}"),
    }
}

/// Rows and columns, in as many tables as the width needs.
fn heat(
    rows: &[String],
    columns: &[String],
    screen: &Screen,
    cell: impl Fn(usize, usize) -> String,
) -> String {
    let first = rows.iter().map(|name| words::width(name)).max().unwrap_or(0).min(WIDEST);
    let fit = (screen.width.saturating_sub(first + 4) / CELL).max(1);
    let mut text = String::new();
    for start in (0..columns.len()).step_by(fit) {
        let part = start..columns.len().min(start + fit);
        let heads: String = columns[part.clone()].iter().map(|name| words::cell(name, CELL)).collect();
        if !heads.trim().is_empty() {
            let _ = writeln!(text, "  {}  {}", words::padded("", first), screen.dim(heads.trim_end()));
        }
        for (row, name) in rows.iter().enumerate() {
            let line: String = part.clone().map(|column| cell(row, column)).collect();
            let _ = writeln!(text, "  {}  {}", words::right(name, first), line.trim_end());
        }
    }
    text
}

/// One line for each cell, after a line of names.
pub fn csv(maps: &Maps) -> String {
    let mut text = String::from("map,cell,value,effect,recovered\n");
    let number = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
    for map in &maps.maps {
        for cell in &map.cells {
            let _ = writeln!(
                text,
                "{},{},{},{},{}",
                field(&map.name),
                field(&cell.name),
                number(cell.value),
                number(cell.effect),
                number(cell.recovered)
            );
        }
    }
    text
}

/// In quotes where it has to be, as RFC 4180 asks.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(field("a[:, 1]"), "\"a[:, 1]\"");
        assert_eq!(field("say \"a\""), "\"say \"\"a\"\"\"");
        assert_eq!(field("plain"), "plain");
    }

    #[test]
    fn numbers_fit() {
        for (number, text) in [(0.123, "+0.12"), (-12.34, "-12.3"), (12345.6, "+12346")] {
            assert_eq!(super::number(number), text);
        }
    }
}
