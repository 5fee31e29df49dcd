//! Whether there are colours.

use std::io::{self, IsTerminal};

use clap::ValueEnum;

/// When output has colours.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Colour {
    /// On a terminal, unless `NO_COLOR` is set
    #[default]
    Auto,
    /// Everywhere, also in files and pipes
    Always,
    /// Nowhere
    Never,
}

impl Colour {
    /// From now on, for both streams.
    pub fn apply(self) {
        let asked_not_to = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let on = |is_terminal: bool| match self {
            Self::Auto => {
                is_terminal && !asked_not_to && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
            Self::Always => true,
            Self::Never => false,
        };
        console::set_colors_enabled(on(io::stdout().is_terminal()));
        console::set_colors_enabled_stderr(on(io::stderr().is_terminal()));
    }
}
