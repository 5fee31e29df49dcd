//! One logit and its parts, to look at.

use std::fmt;

/// A logit and the parts that it is the sum of. Made by [`Attribution::at`](super::Attribution::at).
///
/// Shown as a list in the order of the parts; [`ranked`](Self::ranked) puts the largest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Breakdown {
    logit: f32,
    parts: Vec<(String, f32)>,
}

impl Breakdown {
    pub(super) fn new(logit: f32, parts: Vec<(String, f32)>) -> Self {
        Self { logit, parts }
    }

    /// The logit that the model gave, or the difference of two.
    pub fn logit(&self) -> f32 {
        self.logit
    }

    /// Labels and what each part adds.
    pub fn parts(&self) -> impl Iterator<Item = (&str, f32)> {
        self.parts.iter().map(|(label, value)| (label.as_str(), *value))
    }

    /// The sum of the parts.
    pub fn total(&self) -> f32 {
        // In f64, so that the order of the parts does not matter.
        self.parts.iter().map(|(_, value)| f64::from(*value)).sum::<f64>() as f32
    }

    /// The same, with the parts that matter most first, whether they add or take away.
    pub fn ranked(&self) -> Self {
        let mut parts = self.parts.clone();
        parts.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        Self { logit: self.logit, parts }
    }
}

impl fmt::Display for Breakdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: f32 = 20.;
        let width = self.parts.iter().map(|(label, _)| label.len()).max().unwrap_or(0).max(5);
        let most = self.parts.iter().map(|(_, value)| value.abs()).fold(0f32, f32::max);
        for (label, value) in &self.parts {
            let share = if most > 0. { value.abs() / most } else { 0. };
            let bar = if *value < 0. { "-" } else { "+" }.repeat((share * LONGEST).round() as usize);
            writeln!(f, "{}", format!("{label:width$}  {value:>+9.4}  {bar}").trim_end())?;
        }
        write!(f, "{:width$}  {:>+9.4}", "total", self.total())
    }
}
