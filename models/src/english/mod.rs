//! Synthetic English: what the embedded GPT-2 was trained on, from a seed.
//!
//! Sentences whose last word follows from the rest, for reasons that an interpretability tool can look for:
//! indirect objects, number agreement, facts, counting; and random sequences that repeat.
//!
//! ```
//! use hookpoint_models::english::{English, Pairs};
//!
//! let mut english = English::new(0);
//! let example = english.indirect_object(Pairs::HeldOut);
//! assert!(example.prompt.contains(&example.answer));
//! assert!(example.prompt.ends_with("to"));
//!
//! // The same seed gives the same examples.
//! assert_eq!(English::new(0).indirect_object(Pairs::HeldOut), example);
//! ```

mod vocabulary;
// Lists that are read by the line.
#[rustfmt::skip]
mod words;

pub use vocabulary::{tokenizer_json, vocabulary, END_OF_TEXT};

use crate::init::Init;
use words::{
    BETWEEN, COUNTRIES, COUNTRY_FACTS, INDIRECT_OBJECTS, NAMES, NOUNS, OBJECTS, OPPOSITES, PLACES, SERIES,
    SOUNDS, VERBS,
};

/// A sentence that a model is asked to go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The sentence up to the answer.
    pub prompt: String,
    /// The next word, with the space before it.
    pub answer: String,
    /// What comes after the answer.
    pub rest: String,
    /// What one might say instead, and would be wrong: the other name, the other number.
    pub wrong: Option<String>,
    /// A prompt of as many tokens for which `wrong` is right.
    pub corrupted: Option<String>,
}

impl Example {
    fn new(prompt: String, answer: &str) -> Self {
        Self { prompt, answer: format!(" {answer}"), rest: ".".to_string(), wrong: None, corrupted: None }
    }

    fn unlike(self, wrong: &str, corrupted: String) -> Self {
        Self { wrong: Some(format!(" {wrong}")), corrupted: Some(corrupted), ..self }
    }

    /// The whole sentence.
    pub fn text(&self) -> String {
        format!("{}{}{}", self.prompt, self.answer, self.rest)
    }
}

/// Which pairs of names to take. A tenth of all pairs is never trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Those to train on.
    Trained,
    /// Those to test with: each name of such a pair is known, but not the two together.
    HeldOut,
}

impl Pairs {
    fn of(first: usize, second: usize) -> Self {
        match (first + second) % 10 == 3 {
            true => Self::HeldOut,
            false => Self::Trained,
        }
    }

    /// Which of the two it is for these names, in either order; none if one of them is no name.
    ///
    /// ```
    /// use hookpoint_models::english::Pairs;
    ///
    /// assert_eq!(Pairs::of_names("Mary", "John"), Some(Pairs::HeldOut));
    /// assert_eq!(Pairs::of_names("Tom", "Mary"), Some(Pairs::Trained));
    /// assert_eq!(Pairs::of_names("Tom", "Jerry"), None);
    /// ```
    pub fn of_names(first: &str, second: &str) -> Option<Self> {
        let place = |name| NAMES.iter().position(|other| *other == name);
        Some(Self::of(place(first)?, place(second)?))
    }
}

/// The generator.
#[derive(Clone, Debug)]
pub struct English(Init);

impl English {
    /// Starts the examples that belong to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Init::new(seed))
    }

    /// Examples of their own for each number, such as the step of a training.
    pub fn fork(&self, number: u64) -> Self {
        Self(self.0.fork(number))
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.0.unit() * end as f64) as usize
    }

    fn one_of<T: Copy>(&mut self, list: &[T], or: T) -> T {
        let at = self.below(list.len());
        list.get(at).copied().unwrap_or(or)
    }

    fn pair(&mut self, pairs: Pairs) -> (&'static str, &'static str) {
        loop {
            let (first, second) = (self.below(NAMES.len()), self.below(NAMES.len()));
            if first == second || Pairs::of(first, second) != pairs {
                continue;
            }
            if let (Some(first), Some(second)) = (NAMES.get(first), NAMES.get(second)) {
                return (first, second);
            }
        }
    }

    /// Two people, one of whom gives the other something. `corrupted` is the same with the other as giver.
    pub fn indirect_object(&mut self, pairs: Pairs) -> Example {
        let (first, second) = self.pair(pairs);
        let frame = self.one_of(INDIRECT_OBJECTS, "");
        let (place, object) = (self.one_of(PLACES, ""), self.one_of(OBJECTS, ""));
        let article = match object.starts_with(['a', 'e', 'i', 'o', 'u']) {
            true => "an",
            false => "a",
        };
        let filled = frame.replace("{A}", first).replace("{B}", second).replace("{P}", place);
        let filled = filled.replace("{O}", &format!("{article} {object}"));
        let (giver, receiver) = match self.below(2) {
            0 => (first, second),
            _ => (second, first),
        };
        let prompt = |giver| filled.replace("{S}", giver);
        Example::new(prompt(giver), receiver).unlike(giver, prompt(receiver))
    }

    /// A verb that has to agree with its noun, with another noun between the two half of the time. `corrupted` is
    /// the same with the noun in the other number.
    pub fn agreement(&mut self) -> Example {
        let noun = self.one_of(NOUNS, ("", ""));
        let (one, more, after) = self.one_of(VERBS, ("", "", &[]));
        let verb = (one, more);
        let rest = format!(" {}.", self.one_of(after, ""));
        let many = self.below(2) == 1;
        let pick = |(one, more): (&'static str, &'static str), many: bool| match many {
            true => more,
            false => one,
        };
        let between = match self.below(2) {
            0 => String::new(),
            _ => {
                let other = pick(self.one_of(NOUNS, ("", "")), self.below(2) == 1);
                format!(" {} the {other}", self.one_of(BETWEEN, ""))
            }
        };
        let prompt = |many| format!("The {}{between}", pick(noun, many));
        let example = Example::new(prompt(many), pick(verb, many)).unlike(pick(verb, !many), prompt(!many));
        Example { rest, ..example }
    }

    /// One of a few facts: capitals, languages, opposites, sounds.
    pub fn fact(&mut self) -> Example {
        match self.below(4) {
            0 => {
                let (one, other) = self.one_of(OPPOSITES, ("", ""));
                let (one, other) = match self.below(2) {
                    0 => (one, other),
                    _ => (other, one),
                };
                Example::new(format!("The opposite of {one} is"), other)
            }
            1 => {
                let (animal, sound) = self.one_of(SOUNDS, ("", ""));
                Example::new(format!("The {animal} says"), sound)
            }
            _ => {
                let (country, capital, language) = self.one_of(COUNTRIES, ("", "", ""));
                let frame = self.one_of(COUNTRY_FACTS, "");
                let filled = frame.replace("{C}", country).replace("{K}", capital).replace("{L}", language);
                let (prompt, answer) = filled.rsplit_once(' ').unwrap_or((&filled, ""));
                Example::new(prompt.to_string(), answer)
            }
        }
    }

    /// Numbers, days or months in their order, from any of them on.
    pub fn counting(&mut self) -> Example {
        let series = self.one_of(SERIES, &[]);
        let length = 3 + self.below(series.len() - 2);
        let start = self.below(series.len() - length + 1);
        let said = series.get(start..start + length).unwrap_or_default();
        let (answer, said) = said.split_last().unwrap_or((&"", &[]));
        Example::new(said.join(" "), answer)
    }

    /// Any of the above, most often an indirect object.
    pub fn example(&mut self) -> Example {
        match self.below(10) {
            0..=5 => self.indirect_object(Pairs::Trained),
            6 | 7 => self.agreement(),
            8 => self.fact(),
            _ => self.counting(),
        }
    }

    /// `half` random tokens below `vocab`.
    pub fn random_tokens(&mut self, half: usize, vocab: usize) -> Vec<u32> {
        (0..half).map(|_| self.below(vocab) as u32).collect()
    }

    /// `half` random tokens below `vocab`, twice: the second half follows from the first.
    pub fn repeated(&mut self, half: usize, vocab: usize) -> Vec<u32> {
        self.random_tokens(half, vocab).repeat(2)
    }
}
