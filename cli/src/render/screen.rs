//! Where an example writes: colours for terminals that have them, and no more columns than there are.

use console::{Style, Term};

use super::words;

/// How many colours there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Plain text, for files and pipes.
    None,
    /// The 256 of nearly every terminal.
    Palette,
    /// All that there are.
    True,
}

/// Where tables are shown.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// How many colours it has.
    pub colours: Colours,
    /// In columns.
    pub width: usize,
    /// Dark text on a light ground.
    pub light: bool,
}

/// What a colour stands for: how it is at full strength, and the steps on the way there among the 256, on a dark
/// and on a light ground. Mixed colours would not do for those: the nearest to a dark orange is olive.
struct Hue {
    full: [f64; 3],
    on_dark: [u8; 6],
    on_light: [u8; 6],
}

const FOR: Hue = Hue {
    full: [217., 95., 32.],
    on_dark: [235, 52, 88, 130, 166, 202],
    on_light: [230, 223, 216, 215, 209, 208],
};
const AGAINST: Hue = Hue {
    full: [44., 111., 187.],
    on_dark: [235, 17, 18, 24, 25, 26],
    on_light: [195, 153, 117, 111, 75, 69],
};
const ATTENTION: Hue = Hue {
    full: [124., 92., 214.],
    on_dark: [235, 237, 239, 60, 61, 98],
    on_light: [189, 183, 147, 141, 105, 99],
};

impl Screen {
    /// Plain unless it is a terminal, and where `NO_COLOR` asks for it.
    pub fn of_stdout() -> Self {
        let term = Term::stdout();
        let colours = match (console::colors_enabled(), console::true_colors_enabled()) {
            (false, _) => Colours::None,
            (true, false) => Colours::Palette,
            (true, true) => Colours::True,
        };
        // What rxvt, Konsole and others say of themselves: foreground;background.
        let ground = std::env::var("COLORFGBG").unwrap_or_default();
        let light = matches!(ground.rsplit(';').next(), Some("7" | "15"));
        let width = if term.is_term() { usize::from(term.size().1).clamp(40, 160) } else { 100 };
        Self { colours, width, light }
    }

    /// Without colours, so wide: for tests.
    pub fn plain(width: usize) -> Self {
        Self { colours: Colours::None, width, light: false }
    }

    /// The first line: what this is about.
    pub fn opening(&self, about: &str) -> String {
        let about =
            words::wrapped(&words::visible(about), self.width.saturating_sub(11)).join("\n           ");
        format!("{}  {}\n", self.bold("hookpoint"), self.dim(&about))
    }

    /// A heading, and what the table below it means.
    pub fn heading(&self, title: &str, meaning: &str) -> String {
        format!("{}\n{}\n", self.bold(title), self.note(meaning))
    }

    /// A sentence beside a table, in as many lines as it needs.
    pub fn note(&self, sentence: &str) -> String {
        let lines = words::wrapped(sentence, self.width.saturating_sub(2));
        lines.iter().map(|line| format!("  {}\n", self.dim(line))).collect()
    }

    /// What matters.
    pub fn bold(&self, text: &str) -> String {
        self.styled(text, Style::new().bold())
    }

    /// What explains.
    pub fn dim(&self, text: &str) -> String {
        self.styled(text, Style::new().dim())
    }

    /// For bars.
    pub fn accent(&self, text: &str) -> String {
        let [r, g, b] = ATTENTION.full.map(|part| part as u8);
        self.styled(
            text,
            match self.colours {
                Colours::True => Style::new().true_color(r, g, b),
                _ => Style::new().color256(98),
            },
        )
    }

    /// On a ground that shows how far `value` is from 0, up to 1 or -1.
    pub fn heat(&self, text: &str, value: f64) -> String {
        self.on(text, if value < 0. { &AGAINST } else { &FOR }, value.abs())
    }

    /// On a ground that shows a share from 0 to 1.
    pub fn share(&self, text: &str, share: f64) -> String {
        self.on(text, &ATTENTION, share)
    }

    fn on(&self, text: &str, hue: &Hue, strength: f64) -> String {
        // Hardly anything is nothing, so that tables do not shimmer.
        if strength.is_nan() || strength < 0.02 {
            return text.to_string();
        }
        let strength = strength.min(1.);
        let style = match self.colours {
            Colours::True => {
                let base: f64 = if self.light { 255. } else { 24. };
                let share = 0.12 + 0.88 * strength.powf(0.8);
                let [r, g, b] = hue.full.map(|part| (base + (part - base) * share) as u8);
                Style::new().on_true_color(r, g, b)
            }
            _ => {
                let steps = if self.light { hue.on_light } else { hue.on_dark };
                let last = steps.len() - 1;
                Style::new().on_color256(steps[((strength * last as f64).round() as usize).min(last)])
            }
        };
        // Black on white grounds; on dark ones no colour is too bright for white.
        self.styled(text, style.color256(if self.light { 16 } else { 231 }))
    }

    fn styled(&self, text: &str, style: Style) -> String {
        match self.colours {
            Colours::None => text.to_string(),
            _ => style.force_styling(true).apply_to(text).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_stronger() {
        for (colours, light) in [(Colours::Palette, false), (Colours::Palette, true), (Colours::True, false)]
        {
            let screen = Screen { colours, width: 80, light };
            let shades: Vec<String> = [0., 0.2, 0.6, 1.].map(|value| screen.heat("a", value)).to_vec();
            assert_eq!(shades[0], "a");
            assert!((1..4).all(|at| shades[at] != shades[at - 1]), "{shades:?}");
            assert_eq!(screen.heat("a", 7.), shades[3]);
            assert_ne!(screen.heat("a", -1.), shades[3]);
        }
    }

    #[test]
    fn without_colours_there_are_no_codes() {
        let screen = Screen::plain(80);
        for value in [-2., -0.5, 0., 0.01, 1., f64::NAN] {
            assert_eq!(screen.heat("a", value), "a");
            assert_eq!(screen.share("a", value), "a");
        }
        assert_eq!(screen.bold("a") + &screen.dim("b") + &screen.accent("c"), "abc");
    }
}
