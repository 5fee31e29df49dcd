//! Points as a tree, and what a pattern selects.

use std::fmt::Write;

use hookpoint::HookDict;

use super::screen::Screen;
use super::{plural, words};
use crate::commands::points::{Matched, Points};

/// The tree, or the list of what was matched.
pub fn text(points: &Points, dict: &HookDict, screen: &Screen) -> String {
    match &points.matched {
        Some(matched) => selected(points, matched, screen),
        None => {
            let about = format!(
                "{}: {}, with shapes for {}",
                points.model,
                plural(points.points.len(), "point"),
                plural(points.tokens, "token")
            );
            format!("{}\n{dict}\n", screen.opening(&about))
        }
    }
}

fn selected(points: &Points, matched: &Matched, screen: &Screen) -> String {
    let pattern = words::visible(&matched.pattern);
    if points.points.is_empty() {
        let mut text = format!("`{pattern}` selects nothing in {}\n", words::visible(&points.model));
        if !matched.nearest.is_empty() {
            let _ = writeln!(text, "  did you mean `{}`?", matched.nearest.join("`, `"));
        }
        return text;
    }
    let mut text = screen.opening(&format!(
        "`{pattern}` selects {} of {}",
        plural(points.points.len(), "point"),
        points.model
    ));
    let shown = |name: &str| if name.is_empty() { "(the model)".to_string() } else { words::visible(name) };
    let width = matched.values.iter().map(|value| words::width(&shown(&value.name))).max().unwrap_or(0);
    for value in &matched.values {
        let times = if value.calls > 1 { format!(" × {}", value.calls) } else { String::new() };
        let shape = format!("{:?} {}{times}", value.shape, value.dtype);
        let _ = writeln!(text, "  {}  {}", words::padded(&shown(&value.name), width), screen.dim(&shape));
    }
    // A selected point without a value: a branch that this run did not take, or a value that is no tensor.
    let reached = |name: &str| {
        let is_part = |value: &str| {
            value.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '#']))
        };
        matched.values.iter().any(|value| is_part(&value.name))
    };
    let missing: Vec<&str> =
        points.points.iter().map(|point| point.name.as_str()).filter(|name| !reached(name)).collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "\n  no value in this run:");
        for name in missing {
            let _ = writeln!(text, "  {}", screen.dim(&shown(name)));
        }
    }
    text
}
