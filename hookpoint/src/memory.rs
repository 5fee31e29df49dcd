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

pub use crate::erased::{in_use, peak_of, CountingAllocator};

/// How many bytes the elements of a tensor take.
pub fn bytes_of(tensor: &candle_core::Tensor) -> usize {
    tensor.elem_count() * tensor.dtype().size_in_bytes()
}
