//! The engine, as its users meet it: every test runs a small annotated model.
//!
//! The device comes from `HOOKPOINT_DEVICE` (`cpu`, `cuda:0`, `metal`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The models that several modules use, and short ways to make tensors.
mod models;

/// Looking into a cache, and computing with caches.
mod cache;
/// The list of a model's points, and how it prints.
mod dict;
/// Caches in files.
mod files;
/// What is cached owns its memory.
mod ownership;
/// What a pattern selects in a model, and what happens when it selects nothing.
mod patterns;
/// What a pattern selects and a run does not reach.
mod unreached;
/// Values that are not tensors, and results with several.
mod values;

/// All inputs and outputs of a call at once.
mod calls;
/// Runs that end with the last wanted point.
mod collect;
/// What modules change besides their results: nothing of it is lost because a module is patched.
mod effects;
/// The inputs of modules, read and replaced.
mod inputs;
/// What listeners are told, and what they answer; profiles, and where NaN comes from.
mod listeners;
/// Tensors inside one value, which are told apart by name and never by a hash of it.
mod members;
/// Methods other than `forward`.
mod methods;
/// Parameters, which fire on what is computed with them.
mod parameters;
/// Replacing values: shapes, dtypes, parts.
mod patches;
/// Bindings that are references.
mod references;
/// Recordings for inputs whose rows are repeated, and models that are put back before every run.
mod repeated;
/// Modules that do not run because their output is replaced.
mod skip;
/// Steps of a generation, hooks that pass, and values that are made on demand.
mod steps;
/// Types without a `forward`.
mod without_forward;
/// Calls are made as the source writes them, with another input and in gradient runs, too.
mod written;

/// State behind cells and locks, whatever their types are called.
mod cells;
/// Values whose `clone` runs hooked code.
mod clones;
/// Generic types of one name.
mod generics;
/// Which module is meant: shared ones, empty ones, repeated ones, enums, containers.
mod identity;
/// Types that hold lifetimes, which are not known at run time.
mod lifetimes;
/// Models whose forward takes `&mut self`, and that change between runs.
mod state;

/// `check_auto_hook`: what it finds, and what it lets pass.
mod check;
/// Every kind of error, and how it gets out of the middle of candle code.
mod errors;
/// Threads, panics, nested runs, memory.
mod robustness;
