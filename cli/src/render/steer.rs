//! Texts that were steered, one below the other.

use std::fmt::Write;

use super::screen::Screen;
use super::words;
use crate::commands::steer::Steered;

/// A line for each strength.
pub fn text(steered: &Steered, screen: &Screen) -> String {
    let mut text = screen.opening(&steered.model) + "\n";
    let meaning = format!(
        "The direction at {}, of length {:.2}, is added so many times while the model writes. Beside each text: what was \
         likely behind the prompt, in %.",
        words::visible(&steered.point),
        steered.norm
    );
    text += &screen.heading("Steering", &meaning);
    let room = screen.width.saturating_sub(38).max(20);
    let prompt = words::visible(&steered.prompt);
    for line in &steered.texts {
        let next = line.next.iter().take(2);
        let next = next.map(|next| format!("{} {:.0}", words::bare(&next.token), next.probability * 100.));
        let next = next.collect::<Vec<_>>().join(", ");
        let whole = format!("{prompt}{}", words::visible(&line.added));
        let shown = words::padded(&whole, room);
        // What the model wrote stands out, as far as it is shown.
        let (given, added) = shown.split_at_checked(prompt.len()).unwrap_or((&shown, ""));
        let strength = screen.heat(&words::right(&format!("{:+} ", line.strength), 7), line.strength / 2.);
        let row =
            format!("  {strength} {given}{} {}", screen.bold(added), screen.dim(&words::padded(&next, 26)));
        let _ = writeln!(text, "{}", row.trim_end());
    }
    if let Some(file) = &steered.file {
        let line = format!("The direction is in {}: `hookpoint generate --steer` adds it.", file.display());
        let _ = write!(text, "\n{}", screen.note(&line));
    }
    text
}
