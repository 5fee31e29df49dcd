//! Listeners: what hears everything that happens inside a model during a run.
//!
//! A hook is called at the points that a pattern selects. A [`Listener`] hears calls begin and end, values pass,
//! operations finish and gradients arrive, wherever it is [interested](Listener::interest). [`Plan::listen`] adds one
//! to a plan. Two come with the crate:
//!
//! - [`Profile`]: where the time goes, per module and per operation.
//! - [`NonFinite`]: where the first NaN or infinity comes from.
//!
//! ```
#![doc = include_str!("../two_layers.txt")]
//! // `model` is a `Hooked<Mlp>`: `up`, relu, `down`. Both layers keep their input; `x` is [[1, -2]].
//! use hookpoint::listen::Profile;
//!
//! let mut profile = Profile::new();
//! model.plan().listen(&mut profile)?.run(|m| m.forward(&x))?;
//! let names: Vec<&str> = profile.entries().map(|entry| entry.name()).collect();
//! assert!(names.contains(&"up") && names.contains(&"down"));
//! println!("{profile}");
//! # Ok::<(), hookpoint::Error>(())
//! ```
//!
//! [`Plan::listen`]: crate::Plan::listen

mod non_finite;
mod profile;

pub use crate::point::{Answer, At, Call, End, Interest, Listener, Operation, Point};
pub use non_finite::{Finding, NonFinite};
pub use profile::{Entry, Profile, What};
