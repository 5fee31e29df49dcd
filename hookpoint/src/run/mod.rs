//! One run of a model.
//!
//! Generated code calls in at a **site**, and the thread's current [`RunState`] answers (see [`current`]):
//!
//! | site | says |
//! | --- | --- |
//! | `frame` | an annotated method is entered, has a result, is left |
//! | `argument`, `arguments` | what it is given, one by one or all at once |
//! | `call`, `anew` | a foreign module is about to be called, and what it gave |
//! | `operand` | a value is bound to a name; an operation is done, with a parameter perhaps |
//!
//! All of them end in `fire`, which does at a point what the plan wants there (`call_hooks` with all values of a call at
//! once, `any` with values that are no tensors), and tell the built-in listeners, each of which has its state to itself:
//! `until` ends a run that only collects, `scan` notes points and call sites, `shapes` knows which modules need not run,
//! `record` notes calls and answers them, `gradient` sees to it that a backward pass is right. `listeners` tells those of
//! the user. `listening` says who of them listens in a run.

mod anew;
mod any;
mod argument;
mod arguments;
mod call;
mod call_hooks;
mod context;
mod counts;
mod current;
mod dispatch;
mod effects;
mod finished;
mod fire;
mod frame;
mod gradient;
mod keep;
mod key;
mod listeners;
mod listening;
mod member;
mod operand;
mod outcome;
mod points;
mod record;
mod replacement;
mod request;
mod scan;
mod shapes;
mod stack;
mod state;
mod step;
mod until;
mod wanted;

pub use anew::{ByValue, Made, Often, Once, Written};
pub use call::{before_call, before_forward, Before, BeforeForward, CallSite, CallToken};
pub use call_hooks::CallView;
pub(crate) use call_hooks::{modules_only, CallHookFn, When};
pub use context::HookCtx;
pub(crate) use current::{current, current_pass, with_pass, with_run};
pub(crate) use dispatch::{select as select_nodes, Dispatch};
pub(crate) use finished::{Finished, Met};
pub use frame::Entered;
#[cfg(test)]
pub(crate) use gradient::Taps;
pub(crate) use gradient::{Allows, BackwardPass};
pub use gradient::{BackwardCall, OpSite};
pub use hookpoint_grad::rule::OpKind;
pub(crate) use key::{PointKey, Slot32};
pub(crate) use listeners::{Audience, Interests};
pub(crate) use listening::Listens;
pub use operand::{bound, bound_ref, uses, Behind, Uses};
pub(crate) use points::{Capture, CaptureAny, Captures, Kept, Labels};
pub use record::side_effect;
pub(crate) use record::{Keeps, Log, LoggedCall, LoggedPoint, Tape};
pub(crate) use request::{Action, BackwardHookFn, HookFn, Request};
pub use request::{CacheAt, CacheOptions, IntoCaches};
pub(crate) use scan::{Scanned, SeenCall};
pub(crate) use shapes::Learned;
pub(crate) use state::{Order, RunState};
pub use step::{with_step, Step, Steps};
pub use wanted::wanted;
