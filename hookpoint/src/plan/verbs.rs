//! The verbs of a plan: one way each to run the model, whichever way the plan holds it.

use std::rc::Rc;

use super::finish::{collected, ended_run, execute, finished_run};
use super::prepared::{Prepared, Recorded};
use super::{check_wants_no_gradient, Plan, Run, Scan};
use crate::access::{Access, Lent};
use crate::cache::ActivationCache;
use crate::error::{BoxedError, Error, ErrorKind, Result};
use crate::recording::Recording;
use crate::run::{all_change, Action, Audience, Finished, Keeps, Listens, Log, Nudge, Order, Request, Tape};
use crate::tree::{AutoHook, Tree};

/// A run that is over, and what it was asked.
pub(super) type Ran<'a, T> = (Rc<Prepared<'a>>, (Option<T>, Finished));

/// # Runs
///
/// The closure is given `&M`; that of a plan that [`plan_mut`](crate::Hooked::plan_mut) has made is given `&mut M`.
impl<'a, M: AutoHook, H: Access<M>> Plan<'a, M, H> {
    /// Runs the model with everything that was asked for.
    pub fn run<T, E, F>(&self, f: F) -> Result<Run<T>>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "run")?;
        self.run_as(Listens::NOBODY, f)
    }

    /// Runs the model until the last wanted value has been cached, and gives the cache alone.
    ///
    /// The run is ended by an error that passes through the forward code, so that code must not swallow
    /// errors. A request without a call number counts its first call; ask for `path#2` to wait for the
    /// third.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let finished = std::cell::Cell::new(false);
    /// let cache = model.plan().cache("up")?.collect(|m| {
    ///     let output = m.forward(&x)?;
    ///     finished.set(true);
    ///     Ok::<_, hookpoint::Error>(output)
    /// })?;
    /// assert_eq!(cache["up"].to_vec2::<f32>()?, [[1., -2.]]);
    /// assert!(!finished.get());
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn collect<T, E, F>(&self, f: F) -> Result<ActivationCache>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "collect")?;
        check_collects(&self.requests)?;
        let (prepared, finished) = self.go(Listens::UNTIL_COLLECTED, f)?;
        collected(&self.asked(&prepared), self.allows.unreached, finished)
    }

    /// Runs the model until the last wanted value has been cached, as [`collect`](Self::collect) does, and gives all
    /// that came of it. The output is none where the run was ended before the closure had one.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let five = Tensor::new(&[5f32], &Device::Cpu)?;
    /// let plan = model.plan().patch("up[:, 0]", &five)?.cache(":hidden")?;
    /// let run = plan.run_until_cached(|m| m.forward(&x))?;
    /// assert!(run.output.is_none());
    /// assert_eq!(run.cache[":hidden"].to_vec2::<f32>()?, [[5., 0.]]);
    /// assert_eq!(run.unreached().count(), 0);
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn run_until_cached<T, E, F>(&self, f: F) -> Result<Run<Option<T>>>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "run_until_cached")?;
        check_collects(&self.requests)?;
        let (prepared, finished) = self.go(Listens::UNTIL_COLLECTED, f)?;
        ended_run(&self.asked(&prepared), self.allows.unreached, finished)
    }

    /// Runs the model once with everything that was asked for, and notes every point that is reached, values inside
    /// forward code included, with shapes and dtypes.
    ///
    /// ```
    #[doc = include_str!("../two_layers.txt")]
    /// // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
    /// let patch = Tensor::zeros((1, 2), DType::F32, &Device::Cpu)?;
    /// let scan = model.plan().patch(":hidden", &patch)?.scan(|m| m.forward(&x))?;
    /// assert_eq!(scan.output.to_vec2::<f32>()?, [[0., 0.]]);
    /// assert_eq!(scan.dict.get("down:in").and_then(|entry| entry.shape()), Some([1, 2].as_slice()));
    /// # Ok::<(), hookpoint::Error>(())
    /// ```
    pub fn scan<T, E, F>(&self, f: F) -> Result<Scan<T>>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "scan")?;
        self.scan_as(Listens::SCAN, f)
    }

    /// Runs the model twice with one input, and notes in which order everything happens and what the modules
    /// give, so that [plans](Plan::replay) with the same input need not do all of it again.
    ///
    /// The first run is watched, to learn the order; the second is not, so that its values, and its output,
    /// are those of an ordinary run. A closure that is given `&mut M` must begin anew each time, with an empty cache of
    /// keys and values if there is one.
    pub fn record<T, E, F>(&self, f: F) -> Result<(T, Recording)>
    where
        F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "record")?;
        let (run, recording) = self.recorded(Listens::NOBODY, f)?;
        let output = run.output.ok_or_else(|| Error::from(ErrorKind::Stopped))?;
        Ok((output, recording))
    }

    /// As [`record`](Self::record), while the second run ends when the last wanted value has been cached, and is given,
    /// too. The recording knows when everything happens, and what is given up to there.
    pub fn record_until_cached<T, E, F>(&self, f: F) -> Result<(Run<Option<T>>, Recording)>
    where
        F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "record_until_cached")?;
        check_collects(&self.requests)?;
        self.recorded(Listens::UNTIL_COLLECTED, f)
    }

    /// Records the model; the second run is made in this way.
    fn recorded<T, E: Into<BoxedError>>(
        &self,
        listens: Listens,
        mut f: impl for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<T, E>,
    ) -> Result<(Run<Option<T>>, Recording)> {
        if matches!(self.recording, Recorded::Replayed(_)) {
            return Err(ErrorKind::RecordingReplay.into());
        }
        let buffers = || H::lend(&self.hooked, |hooked| Ok(Tree::buffers_of(hooked.model())));
        let before = buffers()?;
        let (first, _, times) = self.noted(Listens::SCAN, Keeps::Prints, &mut f)?;
        let (_, run, mut values) = self.noted(listens, Keeps::Values, &mut f)?;
        if before.were_written(&buffers()?) {
            // Somebody writes to tensors of the model, and nobody saw who.
            values.has_effects();
        }
        let version = H::lend(&self.hooked, |hooked| Ok(hooked.version()))?;
        let mut recording = Recording::new(first.tree.clone(), version, times, values);
        let weights = H::lend(&self.hooked, |hooked| Ok(Tree::weights_of(hooked.model())))?;
        recording.note_weights(weights)?;
        Ok((run, recording))
    }

    /// Runs the model and takes note of its calls.
    fn noted<T, E: Into<BoxedError>>(
        &self,
        listens: Listens,
        keeps: Keeps,
        f: impl for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
    ) -> Result<(Rc<Prepared<'a>>, Run<Option<T>>, Log)> {
        let (prepared, (output, mut finished)) = self.go_with(listens, |_| Tape::noting(keeps), f)?;
        let log = finished.log.take().unwrap_or_else(|| Log::new(keeps));
        let run = ended_run(&self.asked(&prepared), self.allows.unreached, (output, finished))?;
        Ok((prepared, run, log))
    }

    /// Scans in a way of running.
    pub(crate) fn scan_as<T, E, F>(&self, listens: Listens, f: F) -> Result<Scan<T>>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let (prepared, finished) = self.go(listens, f)?;
        Scan::new(&self.asked(&prepared), self.allows.unreached, finished)
    }

    /// Runs the model in a way that gives what [`run`](Self::run) gives.
    pub(crate) fn run_as<T, E, F>(&self, listens: Listens, f: F) -> Result<Run<T>>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let (prepared, finished) = self.go(listens, f)?;
        finished_run(&self.asked(&prepared), self.allows.unreached, finished)
    }

    pub(super) fn go<T, E: Into<BoxedError>>(
        &self,
        listens: Listens,
        f: impl for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
    ) -> Result<Ran<'a, T>> {
        self.check_recording()?;
        let Recorded::Repeated(recording, copies) = &self.recording else {
            let ran = self.go_with(listens, |asked| asked.replaying(), f)?;
            // The closure may have changed what the answers were computed with.
            self.check_recording()?;
            return Ok(ran);
        };
        let (prepared, (output, mut finished)) = self.go_with(listens, |_| Tape::noting(Keeps::Shapes), f)?;
        recording.compare_rows(&finished.log.take().unwrap_or_default(), *copies);
        Ok((prepared, (output, finished)))
    }

    /// Runs the model for a certificate of gradients, with the listeners of the user or without.
    pub(super) fn go_nudged<T, E: Into<BoxedError>>(
        &self,
        nudge: &Rc<Nudge>,
        is_heard: bool,
        f: impl for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
    ) -> Result<Ran<'a, T>> {
        self.check_recording()?;
        let prepared = self.prepared()?;
        let nobody = Audience::default();
        let finished = H::lend(&self.hooked, |hooked| {
            let asked = self.asked(&prepared);
            let audience = if is_heard { asked.audience } else { &nobody };
            let asked = Order { nudge: Some(nudge), audience, ..asked };
            let (model, learned) = hooked.parts();
            execute(&asked, Listens::GRADIENT, learned, asked.replaying(), || H::run(model, f))
        })?;
        Ok((prepared, finished))
    }

    fn go_with<T, E: Into<BoxedError>>(
        &self,
        listens: Listens,
        tape: impl for<'p> FnOnce(&crate::run::Order<'p>) -> Tape<'p>,
        f: impl for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
    ) -> Result<Ran<'a, T>> {
        H::lend(&self.hooked, |hooked| {
            hooked.begin();
            Ok(())
        })?;
        let prepared = self.prepared()?;
        let finished = H::lend(&self.hooked, |hooked| {
            let asked = self.asked(&prepared);
            let buffers = asked.dispatch.is_curious().then(|| Tree::buffers_of(hooked.model()));
            let (model, learned) = hooked.parts();
            let finished = execute(&asked, listens, learned, tape(&asked), || H::run(model, f));
            if buffers.is_some_and(|before| before.were_written(&Tree::buffers_of(hooked.model()))) {
                all_change(&prepared.tree, hooked.parts().1);
            }
            finished
        })?;
        Ok((prepared, finished))
    }
}

fn check_collects(requests: &[Request<'_>]) -> Result<()> {
    if requests.iter().any(|request| matches!(request.action, Action::Cache(_))) {
        return Ok(());
    }
    Err(ErrorKind::NothingToCollect.into())
}
