//! What stands between a field and the modules in it. `Option`, boxes and cells add nothing to a
//! path, lists add an index, maps a key.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Display;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, RwLock, TryLockError};

use super::state::MayChange;
use super::visit::{AutoHook, Visitor};

impl<T: AutoHook + ?Sized> AutoHook for &T {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

impl<T: AutoHook + ?Sized> AutoHook for &mut T {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

impl<T: AutoHook> AutoHook for Option<T> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        if let Some(value) = self {
            value.visit(visitor);
        }
    }
}

macro_rules! boxes {
    ($($ty:ident),*) => { $(
        impl<T: AutoHook + ?Sized> AutoHook for $ty<T> {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                // Boxed values of size zero all live at one address: the box tells them apart.
                visitor.also_at(self);
                (**self).visit(visitor);
            }
        }
    )* };
}
boxes!(Box, Arc, Rc);

macro_rules! lists {
    ($($ty:ty),*) => { $(
        impl<T: AutoHook> AutoHook for $ty {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                for (index, value) in self.iter().enumerate() {
                    visitor.item(index, value);
                }
            }
        }
    )* };
}
lists!(Vec<T>, VecDeque<T>, [T]);

impl<T: AutoHook, const N: usize> AutoHook for [T; N] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}

impl<K: Display + Ord, T: AutoHook> AutoHook for BTreeMap<K, T> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (key, value) in self {
            visitor.key(key, value);
        }
    }
}

impl<K: Display, T: AutoHook, S> AutoHook for HashMap<K, T, S> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        // Sorted, so that a model prints the same way twice.
        let mut entries: Vec<_> = self.iter().map(|(key, value)| (key.to_string(), value)).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        for (key, value) in entries {
            visitor.key(&key, value);
        }
    }
}

/// Cells and locks: what they hold may be another the next time, whatever a field calls their type.
macro_rules! cells {
    ($($(?$unsized:ident)? $ty:ident: $visit:expr;)*) => { $(
        impl<T: AutoHook $(+ ?$unsized)?> AutoHook for $ty<T> {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                let visit: fn(&$ty<T>, &mut Visitor<'_>) = $visit;
                visitor.cell(|visitor| visit(self, visitor));
            }
        }
    )* };
}
cells! {
    ?Sized RefCell: |cell, visitor| {
        if let Ok(value) = cell.try_borrow() {
            value.visit(visitor);
        }
    };
    ?Sized Mutex: |lock, visitor| match lock.try_lock() {
        Ok(value) => value.visit(visitor),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().visit(visitor),
        Err(TryLockError::WouldBlock) => {}
    };
    ?Sized RwLock: |lock, visitor| match lock.try_read() {
        Ok(value) => value.visit(visitor),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().visit(visitor),
        Err(TryLockError::WouldBlock) => {}
    };
    OnceCell: |cell, visitor| {
        if let Some(value) = cell.get() {
            value.visit(visitor);
        }
    };
    OnceLock: |cell, visitor| {
        if let Some(value) = cell.get() {
            value.visit(visitor);
        }
    };
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: AutoHook),*> AutoHook for ($($name,)*) {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                $( visitor.item($index, &self.$index); )*
            }
        }
    };
}
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Types that hold neither modules nor parameters, so that containers may mix them with some that do.
macro_rules! nothing_inside {
    ($($ty:ty),* $(,)?) => { $(
        impl AutoHook for $ty {
            fn visit(&self, _: &mut Visitor<'_>) {}
        }
    )* };
}
nothing_inside!(
    (),
    u128,
    i128,
    std::path::PathBuf,
    std::time::Duration,
    candle_core::DType,
    candle_core::Device,
    candle_core::Shape,
    candle_core::Error,
);

/// Numbers and text, which a module computes with: a recording is good only while they stay.
macro_rules! numbers {
    ($($ty:ty),* $(,)?) => { $(
        impl AutoHook for $ty {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                visitor.number("", || self.bits());
            }
        }
    )* };
}
numbers!(bool, char, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64, String, str);

impl<T: ?Sized> AutoHook for PhantomData<T> {
    fn visit(&self, _: &mut Visitor<'_>) {}
}

impl<T> AutoHook for Cell<T> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.has_state();
    }
}
