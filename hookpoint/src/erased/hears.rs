//! What instrumented code on a thread is to tell, and whether it is to tell anything: all that it looks at when idle.

use std::cell::Cell;

/// Calls of modules and of annotated methods: whenever there is a run.
pub const CALLS: u8 = 1;
/// What is bound to names in the method that is being executed.
pub const VALUES: u8 = 2;
/// Operations on tensors, which may use a parameter.
pub const OPERATIONS: u8 = 4;

thread_local! {
    /// 0 where there is no run.
    static HEARS: Cell<u8> = const { Cell::new(0) };
    static PAUSE: Cell<Pause> = const { Cell::new(Pause::NONE) };
}

/// How many pauses there are around what a thread does now: what was current before them is not, in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pause(u32);

impl Pause {
    pub const NONE: Self = Self(0);

    #[inline]
    pub fn now() -> Self {
        PAUSE.with(Cell::get)
    }
}

/// Is somebody listening on this thread? One load and one branch.
#[inline(always)]
pub fn active() -> bool {
    HEARS.with(|hears| hears.get() != 0)
}

/// Does somebody want the values that are bound in the method that is being executed?
#[inline(always)]
pub fn values_wanted() -> bool {
    HEARS.with(|hears| hears.get() & VALUES != 0)
}

/// Does somebody want to know of operations on tensors?
#[inline(always)]
pub fn operations_wanted() -> bool {
    HEARS.with(|hears| hears.get() & OPERATIONS != 0)
}

/// Says whether the values of the method that is now being executed are wanted.
pub(crate) fn listen_to_values(wanted: bool) {
    let values = if wanted { VALUES } else { 0 };
    HEARS.with(|hears| hears.set(hears.get() & !VALUES | values));
}

/// Instrumented code tells nothing until that is [put back](resume); gives what it was to tell.
pub(crate) fn suspend() -> u8 {
    HEARS.with(|hears| hears.replace(0))
}

/// As it was before [`suspend`].
pub(crate) fn resume(hears: u8) {
    let _ = HEARS.try_with(|cell| cell.set(hears));
}

/// Puts back what there was before, on return, error and panic alike.
struct Back {
    hears: u8,
    pause: Pause,
}

impl Drop for Back {
    fn drop(&mut self) {
        // A thread that is being torn down tells nothing.
        let _ = HEARS.try_with(|hears| hears.set(self.hears));
        let _ = PAUSE.try_with(|pause| pause.set(self.pause));
    }
}

/// Runs `f` in a pause: nothing that was current before is current in it, and instrumented code is to tell this.
#[inline]
pub(crate) fn hearing<T>(hears: u8, f: impl FnOnce() -> T) -> T {
    let around = Pause::now();
    let _back = Back {
        hears: HEARS.with(|cell| cell.replace(hears)),
        pause: PAUSE.with(|pause| pause.replace(Pause(around.0 + 1))),
    };
    f()
}

/// Runs `f` with no current run and no backward pass: what a hook does is not hooked.
#[inline]
pub(crate) fn paused<T>(f: impl FnOnce() -> T) -> T {
    hearing(0, f)
}
