//! The heads: what each adds, and where the most telling look.

use std::fmt::Write;

use crate::render::screen::{Colours, Screen};
use crate::render::{grid, words};

use hookpoint_interp::look::{Findings, HeadFindings};

/// How wide a number is.
const CELL: usize = 7;
/// Prompts with more tokens give patterns that are too wide.
const MOST_TOKENS: usize = 40;

pub fn text(findings: &Findings, top: usize, screen: &Screen) -> String {
    let (answer, wrong) = (words::bare(&findings.answer.text), words::bare(&findings.wrong.text));
    let meaning = format!(
        "How much each head adds, by what it writes at the last token, to the logit of {answer} over {wrong}. \
         Together with all else it is {:+.2}.",
        findings.attribution.difference
    );
    let mut text = screen.heading("Heads", &meaning);
    text += &table(findings, screen);
    text += &others(findings, screen);
    text += &telling(findings, top, screen);
    text += &patterns(findings, screen);
    text += &detected(findings, screen);
    text
}

/// What the detectors say, whether the heads matter here or not.
fn detected(findings: &Findings, screen: &Screen) -> String {
    let kinds = |head: &HeadFindings| Some((head.scores?.kind()?, head.label.clone()));
    let mut found: Vec<((&str, f32), String)> = findings.heads.iter().filter_map(kinds).collect();
    found.sort_by(|a, b| a.0 .0.cmp(b.0 .0).then(b.0 .1.total_cmp(&a.0 .1)));
    if found.is_empty() {
        return String::new();
    }
    let shown = found.iter().map(|((kind, score), head)| {
        format!("{head} is {} head ({:.0} %)", with_article(kind), score * 100.)
    });
    let line = format!(
        "Tried on random tokens that repeat, by where most of the attention goes: {}.",
        shown.collect::<Vec<_>>().join(", ")
    );
    format!("\n{}", screen.note(&line))
}

fn with_article(kind: &str) -> String {
    format!("{} {kind}", if kind.starts_with('i') { "an" } else { "a" })
}

fn table(findings: &Findings, screen: &Screen) -> String {
    let most = findings.heads.iter().map(|head| head.adds.abs()).fold(0., f32::max);
    grid::by_layer_and_head((findings.model.layers, findings.model.heads), CELL, screen, |layer, head| {
        let found = findings.heads.iter().find(|found| (found.layer, found.head) == (layer, head));
        let adds = found.map_or(0., |found| found.adds);
        screen.heat(&words::cell(&format!("{adds:+.2}"), CELL), f64::from(adds / most))
    })
}

/// Everything that is not a head, in one line.
fn others(findings: &Findings, screen: &Screen) -> String {
    let sum = |is: &dyn Fn(&str) -> bool| {
        findings.attribution.parts.iter().filter(|part| is(&part.label)).map(|part| part.adds).sum::<f32>()
    };
    let is_head = |label: &str| findings.heads.iter().any(|head| head.label == label);
    let is_mlp = |label: &str| label.ends_with("_mlp_out");
    let is_bias = |label: &str| label == "bias" || label == "unembed_bias";
    let (heads, mlps, biases) = (sum(&is_head), sum(&is_mlp), sum(&is_bias));
    let embeddings = sum(&|label| !is_head(label) && !is_mlp(label) && !is_bias(label));
    let line =
        format!("heads {heads:+.2}, mlps {mlps:+.2}, embeddings {embeddings:+.2}, biases {biases:+.2}");
    format!("\n{}\n", screen.note(&line))
}

/// The most telling heads: what they add, of what kind they are, and where they look from the last token.
fn telling(findings: &Findings, top: usize, screen: &Screen) -> String {
    let last = findings.prompt.last().map_or(String::new(), |token| words::bare(&token.text));
    let title = format!("The most telling, and where they look from the last token, {last}:");
    let mut text = screen.note(&title) + "\n";
    for head in findings.telling_heads().into_iter().take(top) {
        let Some(row) = head.pattern.last() else { continue };
        let mut looks: Vec<(usize, f32)> = row.iter().copied().enumerate().collect();
        looks.sort_by(|a, b| b.1.total_cmp(&a.1));
        let at = |(pos, share): &(usize, f32)| format!("{} {:.0} %", place(findings, *pos), share * 100.);
        let places: Vec<String> = looks.iter().take(3).filter(|(_, share)| *share >= 0.01).map(at).collect();
        let kind = head.scores.and_then(|scores| scores.kind());
        let kind = kind.map_or(String::new(), |(kind, _)| format!("  ({kind} head)"));
        let room = screen.width.saturating_sub(19 + words::width(&kind)).clamp(13, 40);
        let _ = writeln!(
            text,
            "  {}  {:>+7.2}  {}{}",
            screen.bold(&words::padded(&head.label, 6)),
            head.adds,
            words::padded(&places.join(", "), room).trim_end(),
            screen.accent(&kind)
        );
        // The prompt itself, on a ground that shows the attention, says nothing without colours.
        if screen.colours != Colours::None {
            let _ = writeln!(text, "                  {}", shaded(findings, row, screen));
        }
    }
    text
}

/// The token at a position; with the position, where it is not the only one of its kind.
fn place(findings: &Findings, pos: usize) -> String {
    let Some(token) = findings.prompt.get(pos) else { return String::new() };
    match findings.prompt.iter().filter(|other| *other == token).count() {
        1 => words::bare(&token.text),
        _ => format!("{}[{pos}]", words::bare(&token.text)),
    }
}

fn shaded(findings: &Findings, shares: &[f32], screen: &Screen) -> String {
    let room = screen.width.saturating_sub(20);
    let (mut text, mut used) = (String::new(), 0);
    for (token, share) in findings.prompt.iter().zip(shares) {
        let (spaces, token) = words::split_spaces(&token.text);
        used += spaces.len() + words::width(&token);
        if used > room {
            text.push('…');
            break;
        }
        text += spaces;
        text += &screen.share(&token, f64::from(*share));
    }
    text
}

/// The patterns of the most telling heads, side by side: who looks downwards, at whom to the right.
fn patterns(findings: &Findings, screen: &Screen) -> String {
    let count = findings.prompt.len();
    if count > MOST_TOKENS {
        return String::new();
    }
    let names: Vec<String> = findings.prompt.iter().map(|token| words::bare(&token.text)).collect();
    let first = names.iter().map(|name| words::width(name)).max().unwrap_or(0).min(10);
    let each = 2 * count + 3;
    let fit = (screen.width.saturating_sub(first + 4) / each).clamp(1, 4);
    let heads: Vec<&HeadFindings> = findings.telling_heads().into_iter().take(fit).collect();
    let meaning = "Their patterns: each row is a token, and shows at which tokens up to itself it looks.";
    let mut text = format!("\n{}\n", screen.note(meaning));
    let labels: String = heads.iter().map(|head| words::padded(&head.label, each)).collect();
    let _ = writeln!(text, "  {}  {}", words::padded("", first), screen.bold(labels.trim_end()));
    for (query, name) in names.iter().enumerate() {
        let mut line = format!("  {}  ", words::right(name, first));
        for head in &heads {
            let row = head.pattern.get(query).map_or([].as_slice(), Vec::as_slice);
            for (key, share) in row.iter().enumerate() {
                line += &square(*share, key <= query, screen);
            }
            line += "   ";
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Two columns are about as wide as a line is high.
fn square(share: f32, can_look: bool, screen: &Screen) -> String {
    let plain = match (can_look, share) {
        (false, _) => "  ",
        (true, share) if share < 0.02 => return screen.dim("· "),
        (true, _) if screen.colours != Colours::None => "  ",
        (true, share) if share < 0.25 => "░░",
        (true, share) if share < 0.5 => "▒▒",
        (true, share) if share < 0.75 => "▓▓",
        (true, _) => "██",
    };
    screen.share(plain, if can_look { f64::from(share) } else { 0. })
}
