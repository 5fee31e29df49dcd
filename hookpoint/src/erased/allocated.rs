//! What an allocator that counts has counted.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};

/// Does anybody count?
static COUNTS: AtomicBool = AtomicBool::new(false);
static IN_USE: AtomicUsize = AtomicUsize::new(0);
/// The most that was in use while somebody measures.
static PEAK: AtomicUsize = AtomicUsize::new(0);
static MEASURING: AtomicBool = AtomicBool::new(false);
/// Whoever measures has this.
static MEASURER: Mutex<()> = Mutex::new(());

/// How many bytes the process has allocated and not given back; none without a [`CountingAllocator`](super::CountingAllocator).
pub fn in_use() -> Option<usize> {
    COUNTS.load(Relaxed).then(|| IN_USE.load(Relaxed))
}

/// So many bytes more are in use.
#[inline]
pub fn taken(bytes: usize) {
    let now = IN_USE.fetch_add(bytes, Relaxed) + bytes;
    if MEASURING.load(Relaxed) {
        PEAK.fetch_max(now, Relaxed);
    }
    if !COUNTS.load(Relaxed) {
        COUNTS.store(true, Relaxed);
    }
}

/// So many bytes fewer are.
#[inline]
pub fn given_back(bytes: usize) {
    IN_USE.fetch_sub(bytes, Relaxed);
}

/// Does something, and says how many bytes more were in use at its peak than when it began, by whatever thread. None
/// where nobody counts, or where another measurement is under way.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, Option<usize>) {
    let measurer = match MEASURER.try_lock() {
        Ok(guard) => Some(guard),
        // Whoever had it has panicked, and measures no more.
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    let (Some(before), Some(_guard)) = (in_use(), measurer) else { return (f(), None) };
    PEAK.store(before, Relaxed);
    let measuring = Measuring::begin();
    let result = f();
    drop(measuring);
    (result, Some(PEAK.load(Relaxed).saturating_sub(before)))
}

/// The peak is kept as long as this is there, and not after a panic.
struct Measuring;

impl Measuring {
    fn begin() -> Self {
        MEASURING.store(true, Relaxed);
        Self
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        MEASURING.store(false, Relaxed);
    }
}

/// Tests that count have this: one that allocates must not disturb another that measures.
#[cfg(test)]
pub static COUNTING: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_the_measurement() {
        let _alone = COUNTING.lock().unwrap();
        // From here on somebody counts.
        taken(0);
        let panicked = std::panic::catch_unwind(|| peak_of(|| panic!("on purpose")));
        assert!(panicked.is_err());
        // Before: every allocation of the rest of the program went on to keep the peak.
        assert!(!MEASURING.load(Relaxed));
        let (seven, peak) = peak_of(|| {
            assert!(MEASURING.load(Relaxed));
            taken(100);
            given_back(100);
            7
        });
        assert_eq!((seven, peak.is_some_and(|peak| peak >= 100)), (7, true));
        assert!(!MEASURING.load(Relaxed));
    }
}
