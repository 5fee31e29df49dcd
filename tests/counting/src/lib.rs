//! The system's allocator, counting: how often a thread asks for memory and how much it holds, and how much the process holds
//! and has held at most.
//!
//! A program says `#[global_allocator] static COUNTING: Counting = Counting;` and asks afterwards.

// A global allocator cannot be written without `unsafe`; this one only counts.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
    static BALANCE: Cell<isize> = const { Cell::new(0) };
}

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The allocator.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

/// How often this thread has asked for memory, or for more or less of what it has.
pub fn asked() -> usize {
    ASKED.get()
}

/// How many bytes this thread has taken more than it has given back; fewer, where it gives back what others took.
pub fn balance() -> isize {
    BALANCE.get()
}

/// How many bytes the process holds.
pub fn held() -> usize {
    HELD.load(Relaxed)
}

/// How many bytes more than before the process holds at most while something is done, by whatever thread. One may be
/// measured at a time.
pub fn most_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = held();
    MOST.store(before, Relaxed);
    let result = f();
    (result, MOST.load(Relaxed).saturating_sub(before))
}

fn take(bytes: usize) {
    // A thread that is being torn down is not counted.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
    let _ = BALANCE.try_with(|balance| balance.set(balance.get().wrapping_add_unsigned(bytes)));
    let held = HELD.fetch_add(bytes, Relaxed).saturating_add(bytes);
    MOST.fetch_max(held, Relaxed);
}

fn give_back(bytes: usize) {
    let _ = BALANCE.try_with(|balance| balance.set(balance.get().wrapping_sub_unsigned(bytes)));
    HELD.fetch_sub(bytes, Relaxed);
}

// SAFETY: everything is handed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: as the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        give_back(layout.size());
        // SAFETY: as the caller's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
