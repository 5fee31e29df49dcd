//! Engines place, start, watch and retry workers. What is computed, and what counts, they do not decide.

pub(crate) mod slurm;
