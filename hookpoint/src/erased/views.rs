//! The types through which a module can be reached, and how.

use std::any::TypeId;
use std::ptr;

/// A type through which a module of type `T` can be reached.
pub(super) trait View<T: ?Sized> {
    fn view(&self) -> Option<&T>;

    /// The box that holds the module, if it is not the receiver itself.
    fn holder(&self) -> Option<(*const (), TypeId)> {
        None
    }

    /// Is there a box around the module?
    const BOXED: bool;
}

fn place<B>(holder: &B) -> (*const (), TypeId) {
    (ptr::from_ref(holder).cast(), typeid::of::<B>())
}

/// Stands for `T` itself, which as a blanket implementation would overlap with the others.
#[repr(transparent)]
pub(super) struct Itself<T: ?Sized>(T);

impl<T> View<T> for Itself<T> {
    fn view(&self) -> Option<&T> {
        Some(&self.0)
    }

    const BOXED: bool = false;
}

macro_rules! views {
    ($boxed:literal: $($ty:ty),* $(,)?) => { $(
        impl<'a, T: ?Sized + 'a> View<T> for $ty {
            fn view(&self) -> Option<&T> {
                Some(self)
            }

            const BOXED: bool = $boxed;
        }
    )* };
}
views!(
    false:
    &'a T,
    &'a mut T,
    &'a &'a T,
    &'a mut &'a T,
    &'a &'a mut T,
    &'a mut &'a mut T,
    std::cell::Ref<'a, T>,
    std::cell::RefMut<'a, T>,
    std::sync::MutexGuard<'a, T>,
    std::sync::RwLockReadGuard<'a, T>,
    std::sync::RwLockWriteGuard<'a, T>,
);
views!(true: Box<T>, std::sync::Arc<T>, std::rc::Rc<T>);

macro_rules! boxed_views {
    ($($ty:ty),* $(,)?) => { $(
        impl<'a, T: ?Sized + 'a> View<T> for $ty {
            fn view(&self) -> Option<&T> {
                Some(self)
            }

            fn holder(&self) -> Option<(*const (), TypeId)> {
                Some(place(&**self))
            }

            const BOXED: bool = true;
        }
    )* };
}
boxed_views!(
    &'a Box<T>,
    &'a mut Box<T>,
    &'a std::sync::Arc<T>,
    &'a mut std::sync::Arc<T>,
    &'a std::rc::Rc<T>,
);

macro_rules! optional_views {
    ($($ty:ty: $get:expr, $holder:expr;)*) => { $(
        impl<'a, T: ?Sized + 'a> View<T> for $ty {
            fn view(&self) -> Option<&T> {
                let get: fn(&Self) -> Option<&T> = $get;
                get(self)
            }

            fn holder(&self) -> Option<(*const (), TypeId)> {
                let holder: fn(&Self) -> Option<(*const (), TypeId)> = $holder;
                holder(self)
            }

            const BOXED: bool = true;
        }
    )* };
}
optional_views!(
    Option<&'a T>: |o| o.as_deref(), |_| None;
    &'a Option<&'a T>: |o| o.as_deref(), |_| None;
    Option<&'a mut T>: |o| o.as_deref(), |_| None;
    Option<&'a Box<T>>: |o| o.map(|boxed| &**boxed), |o| o.map(place);
    &'a Option<&'a Box<T>>: |o| o.map(|boxed| &**boxed), |o| o.map(place);
    Option<&'a std::sync::Arc<T>>: |o| o.map(|shared| &**shared), |o| o.map(place);
    &'a Option<&'a std::sync::Arc<T>>: |o| o.map(|shared| &**shared), |o| o.map(place);
);
