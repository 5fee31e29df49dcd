//! Does a slope agree with differences?
//!
//! Differences are taken with steps of several sizes. What curvature adds to one of them is known from the next
//! (Richardson), and how exact they are is measured where a step is so small that the slope cannot matter. Where the slope
//! does not agree, that is believed only if differences of several sizes agree with each other: then it is wrong. A kink
//! (a relu, a maximum) shows in differences to either side that stay apart however small the step is.

use candle_core::DType;

use crate::error::Result;

/// How far values are moved, first and at least, how far off a gradient may be, and how exact sums of values are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Precision {
    pub step: f64,
    pub least: f64,
    pub tolerance: f64,
    pub noise: f64,
}

impl Precision {
    pub fn of(dtype: DType) -> Self {
        match dtype {
            DType::F64 => Self { step: 1e-4, least: 1e-9, tolerance: 1e-4, noise: 1e-13 },
            DType::F32 => Self { step: 5e-3, least: 1e-6, tolerance: 2e-2, noise: 1e-6 },
            _ => Self { step: 5e-2, least: 1e-2, tolerance: 1e-1, noise: 1e-3 },
        }
    }

    /// The next that is less exact: what is rounded to half precision inside of a model changes in steps.
    pub fn coarser(self) -> Option<Self> {
        let all = [DType::F64, DType::F32, DType::F16].map(Self::of);
        let next = all.into_iter().find(|other| other.step > self.step)?;
        Some(Self { step: next.step, tolerance: next.tolerance, ..self })
    }

    /// That of two which is less exact.
    pub fn or_less(self, other: Self) -> Self {
        if self.noise < other.noise {
            other
        } else {
            self
        }
    }
}

/// What is measured.
pub(crate) struct Measured {
    /// The loss where nothing is moved.
    pub base: f64,
    /// How large the gradient is along a direction, whatever its angle with it.
    pub size: f64,
    /// How large the numbers are that the loss is a sum of.
    pub magnitude: f64,
    pub precision: Precision,
}

/// What came of it. `off` is by how much of its size the slope is off.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judged {
    Agrees {
        off: f64,
    },
    /// The loss has a kink here, and the slope is one of those that it has on either side, or between them.
    Kink,
    /// The loss has a kink here, and the slope is none of these.
    Beside {
        off: f64,
        difference: f64,
    },
    Wrong {
        off: f64,
        difference: f64,
    },
    /// Differences of several sizes do not agree with each other. `agrees` says whether rounding may be all that there is.
    Unsettled {
        noise: f64,
        agrees: bool,
        off: f64,
        difference: f64,
    },
}

/// By how much a step is smaller than the one before.
const FINER: f64 = 4.;

/// How many steps are tried, each smaller than the one before.
const ROUNDS: usize = 5;

/// How far the slope is off, for steps of one size.
#[derive(Clone, Copy)]
struct Off {
    right: f64,
    left: f64,
    difference: f64,
}

impl Off {
    fn center(self) -> f64 {
        (self.right + self.left) / 2.
    }

    fn kink(self) -> f64 {
        self.right - self.left
    }
}

/// Compares a slope with differences. `at` gives the loss where values are moved so far, and what the gradient says that it
/// changes by.
pub(crate) fn judge(measured: &Measured, at: &mut dyn FnMut(f64) -> Result<(f64, f64)>) -> Result<Judged> {
    let Measured { base, size, magnitude, precision } = *measured;
    let mut off = |step: f64| -> Result<Off> {
        let ((more, said_more), (less, said_less)) = (at(step)?, at(-step)?);
        Ok(Off {
            right: (more - base - said_more) / step,
            left: (base - less + said_less) / step,
            difference: (more - less) / (2. * step),
        })
    };
    let mut noise = precision.noise * magnitude;
    let mut step = 2. * precision.step;
    let mut before = off(step)?;
    let (mut against, mut kinks) = (Vec::new(), Vec::new());
    let mut is_staircase = false;
    let mut unsettled = Judged::Agrees { off: 0. };
    for round in 0..ROUNDS {
        step /= FINER;
        let now = off(step)?;
        let squared = FINER * FINER;
        let error = (squared * now.center() - before.center()) / (squared - 1.);
        let difference = (squared * now.difference - before.difference) / (squared - 1.);
        let relative = error.abs() / size.max(f64::MIN_POSITIVE);
        if round == 0 {
            let fog = noise / step;
            if error.abs() <= precision.tolerance * size + fog {
                return Ok(Judged::Agrees { off: if error.abs() <= fog { 0. } else { relative } });
            }
            // So small a step that what is left of it is rounding.
            let left = off(precision.least)?;
            let found = left.right.abs().max(left.left.abs()) * precision.least;
            noise = noise.max(found);
        }
        let fog = noise / step;
        let agrees = error.abs() <= precision.tolerance * size + fog;
        if agrees && fog <= 0.25 * size {
            return Ok(Judged::Agrees { off: if error.abs() <= fog { 0. } else { relative } });
        }
        let noise_part = fog / size.max(f64::MIN_POSITIVE);
        unsettled = Judged::Unsettled { noise: noise_part, agrees, off: relative, difference };
        let is_settled = (now.center() - before.center()).abs() <= 0.25 * now.center().abs();
        let is_same = |now: f64, before: f64, kink: f64| (now - before).abs() <= 0.25 * kink.abs();
        let stays = now.kink().abs() > precision.tolerance * size + 2. * fog
            && is_same(now.right, before.right, now.kink())
            && is_same(now.left, before.left, now.kink());
        let is_off = error.abs() > precision.tolerance * size + 2. * fog;
        if stays {
            kinks.push(now);
        } else if is_off && is_settled {
            against.push((relative, difference));
        } else {
            against.clear();
        }
        // No more change at all, where a longer step had some: a staircase.
        is_staircase |= now.difference == 0. && before.difference != 0.;
        let next = FINER * fog;
        let drowns = next > 0.25 * size.max(error.abs()) || step / FINER < precision.least;
        if kinks.len() == 2 || against.len() == 2 || drowns {
            break;
        }
        before = now;
    }
    if let [.., last] = kinks[..] {
        if kinks.len() == 2 || against.is_empty() {
            let margin = precision.tolerance * size + noise / step;
            let (low, high) = (last.right.min(last.left), last.right.max(last.left));
            return Ok(match low <= margin && high >= -margin {
                true => Judged::Kink,
                false => {
                    Judged::Beside { off: low.abs().min(high.abs()) / size, difference: last.difference }
                }
            });
        }
    }
    match against[..] {
        _ if is_staircase => Ok(unsettled),
        // Once will do where it is plain and the next step would drown.
        [(off, difference)] if off * size > 8. * noise / step => Ok(Judged::Wrong { off, difference }),
        [_, (off, difference)] => Ok(Judged::Wrong { off, difference }),
        _ => Ok(unsettled),
    }
}
