//! Hook points for Candle models.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

// Generated code calls the crate by its name, in its own tests too.
#[cfg(test)]
extern crate self as hookpoint;

pub mod error;
pub mod pattern;

mod cache;
mod device;
mod hooked;
mod plan;
mod raw;
mod run;
mod select;
mod tree;
mod value;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use cache::{ActivationCache, Activations};
pub use device::{device, device_from_env, DEVICE_VARIABLE};
pub use error::{Error, ErrorKind, Result};
pub use hooked::{Hooked, Scan};
pub use hookpoint_derive::{auto_hook, AutoHook, HookValue};
pub use pattern::{Index, Pattern};
pub use plan::{Plan, Run};
pub use run::{CacheOptions, HookCtx};
pub use select::IntoPatterns;
pub use tree::{
    hooked_methods, hooked_types, AutoHook, HookDict, HookEntry, ImplInfo, Kind, MethodInfo, Owner, TypeInfo,
    Visitor,
};
pub use value::HookValue;

/// Everything that most programs need.
pub mod prelude {
    pub use crate::{
        auto_hook, ActivationCache, AutoHook, HookCtx, HookDict, HookValue, Hooked, Pattern, Plan,
    };
}
