//! A profile as a tree in the terminal.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use super::{Entry, Profile, What};

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.entries.iter().any(|entry| entry.grown.is_some());
        let grown = if counts { format!("{:>11}", "grown") } else { String::new() };
        writeln!(
            f,
            "{:>10} {:>6} {:>10} {:>7} {:>10}{grown}  where",
            "self", "", "total", "calls", "output"
        )?;
        self.below(f, None, 0, counts)
    }
}

impl Profile {
    fn below(
        &self,
        f: &mut fmt::Formatter<'_>,
        parent: Option<usize>,
        depth: usize,
        counts: bool,
    ) -> fmt::Result {
        let mut children: Vec<(usize, &Entry)> =
            self.entries.iter().enumerate().filter(|(_, entry)| entry.parent == parent).collect();
        children.sort_by_key(|(_, entry)| Reverse(entry.own));
        for (number, entry) in children {
            self.line(f, entry, depth, counts)?;
            self.below(f, Some(number), depth + 1, counts)?;
        }
        Ok(())
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, entry: &Entry, depth: usize, counts: bool) -> fmt::Result {
        let total = self.total().as_secs_f64();
        let share = if total > 0. { entry.own.as_secs_f64() / total * 100. } else { 0. };
        let (own, whole, output) = (time(entry.own), time(entry.whole), size(entry.bytes as f64));
        write!(f, "{own:>10} {share:>5.1}% {whole:>10} {:>7} {output:>10}", entry.calls)?;
        if counts {
            write!(f, "{:>11}", entry.grown.map(|grown| size(grown as f64)).unwrap_or_default())?;
        }
        let name = match (entry.what, entry.name.as_str()) {
            (What::Run, _) => "(run)",
            (What::Module, "") => "(root)",
            (_, name) => name,
        };
        writeln!(f, "  {:indent$}{name}", "", indent = 2 * depth)
    }
}

/// A time in the unit that leaves one to three digits before the point.
fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= 1. => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.2} µs", s * 1e6),
    }
}

fn size(bytes: f64) -> String {
    match bytes.abs() {
        b if b >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        b if b >= 1e6 => format!("{:.2} MB", bytes / 1e6),
        b if b >= 1e3 => format!("{:.2} kB", bytes / 1e3),
        _ => format!("{bytes:.0} B"),
    }
}
