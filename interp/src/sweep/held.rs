//! How a sweep runs its model, whichever way it holds it.

use std::marker::PhantomData;
use std::rc::Rc;

use candle_core::Tensor;
use hookpoint::access::Again;
use hookpoint::{
    Access, ActivationCache, AutoHook, BoxedError, Error, HookCtx, Lent, Pattern, Plan, Recording, Result,
};

/// A hook of a sweep.
pub(super) type HookFn<'p> = Rc<dyn Fn(&HookCtx<'_>, &Tensor) -> Result<Option<Tensor>> + 'p>;

/// What a run of a sweep is asked.
pub(super) enum Ask<'p> {
    Cache(Pattern),
    Patch(Pattern, Tensor),
    Hook(Pattern, HookFn<'p>),
}

/// How far a run goes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Until {
    End,
    /// Everything that is cached is there.
    Cached,
}

/// What a run has to do with the recording.
#[derive(Clone, Copy)]
pub(super) enum Recorded<'r> {
    Nothing,
    /// What it answers is not done again, for so many copies of the input.
    Replayed(&'r Recording, usize),
    /// Which values have rows is noted, with so many copies of the input.
    Noted(&'r Recording, usize),
}

/// What came of a run.
pub(super) struct Ran {
    /// None where it ended early.
    pub output: Option<Tensor>,
    pub cache: ActivationCache,
    /// How many calls were answered.
    pub replayed: usize,
}

/// A model with the closure that runs it, of whatever types.
pub(super) trait Runs<X> {
    /// Records the model until these points are reached, or to its end if there are none.
    fn record(&mut self, until: &[Pattern], input: &X) -> Result<(Ran, Recording)>;

    fn run(&mut self, asks: Vec<Ask<'_>>, until: Until, recorded: Recorded<'_>, input: &X) -> Result<Ran>;
}

/// A model, and how it is run.
pub(super) struct Subject<M, H, F> {
    held: H,
    run: F,
    of: PhantomData<fn() -> M>,
}

impl<M, H, F> Subject<M, H, F> {
    pub fn new(held: H, run: F) -> Self {
        Self { held, run, of: PhantomData }
    }
}

impl<M: AutoHook, X, E: Into<BoxedError>, H, F> Runs<X> for Subject<M, H, F>
where
    H: Access<M>,
    F: for<'m> Fn(Lent<'m, M, H>, &X) -> Result<Tensor, E>,
{
    fn record(&mut self, until: &[Pattern], input: &X) -> Result<(Ran, Recording)> {
        let run = |m: Lent<'_, M, H>| (self.run)(m, input).map_err(Error::other);
        let plan = Plan::of(Again(&mut self.held));
        if until.is_empty() {
            let (output, recording) = plan.record(run)?;
            let ran = Ran { output: Some(output), cache: ActivationCache::new(), replayed: 0 };
            return Ok((ran, recording));
        }
        let (ran, recording) = plan.cache(until)?.record_until_cached(run)?;
        Ok((Ran { output: ran.output, cache: ran.cache, replayed: 0 }, recording))
    }

    fn run(&mut self, asks: Vec<Ask<'_>>, until: Until, recorded: Recorded<'_>, input: &X) -> Result<Ran> {
        let mut plan = Plan::of(Again(&mut self.held));
        for ask in asks {
            plan = match ask {
                Ask::Cache(pattern) => plan.cache(pattern)?,
                Ask::Patch(pattern, tensor) => plan.patch(pattern, &tensor)?,
                Ask::Hook(pattern, hook) => plan.hook(pattern, move |ctx, value| hook(ctx, value))?,
            };
        }
        plan = match recorded {
            Recorded::Nothing => plan,
            Recorded::Replayed(recording, copies) => plan.replay(&recording.repeated(copies))?,
            Recorded::Noted(recording, copies) => plan.note_rows(recording, copies)?,
        };
        let run = |m: Lent<'_, M, H>| (self.run)(m, input).map_err(Error::other);
        match until {
            Until::Cached => {
                let ran = plan.run_until_cached(run)?;
                Ok(Ran { replayed: ran.replayed().count(), output: ran.output, cache: ran.cache })
            }
            Until::End => {
                let ran = plan.run(run)?;
                Ok(Ran { replayed: ran.replayed().count(), output: Some(ran.output), cache: ran.cache })
            }
        }
    }
}

/// Does the pattern select anything in this model?
pub(super) fn check_selects<M: AutoHook, H: Access<M>>(model: &mut H, pattern: &Pattern) -> Result<()> {
    Plan::of(Again(model)).cache(pattern.without_index().without_call()).map(drop)
}
