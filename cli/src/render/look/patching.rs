//! Activation patching as heat maps: tokens downwards, layers to the right.

use std::fmt::Write;

use crate::render::screen::Screen;
use crate::render::{grid, words};

use hookpoint_interp::look::{Findings, HeatMap, Patching};

/// How wide a number is.
const CELL: usize = 5;
/// Where the prompts begin.
const INDENT: usize = 13;

pub fn text(findings: &Findings, screen: &Screen) -> String {
    let title = "Activation patching";
    let Some(patching) = &findings.patching else {
        let why = "Left out: it needs `--corrupt`, a prompt of as many tokens that leads to another answer.";
        return screen.heading(title, why).trim_end().to_string() + "\n";
    };
    let meaning = "The corrupted prompt is run with one activation of the clean prompt put into it. How much of the \
                   way does that bring the answer back? 0 % as corrupted, 100 % as clean; dots are less than 1 %.";
    let mut text = screen.heading(title, meaning);
    text += &prompts(findings, patching, screen);
    text += &by_position(findings, patching, screen);
    text += &by_head(findings, patching, screen);
    text
}

fn prompts(findings: &Findings, patching: &Patching, screen: &Screen) -> String {
    let (answer, wrong) = (words::bare(&findings.answer.text), words::bare(&findings.wrong.text));
    let mut text = String::new();
    let both =
        [("clean", &findings.prompt, patching.clean), ("corrupted", &patching.prompt, patching.corrupted)];
    for (name, prompt, lead) in both {
        let others = if name == "clean" { &patching.prompt } else { &findings.prompt };
        let _ = write!(text, "  {}", screen.dim(&words::padded(name, INDENT - 2)));
        let mut used = INDENT;
        for (at, (token, other)) in prompt.iter().zip(others).enumerate() {
            let (spaces, shown) = words::split_spaces(&token.text);
            used += spaces.len() + words::width(&shown);
            if used > screen.width {
                let _ = write!(text, "\n{:INDENT$}", "");
                used = INDENT + words::width(&shown);
            } else if at > 0 {
                text += spaces;
            }
            text += &if token == other { shown } else { screen.bold(&screen.heat(&shown, 0.6)) };
        }
        let lead = format!("{answer} over {wrong}: {lead:+.2}");
        let _ = writeln!(text, "\n{:INDENT$}{}", "", screen.dim(&lead));
    }
    text.push('\n');
    text
}

/// Residual stream, attention and mlp: side by side if they fit.
fn by_position(findings: &Findings, patching: &Patching, screen: &Screen) -> String {
    let titles = [("resid", "residual stream"), ("attn_out", "attention"), ("mlp_out", "mlp")];
    let maps: Vec<(&HeatMap, &str)> =
        titles.iter().filter_map(|(name, title)| Some((patching.map(name)?, *title))).collect();
    let names: Vec<String> = findings.prompt.iter().map(|token| words::bare(&token.text)).collect();
    let first = names.iter().map(|name| words::width(name)).max().unwrap_or(0).min(12);
    let room = screen.width.saturating_sub(first + 4);
    let all: usize = maps.iter().map(|(map, _)| map.points.len() * CELL + 3).sum();
    let groups: Vec<&[(&HeatMap, &str)]> = match all <= room {
        true => vec![&maps],
        false => maps.chunks(1).collect(),
    };
    groups.iter().map(|group| table(group, &names, first, screen)).collect()
}

fn table(maps: &[(&HeatMap, &str)], names: &[String], first: usize, screen: &Screen) -> String {
    let (mut titles, mut layers) = (String::new(), String::new());
    for (map, title) in maps {
        let width = map.points.len() * CELL;
        titles += &format!("{}   ", words::padded(title, width));
        for row in 0..map.points.len() {
            // The residual stream has one more: behind the last layer.
            let is_end = map.name == "resid" && row + 1 == map.points.len();
            layers += &words::cell(&if is_end { "end".to_string() } else { format!("L{row}") }, CELL);
        }
        layers += "   ";
    }
    let mut text = format!("  {}  {}\n", words::padded("", first), screen.bold(titles.trim_end()));
    let _ = writeln!(text, "  {}  {}", words::padded("", first), screen.dim(layers.trim_end()));
    for (pos, name) in names.iter().enumerate() {
        let mut line = format!("  {}  ", words::right(name, first));
        for (map, _) in maps {
            for row in &map.recovered {
                line += &cell(row.get(pos).copied(), screen);
            }
            line += "   ";
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push('\n');
    text
}

fn by_head(findings: &Findings, patching: &Patching, screen: &Screen) -> String {
    let Some(map) = patching.map("head_out") else { return String::new() };
    let share = |layer: usize, head: usize| map.recovered.get(layer)?.get(head).copied();
    let cells = grid::by_layer_and_head(
        (findings.model.layers, findings.model.heads),
        CELL,
        screen,
        |layer, head| cell(share(layer, head), screen),
    );
    format!("  {}\n{cells}", screen.bold("what each head found, at all tokens"))
}

fn cell(share: Option<f64>, screen: &Screen) -> String {
    let share = share.unwrap_or(f64::NAN);
    match share.abs() < 0.01 {
        true => screen.dim(&words::cell("·", CELL)),
        false => screen.heat(&words::cell(&format!("{:.0}", share * 100.), CELL), share),
    }
}
