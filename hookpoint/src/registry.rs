//! What is annotated in a program: every derived type and every instrumented method, with the names of its arguments and
//! values. Patterns are checked with it before a run, and models can be listed.
//!
//! ```
#![doc = include_str!("two_layers.txt")]
//! use hookpoint::registry::{hooked_methods, hooked_types};
//!
//! assert!(hooked_types().any(|known| known.name == "Mlp"));
//! let forward = hooked_methods().flat_map(|block| block.methods).find(|method| method.values.contains(&"hidden"));
//! assert_eq!(forward.map(|method| method.name), Some("forward"));
//! # Ok::<(), hookpoint::Error>(())
//! ```

pub use crate::tree::{hooked_methods, hooked_types, ImplInfo, MethodInfo, Owner, TypeInfo};
