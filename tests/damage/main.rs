//! Files that are damaged in any way: bytes changed, cut out, put in, doubled. There is an error or a model, never a
//! panic, and never more memory than such small files need.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// What may happen to bytes, and to the entries of a config.
mod mutation;

/// GGUF files.
mod gguf;

/// Folders with a config and safetensors.
mod folders;

/// Saved caches, stores of activations, tokenizers.
mod others;

use std::sync::{Mutex, PoisonError};

use hookpoint_counting::{most_of, Counting};

/// The files have some thousand bytes, and so have the models.
const MOST: usize = 8 << 20;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Does something, and makes sure that it does not take much memory. One at a time, so that nothing else is counted
/// but what the tests do around it, which is little.
fn in_little_memory<T>(f: impl FnOnce() -> T) -> T {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that has failed is over.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (result, peak) = most_of(f);
    assert!(peak < MOST, "{peak} bytes");
    result
}

/// Memory that somebody asks for is seen, so that the other tests mean something.
#[test]
fn much_memory_is_noticed() {
    let much = || in_little_memory(|| Vec::<u8>::with_capacity(MOST));
    assert!(std::panic::catch_unwind(much).is_err());
}
