//! Colours, for terminals that have them.

use console::{Style, Term};

/// How many colours there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    None,
    /// The 256 of nearly every terminal.
    Palette,
    True,
}

/// Where tables are shown.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub colours: Colours,
    pub width: usize,
    /// Dark text on a light ground.
    pub light: bool,
}

type Rgb = [f64; 3];

const FOR: Rgb = [217., 95., 32.];
const AGAINST: Rgb = [44., 111., 187.];
const ATTENTION: Rgb = [124., 92., 214.];

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

    pub fn bold(&self, text: &str) -> String {
        self.styled(text, Style::new().bold())
    }

    pub fn dim(&self, text: &str) -> String {
        self.styled(text, Style::new().dim())
    }

    /// For bars.
    pub fn accent(&self, text: &str) -> String {
        match self.colours {
            Colours::True => {
                let [r, g, b] = ATTENTION.map(|part| part as u8);
                self.styled(text, Style::new().true_color(r, g, b))
            }
            _ => self.styled(text, Style::new().color256(palette(ATTENTION))),
        }
    }

    /// On a ground that shows how far `value` is from 0, up to 1 or -1.
    pub fn heat(&self, text: &str, value: f64) -> String {
        self.on(text, if value < 0. { AGAINST } else { FOR }, value.abs())
    }

    /// On a ground that shows a share from 0 to 1.
    pub fn share(&self, text: &str, share: f64) -> String {
        self.on(text, ATTENTION, share)
    }

    fn on(&self, text: &str, colour: Rgb, strength: f64) -> String {
        // Hardly anything is nothing, so that tables do not shimmer.
        if strength.is_nan() || strength < 0.02 {
            return text.to_string();
        }
        let base: f64 = if self.light { 255. } else { 24. };
        let strength = 0.12 + 0.88 * strength.min(1.).powf(0.8);
        let mixed = colour.map(|part| base + (part - base) * strength);
        let bright = 0.3 * mixed[0] + 0.59 * mixed[1] + 0.11 * mixed[2] > 140.;
        let style = if bright { Style::new().color256(16) } else { Style::new().color256(231) };
        let [r, g, b] = mixed.map(|part| part as u8);
        self.styled(
            text,
            match self.colours {
                Colours::True => style.on_true_color(r, g, b),
                _ => style.on_color256(palette(mixed)),
            },
        )
    }

    fn styled(&self, text: &str, style: Style) -> String {
        match self.colours {
            Colours::None => text.to_string(),
            _ => style.force_styling(true).apply_to(text).to_string(),
        }
    }
}

/// The nearest of the palette's cube of 6 × 6 × 6, or of its 24 greys.
fn palette(colour: Rgb) -> u8 {
    let step = |part: f64| {
        LEVELS.iter().enumerate().min_by(|a, b| (a.1 - part).abs().total_cmp(&(b.1 - part).abs()))
    };
    let [r, g, b] = colour.map(|part| step(part).map_or((0, 0.), |(number, level)| (number, *level)));
    let grey = ((colour.iter().sum::<f64>() / 3. - 8.) / 10.).round().clamp(0., 23.);
    let off = |other: Rgb| colour.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    match off([8. + 10. * grey; 3]) < off([r.1, g.1, b.1]) {
        true => 232 + grey as u8,
        false => (16 + 36 * r.0 + 6 * g.0 + b.0) as u8,
    }
}

const LEVELS: [f64; 6] = [0., 95., 135., 175., 215., 255.];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_the_nearest_of_the_palette() {
        assert_eq!(palette([0., 0., 0.]), 16);
        assert_eq!(palette([255., 255., 255.]), 231);
        assert_eq!(palette([255., 0., 0.]), 196);
        assert_eq!(palette([128., 128., 128.]), 244);
    }

    #[test]
    fn without_colours_there_are_no_codes() {
        let screen = Screen { colours: Colours::None, width: 80, light: false };
        for value in [-2., -0.5, 0., 0.01, 1., f64::NAN] {
            assert_eq!(screen.heat("a", value), "a");
            assert_eq!(screen.share("a", value), "a");
        }
        assert_eq!(screen.bold("a") + &screen.dim("b") + &screen.accent("c"), "abc");
    }
}
