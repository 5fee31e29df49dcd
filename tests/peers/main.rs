//! The libraries that this one learned from: each of their documented features, under a name that their
//! users recognize, and each of their faults, not happening here.
//!
//! The device comes from `HOOKPOINT_DEVICE` (`cpu`, `cuda:0`, `metal`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Short ways to make tensors and layers.
mod tensors;

mod auto_hookpoint;
mod auto_hookpoint_faults;
mod coming_from;
mod maxpool;
mod nice_hooks;
mod nice_hooks_faults;
mod tacklebox;
mod tacklebox_faults;
/// Scopes of tacklebox's kind, in whichever way they are nested.
mod tacklebox_scopes;
mod tacklebox_tracker;
mod torch_hook_utils;
mod torch_hook_utils_faults;
