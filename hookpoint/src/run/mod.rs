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
mod audience;
mod binding;
mod call;
mod call_hooks;
mod context;
mod counts;
mod current;
mod describe;
mod dispatch;
mod effects;
mod finished;
mod fire;
mod frame;
mod gradient;
mod keep;
mod leaf;
mod listeners;
mod listening;
mod member;
mod observe;
mod operand;
mod outcome;
mod points;
mod record;
mod replacement;
mod request;
mod result;
mod scan;
mod shapes;
mod stack;
mod state;
mod step;
mod until;
mod wanted;

pub use anew::{ByValue, Made, Often, Once, Written};
pub(crate) use audience::{Audience, Interests};
pub use binding::{bound, bound_ref};
pub use call::{before_call, before_forward, Before, BeforeForward, CallSite, CallToken};
pub use call_hooks::CallView;
pub(crate) use call_hooks::{modules_only, CallHookFn, When};
pub use context::HookCtx;
pub(crate) use current::{current, current_pass, with_pass, with_run};
pub(crate) use dispatch::Dispatch;
pub use effects::given;
pub(crate) use finished::{Finished, Met};
pub use frame::Entered;
#[cfg(test)]
pub(crate) use gradient::Taps;
pub(crate) use gradient::{Allows, BackwardPass, Nudge};
pub use gradient::{BackwardCall, OpSite};
pub use hookpoint_grad::rule::OpKind;
pub(crate) use listening::Listens;
pub use operand::{uses, Behind, Uses};
pub(crate) use points::{Capture, CaptureAny, Captures, Kept, Labels, NamedCall};
pub use record::side_effect;
pub use record::Rows;
pub(crate) use record::{Calls, Keeps, Log, LoggedCall, LoggedPoint, RecordedCall, Schedule, Tape};
pub(crate) use request::{Action, BackwardHookFn, HookFn, Request};
pub use request::{CacheAt, CacheOptions, IntoCaches};
pub(crate) use scan::{Scanned, SeenCall};
pub(crate) use shapes::{all_change, Learned};
pub(crate) use state::{Order, RunState};
pub use step::{with_step, Steps};
pub use wanted::wanted;
