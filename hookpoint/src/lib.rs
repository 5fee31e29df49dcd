//! Hook points for [Candle](https://docs.rs/candle-core) models.
//!
//! Candle has no hooks: what happens inside a model's `forward` cannot be seen or changed from
//! outside. With two annotations on a model, every call of a submodule, every use of a parameter and
//! every named value inside its forward code becomes a **point** with a path. A run can read what is at
//! a point, change it, or replace it. No field, signature or type of the model changes, and a model
//! that nobody listens to computes what it computed before, bit for bit.
//!
//! ```
//! use candle_core::{DType, Device, Module, Result, Tensor};
//! use candle_nn::Linear;
//! use hookpoint::prelude::*;
//!
//! #[derive(AutoHook)]
//! struct Mlp { up: Linear, down: Linear, scale: Tensor }
//!
//! #[auto_hook]
//! impl Module for Mlp {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         let hidden = self.up.forward(x)?.gelu()?;
//!         self.down.forward(&hidden)?.broadcast_mul(&self.scale)
//!     }
//! }
//!
//! # fn main() -> hookpoint::Result<()> {
//! # let cpu = &Device::Cpu;
//! # let linear = |i, o| Tensor::randn(0f32, 1., (o, i), cpu).map(|weight| Linear::new(weight, None));
//! # let (up, down, scale) = (linear(4, 8)?, linear(8, 4)?, Tensor::ones(4, DType::F32, cpu)?);
//! let model = Hooked::new(Mlp { up, down, scale });
//! let x = Tensor::randn(0f32, 1., (2, 4), &Device::Cpu)?;
//!
//! // What is there to be hooked?
//! assert_eq!(model.hook_dict().keys().collect::<Vec<_>>(), ["", "up", "down", "scale"]);
//!
//! // Read all modules and parameters, and a value inside `forward`.
//! let (output, clean) = model.run_with_cache(["**", ":hidden"], |m| m.forward(&x))?;
//! assert_eq!(clean.keys().collect::<Vec<_>>(), ["up", ":hidden", "down", "scale", ""]);
//! assert_eq!(clean["up"].dims(), [2, 8]);
//! assert_eq!(clean[""].to_vec2::<f32>()?, output.to_vec2::<f32>()?);
//!
//! // Read, replace and change, all in one run.
//! let run = model
//!     .plan()
//!     .cache(":hidden")?
//!     .patch("up", &clean["up"].zeros_like()?)?
//!     .hook("down", |_, x| Ok(Some((x + 1.)?)))?
//!     .run(|m| m.forward(&x))?;
//! assert_eq!(run.cache[":hidden"].to_vec2::<f32>()?, [[0.; 8]; 2]);
//! assert_eq!(run.output.to_vec2::<f32>()?, [[1.; 4]; 2]);
//! # Ok(()) }
//! ```
//!
//! # Annotate
//!
//! A derive sees a type and not its methods, so there are two annotations.
//!
//! * [`#[derive(AutoHook)]`](derive@AutoHook) on a struct or enum finds its modules and parameters, also
//!   in `Option`, `Box`, `Arc`, `Vec`, maps, cells and locks. Fields that are neither need nothing.
//!   `#[hook(skip)]` leaves a field out, `#[hook(name = "..")]` renames it.
//! * [`#[auto_hook]`](auto_hook) on each `impl` block with forward code puts the points there.
//!   `#[hook(skip)]` leaves a method alone.
//! * [`#[derive(HookValue)]`](derive@HookValue) on a struct that a forward method returns makes the
//!   tensors inside it visible. Tuples, `Vec`, `Option` and maps need nothing.
//!
//! `hookpoint annotate`, the command of the crate `hookpoint-cli`, adds them to source that somebody
//! else wrote. [`Hooked::scan`] then shows every point that a run reaches, with shapes, and every call
//! of a module that is not one of the model's points.
//!
//! # Paths and patterns
//!
//! A point's path is made of field names, list positions and map keys; the root is the empty path. A
//! [`Pattern`] selects points:
//!
//! | pattern | selects |
//! | --- | --- |
//! | `blocks.3.attn` | the output of one module |
//! | `blocks.*.attn`, `blocks.{0,5}.mlp`, `**.c_proj` | the outputs of several |
//! | `**` | all modules and parameters, the root too |
//! | `blocks.3:in`, `blocks.3:in.1` | the first and the second tensor argument |
//! | `blocks.3:hidden` | what a `let` or an assignment in `forward`, or an argument, calls `hidden` |
//! | `blocks.3:encode`, `blocks.3:encode.hidden` | the result of another method, and a value inside it |
//! | `blocks.3:out.1` | the second tensor of a result that has several |
//! | `blocks.3#0` | its first call in a run |
//! | `blocks.3[:, -1]` | a part of the tensor |
//! | `blocks.3[*]` | each element of the first dimension by itself |
//!
//! A name that is bound several times has the points `hidden.0`, `hidden.1` and so on; `:hidden`
//! selects all of them. `blocks.0.attn.hook_pattern` and `fc1.hook_point`, as other libraries write
//! them, are understood. The [`pattern`] module has the whole grammar.
//!
//! # Runs
//!
//! [`Hooked`] owns the model, or borrows it, and starts runs. [`run_with_cache`](Hooked::run_with_cache)
//! and [`run_with_hooks`](Hooked::run_with_hooks) are the short forms. A [`Plan`] takes any number of
//! caches, hooks and patches, and can be run many times. At one point hooks act first, in the order in
//! which they were added, then patches, then the cache.
//!
//! * What a run does ends with it, by return, error or panic. Nothing stays on the model.
//! * A run belongs to one thread. Several threads can run one model with different plans at a time.
//!   Work that a forward method itself moves to another thread is not hooked.
//! * Inside a hook nothing is hooked, but a hook may start a run of its own.
//! * [`Plan::collect`] ends the run as soon as the last wanted value is there.
//! * A module whose whole output is patched is not executed if nothing inside it is wanted and the
//!   shape of its output is known; see [`Plan::patch`].
//! * A run may be a whole generation. The loop that generates announces its steps with [`with_step`];
//!   [`Steps`] limits a hook to some of them, with the same effect with and without a KV cache, and
//!   [`ActivationCache::join`] puts what was cached at each step side by side.
//! * Where `forward` takes `&mut self`, use [`plan_mut`](Hooked::plan_mut): the verbs are the same, and the closures
//!   get `&mut M`.
//!
//! # Hooks that stay
//!
//! A plan's hooks end with its run. Those of a [`HookManager`](manage::HookManager), which every `Hooked` has
//! ([`Hooked::manager`]), act in every run: they have names, are switched on and off by path, name and
//! category, for good or in scopes, are listed with how often they were called, and removed. A [`Tracker`](track::Tracker)
//! follows chosen points over many batches, keeping tensors within bounds or running statistics.
//! [`Plan::hook_call`] and its like see all inputs and outputs of a call at once.
//!
//! # Gradients
//!
//! [`Plan::cache_grad`] and [`Plan::hook_grad`] ask for the gradients at points, [`Plan::backward`] runs the
//! model and differentiates what the closure returns. Nothing in the model has to be a variable, values
//! are what they always are, and a run without a backward pass records nothing.
//!
//! ```
#![doc = include_str!("two_layers.txt")]
//! // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
//! let plan = model.plan().cache_grad(["up", ":hidden"])?.hook_grad("down", |_, grad| Ok(Some((grad * 3.)?)))?;
//! let run = plan.backward(|m| m.forward(&x)?.sum_all())?;
//! assert_eq!(run.grads[":hidden"].to_vec2::<f32>()?, [[3., 3.]]);
//! assert_eq!(run.grads["up"].to_vec2::<f32>()?, [[3., 0.]]);
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! A gradient that was asked for and cannot be had is an error that says why: the loss does not depend on
//! the point, or something on the way has no backward. The crate `hookpoint-interp` has attribution patching,
//! integrated gradients and gradient times activation.
//!
//! [`Plan::certify`] compares gradients with how the loss really changes, in a few more runs, and fails if they do not agree:
//! it finds what cannot be seen in code that is not annotated.
//!
//! # Caches
//!
//! An [`ActivationCache`] holds tensors by the names of their points, in the order in which they were
//! completed. It keeps every call of a point that is reached more than once. A cached part of a tensor
//! owns its memory and does not keep the rest alive. Caches can be subtracted, stacked, moved, saved and
//! loaded, and given to [`Plan::patch_all`]. [`CacheOptions`] moves or converts values as they are
//! taken. Values that are not tensors are read with [`get_any`](ActivationCache::get_any).
//!
//! # Errors
//!
//! Mistakes are errors, never silence: a pattern that does not parse or selects nothing, a request that
//! a run never reaches, a patch that does not fit. Each says what to do:
//!
//! ```
//! # use candle_nn::Linear;
//! # use hookpoint::prelude::*;
//! # #[derive(AutoHook)]
//! # struct Mlp { up: Linear, down: Linear }
//! # fn main() -> candle_core::Result<()> {
//! # use candle_core::{DType, Device, Tensor};
//! # let linear = || Tensor::zeros((4, 4), DType::F32, &Device::Cpu).map(|w| Linear::new(w, None));
//! # let model = Hooked::new(Mlp { up: linear()?, down: linear()? });
//! let Err(error) = model.plan().cache("dwn") else { unreachable!() };
//! let text = error.to_string();
//! assert!(text.starts_with("the pattern `dwn` selects nothing in this model"));
//! assert!(text.contains("did you mean") && text.contains("`down`"));
//! # Ok(()) }
//! ```
//!
//! An [`Error`] passes through code that returns `candle_core::Result` and comes out on the other side
//! as what it was. The closure given to a run may return any error that converts to a box, such as
//! `anyhow::Error`.
//!
//! # Devices
//!
//! Hooks and caches use public tensor operations only, so they work wherever candle does. The features
//! `cuda`, `cudnn`, `metal`, `mkl` and `accelerate` are passed on to candle; none is on by default.
//! Capturing does not synchronize a GPU. [`device`](device()) takes a device by name,
//! [`device_from_env`] from the variable `HOOKPOINT_DEVICE`.
//!
//! # Speed
//!
//! While nobody listens, a point is one load of a thread-local and one branch, and allocates nothing.
//! During a run, a point that nobody asked for is one look into a table. A cached value is shared with
//! the model and not copied, unless it is a window into something larger. The model is walked once,
//! when it is first needed; `&mut` access has it walked again.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod access;
pub mod check;
pub mod error;
pub mod listen;
pub mod manage;
pub mod memory;
pub mod pattern;
pub mod recording;
pub mod registry;
pub mod thread;
pub mod track;

mod cache;
mod capture;
mod convert;
mod device;
mod erased;
mod fingerprint;
mod hooked;
mod lookup;
mod nearest;
mod plan;
mod point;
mod report;
mod run;
mod select;
mod tree;
mod value;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use access::{Access, Lent};
pub use cache::{ActivationCache, Activations};
pub use check::{check_auto_hook, check_gradients};
pub use device::{device, device_from_env};
pub use error::{BoxedError, Error, ErrorKind, Result};
pub use hooked::Hooked;
pub use hookpoint_derive::{auto_hook, AutoHook, HookValue};
pub use listen::Listener;
pub use pattern::{Index, Pattern};
pub use plan::{GradRun, Plan, Run, Scan};
pub use point::Step;
pub use recording::Recording;
pub use run::{
    side_effect, wanted, with_step, BackwardCall, CacheAt, CacheOptions, CallView, HookCtx, IntoCaches, Steps,
};
pub use select::IntoPatterns;
pub use tree::{AutoHook, HookDict, HookEntry, Kind, Visitor};
pub use value::HookValue;

/// What visits the parts of models and values: for an [`AutoHook`](trait@AutoHook) or a [`HookValue`](trait@HookValue) that
/// is written by hand.
pub mod visit {
    pub use crate::tree::Visitor;
    pub use crate::value::{EachTensor, Place};
}

/// Everything that most programs need: `use hookpoint::prelude::*;`
pub mod prelude {
    pub use crate::{
        auto_hook, ActivationCache, AutoHook, HookCtx, HookDict, HookValue, Hooked, Pattern, Plan,
    };
}

/// Compiles and runs the code in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct ReadmeExample;
