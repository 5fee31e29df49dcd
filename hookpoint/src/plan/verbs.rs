//! The verbs of a plan: one way each to run the model, whichever way the plan holds it.

use std::rc::Rc;

use super::finish::{collected, execute, finished_run, taped, Taped, Way};
use super::prepared::Prepared;
use super::{check_wants_no_gradient, Plan, Run, Scan};
use crate::access::{Access, Lent};
use crate::cache::ActivationCache;
use crate::error::{BoxedError, ErrorKind, Result};
use crate::recording::Recording;
use crate::run::{Action, Finished, Keeps, Listens, Log, Request, Tape};
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
    pub fn record<T, E, F>(&self, mut f: F) -> Result<(T, Recording)>
    where
        F: for<'m> FnMut(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        check_wants_no_gradient(&self.requests, "record")?;
        if self.replays.is_some() {
            return Err(ErrorKind::RecordingReplay.into());
        }
        let (first, _, times) = self.noted(Listens::SCAN, Keeps::Shapes, &mut f)?;
        let (_, output, values) = self.noted(Listens::NOBODY, Keeps::Values, &mut f)?;
        let mut recording = Recording::new(first.tree.clone(), times, values);
        let weights = H::lend(&self.hooked, |hooked| Ok(Tree::weights_of(hooked.model())))?;
        recording.note_weights(weights)?;
        Ok((output, recording))
    }

    /// Runs the model and takes note of its calls.
    fn noted<T, E: Into<BoxedError>>(
        &self,
        listens: Listens,
        keeps: Keeps,
        f: impl for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
    ) -> Result<(Rc<Prepared<'a>>, T, Log)> {
        let (prepared, (output, mut finished)) = self.go_with(listens, |_| Tape::noting(keeps), f)?;
        let log = finished.log.take().unwrap_or_else(|| Log::new(keeps));
        let run = finished_run(&self.asked(&prepared), self.allows.unreached, (output, finished))?;
        Ok((prepared, run.output, log))
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

    /// Runs the plan in one of the ways of a sweep.
    pub(crate) fn run_taped<T, E, F>(&self, way: Way, f: F) -> Result<Taped<T>>
    where
        F: for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
        E: Into<BoxedError>,
    {
        let (prepared, finished) = self.go_with(way.listens, |asked| way.tape(asked), f)?;
        taped(&self.asked(&prepared), self.allows.unreached, finished)
    }

    pub(super) fn go<T, E: Into<BoxedError>>(
        &self,
        listens: Listens,
        f: impl for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
    ) -> Result<Ran<'a, T>> {
        self.check_recording()?;
        self.go_with(listens, |asked| asked.replaying(), f)
    }

    fn go_with<T, E: Into<BoxedError>>(
        &self,
        listens: Listens,
        tape: impl for<'p> FnOnce(&crate::run::Order<'p>) -> Tape<'p>,
        f: impl for<'m> FnOnce(Lent<'m, M, H>) -> std::result::Result<T, E>,
    ) -> Result<Ran<'a, T>> {
        let prepared = self.prepared()?;
        let finished = H::lend(&self.hooked, |hooked| {
            let asked = self.asked(&prepared);
            let (model, learned) = hooked.parts();
            execute(&asked, listens, learned, tape(&asked), || H::run(model, f))
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
