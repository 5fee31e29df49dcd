//! What a run says, and to whom: a point is named for those who listen ([`Point`], [`At`]) and numbered for the run
//! ([`PointKey`]); events tell what happens there; a [`Listener`] hears them.

mod event;
mod key;
mod listener;
mod member;
mod step;

pub use event::{At, Call, End, Operation, Point};
pub(crate) use key::{PointKey, Slot32};
pub use listener::{Answer, Interest, Listener};
pub(crate) use member::Member;
pub use step::Step;
