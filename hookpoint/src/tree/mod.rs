//! What a model consists of: the walk over it, the index it leaves behind, and its printed form.

mod containers;
mod dict;
mod index;
mod layers;
mod leaves;
pub(crate) mod registry;
mod state;
mod visit;

pub use dict::{HookDict, HookEntry, Kind};
pub(crate) use registry::is_annotated;
pub use registry::{
    hooked_methods, hooked_types, Definition, Effects, FunctionInfo, ImplInfo, MethodInfo, Owner, TypeInfo,
};
pub use state::MayChange;
pub(crate) use visit::Step;
pub use visit::{AutoHook, Visitor};

pub(crate) use dict::{short_type, Seen};
pub(crate) use index::{Node, NodeId, Tree, Weight};
pub(crate) use layers::known_layer;
#[cfg(test)]
pub(crate) use leaves::ByNamedModule;
pub(crate) use leaves::{ByModule, ByModuleT};
