//! What was found out about a prompt as tables, with colours where they can be seen.

mod heads;
mod lens;
mod patching;

use std::fmt::Write;

use crate::render::screen::Screen;
use crate::render::words;

use hookpoint_interp::look::Findings;

/// How wide a bar is for a share of 1.
const BAR: usize = 30;

/// All tables; lists have `top` entries.
pub fn text(findings: &Findings, top: usize, screen: &Screen) -> String {
    let mut text = String::new();
    let sections = [
        opening(findings, screen),
        next(findings, screen),
        lens::text(findings, screen),
        heads::text(findings, top, screen),
    ];
    for section in sections {
        text += &section;
        text.push('\n');
    }
    text += &patching::text(findings, screen);
    text
}

fn opening(findings: &Findings, screen: &Screen) -> String {
    let model = &findings.model;
    let facts = format!(
        "{}: {} layers of {} heads, {} wide, {} tokens",
        model.name, model.layers, model.heads, model.width, model.vocabulary
    );
    let prompt: String = findings.prompt.iter().map(|token| token.text.as_str()).collect();
    let mut text = screen.opening(&facts) + "\n";
    for line in words::wrapped(&words::visible(prompt.trim_start()), screen.width.saturating_sub(4)) {
        let _ = writeln!(text, "  {}", screen.bold(&line));
    }
    text
}

fn next(findings: &Findings, screen: &Screen) -> String {
    let mut text = screen.heading("Next token", "What the model expects after the prompt.");
    let names: Vec<String> = findings.next.iter().map(|guess| words::quoted(&guess.token.text)).collect();
    let width = names.iter().map(|name| words::width(name)).max().unwrap_or(0);
    for (guess, name) in findings.next.iter().zip(&names) {
        let bar = "█".repeat((guess.probability * BAR as f32).round() as usize);
        let share = match guess.probability {
            tiny if tiny < 0.001 => "< 0.1".to_string(),
            share => format!("{:.1}", share * 100.),
        };
        let line = format!("  {}  {share:>5} %  {}", words::padded(name, width), screen.accent(&bar));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
