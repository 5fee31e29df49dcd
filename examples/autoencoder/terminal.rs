//! The findings as text, with colours where they can be seen.

use std::fmt::Write;

use hookpoint_examples::screen::Screen;
use hookpoint_examples::words;

use crate::args::Args;
use crate::findings::{Feature, Findings, Place};

pub fn text(findings: &Findings, args: &Args, screen: &Screen) -> String {
    let mut text = String::new();
    let title = format!(
        "{} features of `{}` in {}",
        findings.features_in_all,
        words::visible(&findings.point),
        findings.model
    );
    let loss = &findings.loss;
    let facts = [
        format!(
            "{}: {:.1} features a token, {:.1} % of the variance explained, {} dead, over {} tokens",
            findings.architecture,
            findings.l0,
            100. * findings.explained_variance,
            findings.dead,
            findings.tokens
        ),
        format!(
            "loss {:.3}, with the autoencoder in the place of the point {:.3}, with zeros {:.3}, with the mean {:.3}: \
             {:.1} % recovered",
            loss.clean,
            loss.spliced,
            loss.zeroed,
            loss.averaged,
            100. * loss.recovered_from_zero
        ),
    ];
    let _ = writeln!(text, "{}", screen.bold(&title));
    for line in facts.iter().flat_map(|fact| words::wrapped(fact, screen.width.saturating_sub(2))) {
        let _ = writeln!(text, "  {}", screen.dim(&line));
    }
    for feature in findings.features.iter().take(args.top) {
        text.push('\n');
        text += &shown(feature, screen);
    }
    text.push('\n');
    let end = match (&args.out, &args.save) {
        (Some(page), _) => format!("The page is in {}.", page.display()),
        (None, None) => {
            "`--out features.html` makes a page of all of them, `--save` keeps the autoencoder.".to_string()
        }
        (None, Some(folder)) => format!("The autoencoder is in {}.", folder.display()),
    };
    let _ = writeln!(text, "{}", screen.dim(&end));
    text
}

fn shown(feature: &Feature, screen: &Screen) -> String {
    let mut text = String::new();
    let name = screen.bold(&format!("feature {}", feature.number));
    let often = screen.dim(&format!("at {:.1} % of tokens", 100. * feature.density));
    let _ = writeln!(text, "{name}  {often}");
    let list = |tokens: &[(String, f32)]| {
        let tokens: Vec<String> = tokens.iter().take(6).map(|(token, _)| words::quoted(token)).collect();
        tokens.join(" ")
    };
    let _ = writeln!(text, "  {} {}", screen.dim("excited by"), list(&feature.words));
    let _ = writeln!(text, "  {}   {}", screen.dim("promotes"), list(&feature.promotes));
    for place in feature.places.iter().take(3) {
        let _ = writeln!(text, "    {}", sentence(place, feature.largest, screen));
    }
    text
}

/// A line of text, as long as there is room, with the token that it is about in brackets where there are no colours.
fn sentence(place: &Place, largest: f32, screen: &Screen) -> String {
    let room = screen.width.saturating_sub(8);
    let plain = |at: usize| words::visible(&place.tokens[at].0);
    let mut start = place.at;
    let mut used = words::width(&plain(start)) + 2;
    while start > 0 && used + words::width(&plain(start - 1)) <= room {
        start -= 1;
        used += words::width(&plain(start));
    }
    let mut line = String::new();
    for at in start..place.tokens.len() {
        let (shown, strength) = (plain(at), f64::from(place.tokens[at].1 / largest.max(f32::MIN_POSITIVE)));
        if at > place.at {
            used += words::width(&shown);
            if used > room {
                break;
            }
        }
        match at == place.at {
            true => line += &screen.heat(&format!("[{}]", shown.trim_start()), strength),
            false if strength > 0.05 => line += &screen.heat(&shown, strength),
            false => line += &shown,
        }
        // A space before a bracket belongs outside of it.
        if at + 1 == place.at && place.tokens[at + 1].0.starts_with(' ') {
            line.push(' ');
        }
    }
    line.trim().to_string()
}
