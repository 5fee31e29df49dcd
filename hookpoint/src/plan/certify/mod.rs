//! Gradients that are compared with how the loss really changes, before they are given out.
//!
//! `slope` compares one slope with differences. Here is what is moved: the values at all points whose gradients are wanted,
//! all at once, each in a direction of its own. By how much the loss changes must be the sum of what their gradients
//! say, so a few runs certify any number of points. Only where that is not so, points are moved one by one, to find
//! the one nearest to the loss where the gradient is wrong.

mod search;
mod slope;

use std::fmt;
use std::rc::Rc;

use candle_core::{DType, Tensor};

use super::{GradRun, Plan};
use crate::access::{Access, Again, Lent};
use crate::cache::ActivationCache;
use crate::error::{BoxedError, Error, ErrorKind, Result};
use crate::run::{Allows, Listens, Nudge};
use crate::tree::AutoHook;
use search::{Compared, Options, Session};
pub(crate) use slope::{judge, Judged, Measured, Precision};

/// # Certified gradients
impl<'a, M: AutoHook, H: Access<M>> Plan<'a, M, H> {
    /// Has [`backward`](Certified::backward) compare the gradients with how the loss changes, before it gives them out.
    ///
    /// The values at the points whose gradients are wanted are moved, all at once and along random directions, and the
    /// loss must change as the gradients say, or the run fails with [`GradientDisagrees`](ErrorKind::GradientDisagrees),
    /// which names the point nearest to the loss where they do not. A plan that wants gradients at no point is
    /// certified at all points that its run reaches: so a training step with variables alone is, too.
    ///
    /// It takes five forward passes with one direction: [`Certificate::runs`] has how many there were. Where gradients
    /// disagree, finding the point takes some dozens. The closure is called for each of them, and must compute the
    /// same each time: hooks are called again, listeners are not.
    ///
    /// What is found: a gradient that is off by more than the [tolerance](Certified::tolerance), in units of its length. A
    /// wrong gradient in a few elements out of thousands is shorter than that, and is not. Nor can a certificate for
    /// one input speak for others. At a kink (a relu at 0, a tie between maxima) every slope between those on either
    /// side is right; the certificate [says](Certificate::kinks) that it met some. Not found yet: what the closure itself
    /// detaches of the model's output, as in `(&y + y.detach())?`.
    ///
    /// ```
    #[doc = include_str!("../../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let run = model.plan().cache_grad(["up", ":hidden"])?.certify().backward(|m| m.forward(&x)?.sum_all())?;
    /// let certificate = run.certificate().unwrap();
    /// assert_eq!(certificate.points().collect::<Vec<_>>(), ["up#0", ":hidden#0"]);
    /// assert!(certificate.off() < 0.02);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn certify(self) -> Certified<'a, M, H> {
        Certified { plan: self, seed: 1, directions: 1, tolerance: None }
    }
}

/// A plan whose gradients are compared with differences: see [`Plan::certify`].
#[must_use = "nothing is run before `backward`"]
pub struct Certified<'a, M, H = &'a crate::Hooked<M>> {
    plan: Plan<'a, M, H>,
    seed: u64,
    directions: u64,
    tolerance: Option<f64>,
}

/// How the gradients of a run were compared with differences.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Certificate {
    points: Vec<String>,
    kinks: usize,
    off: f64,
    tolerance: f64,
    runs: usize,
}

impl Certificate {
    /// The points, with the number of the call.
    pub fn points(&self) -> impl Iterator<Item = &str> {
        self.points.iter().map(String::as_str)
    }

    /// How far off the gradients were, in units of their length: 0 where nothing but rounding was seen.
    pub fn off(&self) -> f64 {
        self.off
    }

    /// How far off they might have been.
    pub fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// Along how many directions the loss has a kink, so that its gradient is one of several.
    pub fn kinks(&self) -> usize {
        self.kinks
    }

    /// How often the model was run for it, besides the run that it certifies.
    pub fn runs(&self) -> usize {
        self.runs
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (points, runs) = (self.points.len(), self.runs);
        write!(f, "gradients at {points} points agree with differences to {:.1e} of their length", self.off)?;
        write!(f, " ({:.0e} allowed, {runs} runs", self.tolerance)?;
        match self.kinks {
            0 => write!(f, ")"),
            kinks => write!(f, ", a kink along {kinks} directions)"),
        }
    }
}

impl<M: AutoHook, H: Access<M>> Certified<'_, M, H> {
    /// Which random directions; the same seed gives the same.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Along how many directions the loss is compared, one after the other; 1 at least. An error in few places may be
    /// at right angles to one of them.
    pub fn directions(mut self, directions: usize) -> Self {
        self.directions = directions.max(1) as u64;
        self
    }

    /// How far off gradients may be, in units of their length. Without this 1e-4 where all is `f64`, 0.02 in `f32`, and 0.1
    /// in half precision: what the rounding of a forward pass leaves to be seen.
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = Some(tolerance);
        self
    }

    /// As [`Plan::backward`].
    pub fn backward<E, F>(&self, f: F) -> Result<GradRun<Tensor>>
    where
        F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<Tensor, E>,
        E: Into<BoxedError>,
    {
        self.differentiate(f, |output, _| Ok::<_, E>(output.clone()))
    }

    /// As [`Plan::differentiate`].
    pub fn differentiate<T, E, F, L>(&self, mut f: F, mut loss: L) -> Result<GradRun<T>>
    where
        F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<T, E>,
        L: FnMut(&T, &ActivationCache) -> std::result::Result<Tensor, E>,
        E: Into<BoxedError>,
    {
        let nudge = Rc::new(Nudge::default());
        nudge.note();
        let (mut run, changed) = self.plan.differentiate_noted(&nudge, true, &mut f, &mut loss)?;
        if let Some(point) = changed {
            let reason = format!(
                "a hook changes the gradient at `{point}`, so that it is no longer that of the loss\n  certify the plan \
                 without `hook_grad`, and run it with the hook then"
            );
            return Err(ErrorKind::NotCertified { reason }.into());
        }
        let dtype = run.loss.dtype();
        let value: f64 = run.loss.to_dtype(DType::F64)?.flatten_all()?.get(0)?.to_scalar()?;
        let options = self.options(dtype);
        let wants_none = nudge.seen().is_empty();
        let compared = match wants_none {
            true => self.everywhere(&options, &mut f, &mut loss, &mut |session| session.compare())?,
            false => {
                let mut again = |_: bool| self.plan.loss_moved(&nudge, &mut f, &mut loss);
                let mut session = Session::new(nudge.clone(), &mut again, options);
                session.begin(value)?;
                session.compare()?
            }
        };
        match compared {
            Compared::Agree(certificate) => run.certificate = Some(certificate),
            Compared::Differ(culprits) => {
                let search = |session: &mut Session<'_>| session.nearest(&culprits);
                return Err(self
                    .everywhere(&options, &mut f, &mut loss, &mut |session| search(session))?
                    .into());
            }
        }
        Ok(run)
    }

    /// A certificate for all points, without a run of its own.
    pub(crate) fn alone<E, F>(&self, mut f: F) -> Result<Certificate>
    where
        F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<Tensor, E>,
        E: Into<BoxedError>,
    {
        let mut own = |output: &Tensor, _: &ActivationCache| Ok::<_, E>(output.clone());
        let options = self.options(DType::F64);
        match self.everywhere(&options, &mut f, &mut own, &mut |session| session.compare())? {
            Compared::Agree(certificate) => Ok(certificate),
            Compared::Differ(culprits) => {
                let search = &mut |session: &mut Session<'_>| session.nearest(&culprits);
                Err(self.everywhere(&options, &mut f, &mut own, search)?.into())
            }
        }
    }

    fn options(&self, loss: DType) -> Options {
        let (seed, directions, tolerance) = (self.seed, self.directions, self.tolerance);
        Options { seed, directions, tolerance, loss }
    }

    /// Makes the plan's runs with gradients at all points that are reached and can be replaced.
    fn everywhere<T, E, F, L, R>(
        &self,
        options: &Options,
        f: &mut F,
        loss: &mut L,
        then: &mut dyn FnMut(&mut Session<'_>) -> Result<R>,
    ) -> Result<R>
    where
        F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<T, E>,
        L: FnMut(&T, &ActivationCache) -> std::result::Result<Tensor, E>,
        E: Into<BoxedError>,
    {
        let mut hooked = self.plan.hooked.try_borrow_mut().map_err(|_| Error::from(ErrorKind::PlanBusy))?;
        let dict = self.plan.beside(&mut *hooked).scan_as(Listens::REHEARSAL, |model| f(model))?.dict;
        let floats = dict.iter().filter(|entry| entry.dtype().is_some_and(|dtype| dtype.is_float()));
        let calls =
            floats.flat_map(|entry| (0..entry.calls()).map(|call| format!("{}#{call}", entry.name())));
        let mut names: Vec<String> = calls.collect();
        loop {
            let plan = self.plan.beside(&mut *hooked).cache_grad(&names)?;
            let nudge = Rc::new(Nudge::default());
            let mut again = |notes: bool| match notes {
                true => {
                    let noted = plan.differentiate_noted(
                        &nudge,
                        false,
                        |model| f(model),
                        |out, cache| loss(out, cache),
                    );
                    Ok(noted?.0.loss.to_dtype(DType::F64)?.flatten_all()?.get(0)?.to_scalar()?)
                }
                false => plan.loss_moved(&nudge, |model| f(model), |out, cache| loss(out, cache)),
            };
            nudge.note();
            match again(true) {
                Ok(value) => {
                    let mut session = Session::new(nudge.clone(), &mut again, *options);
                    session.begin(value)?;
                    return then(&mut session);
                }
                // The error says which one it is. There are as many rounds as there are such points.
                Err(error) => match error.kind() {
                    ErrorKind::NotReplaceable { point, .. } => {
                        let before = names.len();
                        names.retain(|name| name.rsplit_once('#').is_none_or(|(own, _)| own != point));
                        if names.len() == before {
                            return Err(error);
                        }
                    }
                    _ => return Err(error),
                },
            }
        }
    }
}

impl<M: AutoHook, H: Access<M>> Plan<'_, M, H> {
    /// A plan that computes what this one computes, and wants no gradients.
    fn beside<'p>(&'p self, hooked: &'p mut H) -> Plan<'p, M, Again<'p, H>> {
        let mut plan = Plan::of(Again(hooked));
        let own = self.requests.iter().filter(|request| !request.action.wants_gradient());
        plan.requests = own.cloned().collect();
        plan.allows = Allows { unreached: true, barriers: true };
        plan
    }
}
