//! Support for the benchmarks.
