//! Values of any type that can be copied.

use std::any::{Any, TypeId};
use std::sync::Arc;

use super::paused;

/// A copy of a value of any type, kept for `get_any`.
#[derive(Clone)]
pub struct AnyValue {
    pub(crate) value: Arc<dyn Any + Send + Sync>,
    pub(crate) type_name: &'static str,
    put: fn(&dyn Any, &mut dyn Any) -> bool,
}

impl AnyValue {
    /// Copies `value`. A `clone` is the user's own code, and what it does is no part of a run.
    pub fn of<V: Clone + Send + Sync + 'static>(value: &V) -> Self {
        Self {
            value: Arc::new(paused(|| value.clone())),
            type_name: std::any::type_name::<V>(),
            put: |value, place| match (value.downcast_ref::<V>(), place.downcast_mut::<V>()) {
                (Some(value), Some(place)) => {
                    paused(|| place.clone_from(value));
                    true
                }
                _ => false,
            },
        }
    }

    /// Is it of this type?
    pub(crate) fn is(&self, type_id: TypeId) -> bool {
        (*self.value).type_id() == type_id
    }

    /// Puts a copy into `place`, if it is of this type.
    pub(crate) fn put(&self, place: &mut dyn Any) -> bool {
        (self.put)(&*self.value, place)
    }
}
