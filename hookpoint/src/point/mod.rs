//! What a point is: selected by a pattern, which may [mean](Meaning) several of its values; named for those who listen
//! ([`Point`], [`At`]); and numbered for the run ([`PointKey`]). Events tell what happens there, and a [`Listener`] hears them.

mod event;
mod key;
mod listener;
mod meaning;
mod member;
mod step;

pub use event::{At, Call, End, Operation, Point};
pub(crate) use key::{PointKey, Slot32};
pub use listener::{Answer, Interest, Listener};
pub(crate) use meaning::{is_part, Meaning, Selection};
pub(crate) use member::Member;
pub use step::Step;
