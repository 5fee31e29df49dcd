//! Autoencoders: how good they are, and what their features stand for.

use std::fmt::Write;

use super::screen::Screen;
use super::{plural, words};
use crate::commands::sae::eval::Judged;
use crate::commands::sae::features::{Effect, Features};

/// What a judgement says, in a few lines.
pub fn judged(judged: &Judged, screen: &Screen) -> String {
    let about = format!("{} features of `{}` in {}", judged.features, judged.point, judged.model);
    let mut text = screen.opening(&about) + "\n";
    let loss = &judged.loss;
    let lines = [
        ("kind", judged.architecture.clone()),
        ("looked at", format!("{}, {} tokens", plural(judged.texts, "text"), judged.tokens)),
        ("active at a token", format!("{:.1} features", judged.l0)),
        ("explained", format!("{:.1} % of the variance", 100. * judged.explained_variance)),
        ("never active", plural(judged.dead, "feature")),
        (
            "loss",
            format!(
                "{:.3}, with the autoencoder {:.3}, with zeros {:.3}, with the mean {:.3}",
                loss.clean, loss.spliced, loss.zeroed, loss.averaged
            ),
        ),
        ("recovered", format!("{:.1} % of what zeros lose", 100. * loss.recovered_from_zero)),
    ];
    for (name, value) in lines {
        let _ = writeln!(text, "  {} {value}", screen.dim(&words::padded(name, 18)));
    }
    text
}

/// Each feature with its strongest places.
pub fn features(found: &Features, screen: &Screen) -> String {
    let about = format!(
        "{} of {} features of `{}` in {}, over {} tokens",
        found.features.len(),
        found.features_in_all,
        found.point,
        found.model,
        found.tokens
    );
    let mut text = screen.opening(&about);
    for feature in &found.features {
        let title = format!("feature {}", feature.number);
        let _ = writeln!(
            text,
            "\n{}  active at {:.2} % of all tokens",
            screen.bold(&title),
            100. * feature.density
        );
        if !feature.promotes.is_empty() {
            let list = |effects: &[Effect]| {
                let shown = effects.iter().take(5).map(|effect| words::bare(&effect.token.text));
                shown.collect::<Vec<_>>().join(", ")
            };
            text += &screen.note(&format!(
                "promotes {}; demotes {}",
                list(&feature.promotes),
                list(&feature.demotes)
            ));
        }
        for place in feature.places.iter().take(4) {
            let before: String =
                place.tokens.iter().take(place.at).map(|token| words::visible(&token.text)).collect();
            let there = place.tokens.get(place.at).map_or("", |token| token.text.as_str());
            let (spaces, there) = words::split_spaces(there);
            let behind: String =
                place.tokens.iter().skip(place.at + 1).map(|token| words::visible(&token.text)).collect();
            let room = screen.width.saturating_sub(11 + words::width(&there) + spaces.len());
            // What stands before is cut on its left: the end of it says more.
            let mut before = before.trim_start();
            while words::width(before) > room * 3 / 4 {
                let mut letters = before.chars();
                letters.next();
                before = letters.as_str();
            }
            let behind = words::padded(&behind, room.saturating_sub(words::width(before)));
            let line = format!(
                "  {:>6.2}  {before}{spaces}{}{}",
                place.activation,
                screen.bold(&screen.share(&there, 0.8)),
                screen.dim(behind.trim_end())
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        if feature.places.is_empty() {
            text += &screen.note("not active in these texts");
        }
    }
    text
}
