//! The run that is current on a thread, and its backward pass.

use super::{BackwardPass, RunState};
use crate::erased::{hearing, paused, Borrows, Current};

struct OfRun;

impl Borrows for OfRun {
    type With<'a> = RunState<'a>;
}

struct OfPass;

impl Borrows for OfPass {
    type With<'a> = BackwardPass<'a>;
}

thread_local! {
    static RUN: Current<OfRun> = const { Current::new() };
    static PASS: Current<OfPass> = const { Current::new() };
}

/// Runs `f` with `state` as the current run of this thread.
pub(crate) fn with_run<T>(state: &RunState<'_>, f: impl FnOnce() -> T) -> T {
    hearing(state.hears(), || Current::with(&RUN, state, f))
}

/// Gives the current run to `f`, if there is one.
#[inline]
pub(crate) fn current<T>(f: impl FnOnce(&RunState<'_>) -> T) -> Option<T> {
    Current::get(&RUN, f)
}

/// Runs `f`, which differentiates, with `pass` as the current backward pass of this thread, and no
/// current run.
pub(crate) fn with_pass<T>(pass: &BackwardPass<'_>, f: impl FnOnce() -> T) -> T {
    paused(|| Current::with(&PASS, pass, f))
}

/// Gives the current backward pass to `f`, if there is one.
pub(crate) fn current_pass<T>(f: impl FnOnce(&BackwardPass<'_>) -> T) -> Option<T> {
    Current::get(&PASS, f)
}
