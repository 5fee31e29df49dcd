//! Files that are damaged in any way: bytes changed, cut out, put in, doubled. There is an error or a model, never a
//! panic, and never more memory than such small files need.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unsafe_code)]

/// What may happen to bytes, and to the entries of a config.
mod mutation;

/// GGUF files.
mod gguf;

/// Folders with a config and safetensors.
mod folders;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// The files have some thousand bytes, and so have the models.
const MOST: usize = 8 << 20;

struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(IN_USE.fetch_add(layout.size(), Relaxed).saturating_add(layout.size()), Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Does something, and makes sure that it does not take much memory. One at a time, so that nothing else is counted
/// but what the tests do around it, which is little.
fn in_little_memory<T>(f: impl FnOnce() -> T) -> T {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that has failed is over.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = IN_USE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = f();
    let peak = PEAK.load(Relaxed).saturating_sub(before);
    assert!(peak < MOST, "{peak} bytes");
    result
}

/// Memory that somebody asks for is seen, so that the other tests mean something.
#[test]
fn much_memory_is_noticed() {
    let much = || in_little_memory(|| Vec::<u8>::with_capacity(MOST));
    assert!(std::panic::catch_unwind(much).is_err());
}
