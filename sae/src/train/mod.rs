//! Training, on activations from anywhere: `source` gives rows, `gradients` says where parameters have to go, `adam`
//! moves them, `resample` revives features, `trainer` is the loop, `checkpoint` stops and goes on.

mod adam;
mod checkpoint;
mod dense;
mod gradients;
mod numbers;
mod options;
mod parameters;
mod resample;
mod source;
mod sparse;
mod trainer;

#[cfg(test)]
mod tests;

pub use options::{Resample, TrainOptions};
pub use source::{Live, Numbered, Rows};
pub use trainer::{Progress, Trainer};
