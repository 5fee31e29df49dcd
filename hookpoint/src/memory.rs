//! How much memory is in use, where somebody counts.
//!
//! A library cannot see what a tensor operation allocates. A program can let it: with a [`CountingAllocator`] as
//! its allocator, a [`Profile`](crate::listen::Profile) knows it of every module, and the sweeps of `hookpoint-interp`
//! keep to their budget by it.
//!
//! ```
//! use std::alloc::System;
//! use hookpoint::memory::{self, CountingAllocator};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator<System> = CountingAllocator::new(System);
//!
//! let before = memory::in_use().unwrap();
//! let numbers = vec![1u8; 1 << 20];
//! assert!(memory::in_use().unwrap() >= before + numbers.len());
//! ```

pub use crate::raw::{in_use, peak_of, CountingAllocator};

/// How many bytes the elements of a tensor take.
pub fn bytes_of(tensor: &candle_core::Tensor) -> usize {
    tensor.elem_count() * tensor.dtype().size_in_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_the_measurement() {
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
