//! All points at once; and if they do not agree, which one it is.

use std::rc::Rc;

use candle_core::DType;

use super::{judge, Certificate, Judged, Measured, Precision};
use crate::error::{ErrorKind, Result};
use crate::run::Nudge;

#[derive(Clone, Copy)]
pub(super) struct Options {
    pub seed: u64,
    pub directions: u64,
    pub tolerance: Option<f64>,
    /// The dtype of the loss.
    pub loss: DType,
}

/// Points whose gradients are longer by this much than the shortest among them are compared apart: an error in the
/// short one would not be seen beside the long one.
const SPREAD: f64 = 30.;

pub(super) enum Compared {
    Agree(Certificate),
    /// Points among which there is a wrong one.
    Differ(Vec<String>),
}

/// The runs of one plan, with and without a backward pass.
pub(super) struct Session<'s> {
    nudge: Rc<Nudge>,
    /// Runs the plan, with a backward pass or without; gives the loss.
    run: &'s mut dyn FnMut(bool) -> Result<f64>,
    options: Options,
    base: f64,
    runs: usize,
    kinks: usize,
    /// What was allowed in the end.
    tolerance: f64,
}

impl<'s> Session<'s> {
    pub fn new(nudge: Rc<Nudge>, run: &'s mut dyn FnMut(bool) -> Result<f64>, options: Options) -> Self {
        Self { nudge, run, options, base: 0., runs: 0, kinks: 0, tolerance: 0. }
    }

    /// Runs the plan once as it is. The loss must be what it was with a backward pass.
    pub fn begin(&mut self, noted: f64) -> Result<()> {
        self.base = self.at(0., 0)?.0;
        let allowed = 100. * self.precision().noise * (1. + noted.abs());
        if (self.base - noted).abs() <= allowed {
            return Ok(());
        }
        let reason = match noted.is_finite() && self.base.is_finite() {
            true => format!(
                "the loss is {noted}, and {} when the closure runs again\n  clear what the model keeps from run to run at \
                 the beginning of the closure, and run it without randomness: dropout with `train = false`",
                self.base
            ),
            false => format!("the loss is {noted}: `listen::NonFinite` shows where that comes from"),
        };
        Err(ErrorKind::NotCertified { reason }.into())
    }

    fn precision(&self) -> Precision {
        let seen = self.nudge.seen();
        let dtypes = seen.iter().map(|seen| seen.dtype);
        let precision = dtypes.map(Precision::of).fold(Precision::of(self.options.loss), Precision::or_less);
        Precision { tolerance: self.options.tolerance.unwrap_or(precision.tolerance), ..precision }
    }

    fn at(&mut self, by: f64, seed: u64) -> Result<(f64, f64)> {
        self.nudge.move_by(by, seed);
        self.runs += 1;
        let loss = (self.run)(false)?;
        Ok((loss, self.nudge.said()))
    }

    /// Compares all points with a certificate in the end.
    pub fn compare(&mut self) -> Result<Compared> {
        let mut worst = 0f64;
        let groups = self.groups();
        for direction in 0..self.options.directions {
            for group in &groups {
                let seed = self.options.seed.wrapping_add(direction);
                match self.judge_all(group, seed)? {
                    Judged::Agrees { off } => worst = worst.max(off),
                    Judged::Kink => self.kinks += 1,
                    Judged::Wrong { .. } | Judged::Beside { .. } => {
                        let seen = self.nudge.seen();
                        let names = group.iter().filter_map(|number| seen.get(*number));
                        return Ok(Compared::Differ(names.map(|seen| seen.name.clone()).collect()));
                    }
                    Judged::Unsettled { noise, .. } => {
                        let reason = format!(
                            "differences of the loss do not settle: what its rounding leaves is {noise:.1e} of the gradient\n  \
                             run the model in f64, give a loss that is not a small difference of large numbers, or ask for \
                             gradients at fewer points"
                        );
                        return Err(ErrorKind::NotCertified { reason }.into());
                    }
                }
            }
        }
        let points: Vec<String> = self.nudge.seen().iter().map(|seen| seen.name.clone()).collect();
        if points.is_empty() {
            let reason = "the run reaches no point with floats, so there is nothing to compare".to_string();
            return Err(ErrorKind::NotCertified { reason }.into());
        }
        let Self { kinks, runs, tolerance, .. } = *self;
        Ok(Compared::Agree(Certificate { points, kinks, off: worst, tolerance, runs }))
    }

    /// Points whose gradients are about as long as each other.
    fn groups(&self) -> Vec<Vec<usize>> {
        let seen = self.nudge.seen();
        let length = |number: &usize| seen.get(*number).map_or(0., |seen| seen.length);
        let mut numbers: Vec<usize> = (0..seen.len()).collect();
        numbers.sort_by(|a, b| length(b).total_cmp(&length(a)));
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for number in numbers {
            match groups.last_mut() {
                // What has no gradient goes with the shortest: its length is what counts there.
                Some(group)
                    if length(&number) == 0.
                        || group.first().is_some_and(|first| length(first) < SPREAD * length(&number)) =>
                {
                    group.push(number)
                }
                _ => groups.push(vec![number]),
            }
        }
        groups
    }

    /// Moves these points and no others. At a kink a place beside it is asked.
    fn judge_all(&mut self, group: &[usize], seed: u64) -> Result<Judged> {
        let judged = self.judge_here(group, seed)?;
        let Judged::Beside { .. } = judged else { return Ok(judged) };
        let (base, step) = (self.base, self.precision().step);
        self.nudge.step_aside(step);
        self.nudge.note();
        (self.run)(true)?;
        self.base = self.at(0., 0)?.0;
        let beside = self.judge_here(group, seed)?;
        self.nudge.step_aside(0.);
        self.nudge.note();
        (self.run)(true)?;
        (self.base, self.runs) = (base, self.runs + 2);
        Ok(match beside {
            Judged::Agrees { .. } | Judged::Kink => Judged::Kink,
            beside => beside,
        })
    }

    fn judge_here(&mut self, group: &[usize], seed: u64) -> Result<Judged> {
        let size = {
            let mut seen = self.nudge.seen();
            seen.iter_mut().for_each(|seen| seen.weight = 0.);
            let lengths = group.iter().filter_map(|number| seen.get(*number)).map(|seen| seen.length);
            let shortest = lengths.filter(|length| *length > 0.).fold(f64::INFINITY, f64::min);
            let mut square = 0f64;
            for number in group {
                if let Some(seen) = seen.get_mut(*number) {
                    seen.weight = if seen.length > 0. { shortest / seen.length } else { 1. };
                    square += (seen.weight * seen.length).powi(2);
                }
            }
            square.sqrt()
        };
        let mut precision = self.precision();
        let mut first = None;
        loop {
            let measured = Measured { base: self.base, size, magnitude: self.base.abs() + size, precision };
            let judged = judge(&measured, &mut |by| self.at(by, seed))?;
            let coarser = precision.coarser().filter(|_| self.options.tolerance.is_none());
            match (judged, coarser) {
                // Where it does not change at all, a step of what is rounded inside may be longer.
                (Judged::Unsettled { .. } | Judged::Wrong { difference: 0., .. }, Some(coarser)) => {
                    first.get_or_insert(judged);
                    precision = coarser;
                }
                // Over jumps, long steps see another slope than short ones, and neither is the one that is meant.
                (Judged::Wrong { .. } | Judged::Beside { .. }, _)
                    if matches!(first, Some(Judged::Unsettled { .. })) =>
                {
                    return Ok(first.unwrap_or(judged));
                }
                (judged, _) => {
                    self.tolerance = self.tolerance.max(precision.tolerance);
                    return Ok(judged);
                }
            }
        }
    }

    /// The point nearest to the loss whose gradient is wrong. `culprits` are points among which there is one.
    pub fn nearest(&mut self, culprits: &[String]) -> Result<ErrorKind> {
        let names: Vec<String> = self.nudge.seen().iter().map(|seen| seen.name.clone()).collect();
        let mut found = None;
        let among = |name: &String| culprits.is_empty() || culprits.contains(name);
        // From the loss on: the first that is wrong has the shortest way to what makes it wrong.
        for (number, _) in names.iter().enumerate().rev().filter(|(_, name)| among(name)) {
            if let Some(wrong) = self.is_wrong(number)? {
                found = Some((number, wrong));
                break;
            }
        }
        let Some((mut wrong, mut how)) = found else {
            let point = culprits.first().cloned().unwrap_or_default();
            let reason = format!(
                "the gradients at {} points do not add up to what the loss changes by, and each by itself is within its \
                 tolerance, {point} first\n  `hookpoint::check_gradients` compares each point in several ways",
                culprits.len()
            );
            return Ok(ErrorKind::NotCertified { reason });
        };
        let mut right = names.len();
        while right - wrong > 1 {
            let middle = wrong + (right - wrong) / 2;
            match self.is_wrong(middle)? {
                Some(also) => (wrong, how) = (middle, also),
                None => right = middle,
            }
        }
        let point = names.get(wrong).cloned().unwrap_or_default();
        let (said, difference) = how;
        Ok(ErrorKind::GradientDisagrees { point, said, difference, agrees: names.get(right).cloned() })
    }

    /// The slope that the gradient of one point gives, and that which differences give, where these do not agree.
    fn is_wrong(&mut self, number: usize) -> Result<Option<(f64, f64)>> {
        let Judged::Wrong { difference, .. } = self.judge_all(&[number], self.options.seed)? else {
            return Ok(None);
        };
        let step = self.precision().step;
        let said = self.at(step, self.options.seed)?.1 / step;
        Ok(Some((said, difference)))
    }
}
