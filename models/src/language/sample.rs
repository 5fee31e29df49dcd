//! Which token comes next, given the logits.

use hookpoint::{Error, Result};

use crate::init::Init;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Sampling {
    /// The most likely one; the first of several that are equally likely.
    #[default]
    Greedy,
    /// A random one, more likely ones more often.
    Random {
        /// Less than 1 prefers likely tokens, more than 1 unlikely ones.
        temperature: f64,
        /// Only so many of the most likely tokens.
        top_k: Option<usize>,
        /// Only the most likely tokens that together have at least this probability.
        top_p: Option<f64>,
        /// Equal seeds give equal texts.
        seed: u64,
    },
}

impl Sampling {
    /// Random tokens with the model's own probabilities.
    pub fn random(seed: u64) -> Self {
        Self::Random { temperature: 1., top_k: None, top_p: None, seed }
    }

    /// Does it make sense?
    pub(super) fn check(&self) -> Result<()> {
        let Self::Random { temperature, top_k, top_p, .. } = self else { return Ok(()) };
        if !(temperature.is_finite() && *temperature > 0.) {
            return Err(Error::msg(format!(
                "the temperature has to be above 0, and is {temperature}\n  for the most likely token, use \
                 `Sampling::Greedy`"
            )));
        }
        if *top_k == Some(0) {
            return Err(Error::msg("top_k is 0, which leaves no token to choose\n  it has to be at least 1"));
        }
        if let Some(top_p) = top_p.filter(|top_p| !(*top_p > 0. && *top_p <= 1.)) {
            return Err(Error::msg(format!("top_p has to be above 0 and at most 1, and is {top_p}")));
        }
        Ok(())
    }

    /// The choices of one row.
    pub(super) fn sampler(&self, row: usize) -> Sampler<'_> {
        let seed = match self {
            Self::Greedy => 0,
            Self::Random { seed, .. } => *seed,
        };
        Sampler { sampling: self, random: Init::new(seed).fork(row as u64) }
    }
}

/// Chooses the tokens of one row, one after the other.
pub(super) struct Sampler<'s> {
    sampling: &'s Sampling,
    random: Init,
}

impl Sampler<'_> {
    /// The next token.
    pub fn choose(&mut self, logits: &[f32]) -> Result<u32> {
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err(Error::msg("the logits are not numbers (NaN): the weights or a hook made them so"));
        }
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let logit = |token: &u32| logits.get(*token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let nothing = || Error::msg("there are no logits to choose from");
        let Sampling::Random { temperature, top_k, top_p, .. } = self.sampling else {
            // The first of the largest: `max_by` would give the last.
            let best = order
                .iter()
                .copied()
                .reduce(|best, next| if logit(&next) > logit(&best) { next } else { best });
            return best.ok_or_else(nothing);
        };
        order.sort_by(|a, b| logit(b).total_cmp(&logit(a)));
        order.truncate(top_k.unwrap_or(usize::MAX));
        let largest = order.first().map(&logit).ok_or_else(nothing)?;
        let weigh = |token: &u32| match logit(token) {
            // Also where the largest is infinite, whose difference to itself is not a number.
            same if same == largest => 1.,
            logit => (f64::from(logit - largest) / temperature).exp(),
        };
        let mut weights: Vec<f64> = order.iter().map(weigh).collect();
        if let Some(top_p) = top_p {
            let enough = top_p * weights.iter().sum::<f64>();
            let mut sum = 0.;
            let before = weights.iter().take_while(|weight| {
                let more = sum < enough;
                sum += **weight;
                more
            });
            weights.truncate(before.count());
        }
        let mut left = self.random.unit() * weights.iter().sum::<f64>();
        let chosen = weights.iter().position(|weight| {
            left -= weight;
            left < 0.
        });
        // Rounding may leave a little at the end, which belongs to the last.
        let chosen = chosen.unwrap_or(weights.len().saturating_sub(1));
        order.get(chosen).copied().ok_or_else(nothing)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn counts(sampling: &Sampling, logits: &[f32]) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        let mut sampler = sampling.sampler(0);
        for _ in 0..4000 {
            counts[sampler.choose(logits).unwrap() as usize] += 1;
        }
        counts
    }

    /// Logits of the probabilities 0.5, 0.3, 0.2.
    fn logits() -> [f32; 3] {
        [0.2f32.ln(), 0.5f32.ln(), 0.3f32.ln()]
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        assert_eq!(Sampling::Greedy.sampler(0).choose(&[1., 3., 3., 2.]).unwrap(), 1);
    }

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let counts = counts(&Sampling::random(1), &logits());
        for (count, expected) in counts.iter().zip([800f64, 2000., 1200.]) {
            assert!((*count as f64 - expected).abs() < 100., "{counts:?}");
        }
    }

    #[test]
    fn a_low_temperature_sharpens() {
        let cold = Sampling::Random { temperature: 0.5, top_k: None, top_p: None, seed: 1 };
        // 0.04, 0.25, 0.09 of 0.38
        let counts = counts(&cold, &logits());
        assert!((counts[1] as f64 - 4000. * 0.25 / 0.38).abs() < 110., "{counts:?}");
    }

    #[test]
    fn top_k_and_top_p_leave_the_unlikely_out() {
        let top_k = Sampling::Random { temperature: 1., top_k: Some(2), top_p: None, seed: 1 };
        assert_eq!(counts(&top_k, &logits())[0], 0);
        assert!(counts(&top_k, &logits())[2] > 1000);
        // 0.5 alone is not enough, 0.5 and 0.3 are.
        let top_p = Sampling::Random { temperature: 1., top_k: None, top_p: Some(0.6), seed: 1 };
        assert_eq!(counts(&top_p, &logits())[0], 0);
        assert!(counts(&top_p, &logits())[2] > 1000);
        let one = Sampling::Random { temperature: 1., top_k: None, top_p: Some(0.4), seed: 1 };
        assert_eq!(counts(&one, &logits()), [0, 4000, 0]);
    }

    #[test]
    fn seeds_and_rows_differ_and_repeat() {
        let text = |seed, row| -> Vec<u32> {
            let sampling = Sampling::random(seed);
            let mut sampler = sampling.sampler(row);
            (0..20).map(|_| sampler.choose(&logits()).unwrap()).collect()
        };
        assert_eq!(text(1, 0), text(1, 0));
        assert_ne!(text(1, 0), text(2, 0));
        assert_ne!(text(1, 0), text(1, 1));
    }

    #[test]
    fn infinite_logits_are_ruled_out_or_certain() {
        let all = Sampling::random(3);
        assert_eq!(counts(&all, &[f32::NEG_INFINITY, 0., f32::NEG_INFINITY]), [0, 4000, 0]);
        assert_eq!(counts(&all, &[f32::INFINITY, 0.]), [4000, 0]);
        assert!(all.sampler(0).choose(&[f32::NAN]).is_err());
        assert!(all.sampler(0).choose(&[]).is_err());
    }
}
