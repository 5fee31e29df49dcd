//! Which types hold something that changes while it is only borrowed.
//!
//! The compiler is asked, so that it does not matter by which name a field calls its type. What stands here is known as it
//! is; of other types it is asked whether threads may share them, which they may not where there is a cell inside.

use std::cell::{Cell, LazyCell, OnceCell, RefCell, UnsafeCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{
    AtomicBool, AtomicI16, AtomicI32, AtomicI64, AtomicI8, AtomicIsize, AtomicPtr, AtomicU16, AtomicU32,
    AtomicU64, AtomicU8, AtomicUsize,
};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, RwLock};

use crate::fingerprint::Fingerprint;

/// A type of which it is known whether its values can change while they are only borrowed.
pub trait MayChange {
    /// Can they?
    const CHANGES: bool;

    /// A number that stands for the value, where it is made of numbers and text alone.
    fn bits(&self) -> Option<u64> {
        None
    }
}

macro_rules! known {
    ($changes:expr; $([$($generics:tt)*] $ty:ty;)*) => { $(
        impl<$($generics)*> MayChange for $ty {
            const CHANGES: bool = $changes;
        }
    )* };
}
known! { true;
    [T: ?Sized] Cell<T>; [T: ?Sized] RefCell<T>; [T: ?Sized] UnsafeCell<T>; [T] OnceCell<T>; [T, F] LazyCell<T, F>;
    [T: ?Sized] Mutex<T>; [T: ?Sized] RwLock<T>; [T] OnceLock<T>; [T, F] LazyLock<T, F>;
    [] AtomicBool; [] AtomicI8; [] AtomicI16; [] AtomicI32; [] AtomicI64; [] AtomicIsize; [] AtomicU8; [] AtomicU16;
    [] AtomicU32; [] AtomicU64; [] AtomicUsize; [T] AtomicPtr<T>;
}
// Tensors hold a lock, and a write to one is noticed where it happens.
known! { false;
    [] u128; [] i128; [] (); [T: ?Sized] PhantomData<T>; [] candle_core::Tensor; [] candle_core::Var; [] candle_core::DType; [] candle_core::Device;
    [] candle_core::Shape;
}
macro_rules! numbers {
    ($($ty:ty: $value:ident => $bits:expr;)*) => { $(
        impl MayChange for $ty {
            const CHANGES: bool = false;
            fn bits(&self) -> Option<u64> {
                let $value = self;
                Some($bits)
            }
        }
    )* };
}
numbers! {
    bool: x => u64::from(*x); char: x => u64::from(*x);
    u8: x => u64::from(*x); u16: x => u64::from(*x); u32: x => u64::from(*x); u64: x => *x; usize: x => *x as u64;
    i8: x => *x as u64; i16: x => *x as u64; i32: x => *x as u64; i64: x => *x as u64; isize: x => *x as u64;
    f32: x => u64::from(x.to_bits()); f64: x => x.to_bits();
    str: x => of_text(x); String: x => of_text(x);
}

fn of_text(text: &str) -> u64 {
    let mut bits = Fingerprint::default();
    bits.text(text);
    bits.number()
}

/// Of a list, or of something that may be missing.
fn of_all<'t, T: MayChange + 't>(all: impl Iterator<Item = &'t T>) -> Option<u64> {
    let mut bits = Fingerprint::default();
    for one in all {
        bits.word(one.bits()?);
    }
    Some(bits.number())
}

macro_rules! lists {
    ($([$($generics:tt)*] $ty:ty;)*) => { $(
        impl<$($generics)*> MayChange for $ty {
            const CHANGES: bool = T::CHANGES;
            fn bits(&self) -> Option<u64> {
                of_all(self.iter())
            }
        }
    )* };
}
lists! { [T: MayChange] Option<T>; [T: MayChange] [T]; [T: MayChange, const N: usize] [T; N]; [T: MayChange] Vec<T>; }

known! { T::CHANGES;
    [T: MayChange + ?Sized] &T; [T: MayChange + ?Sized] &mut T; [T: MayChange + ?Sized] Box<T>;
    [T: MayChange + ?Sized] Arc<T>; [T: MayChange + ?Sized] Rc<T>; [T: MayChange] VecDeque<T>;
    [T: MayChange] BTreeSet<T>; [T: MayChange, S] HashSet<T, S>;
}
known! { K::CHANGES || V::CHANGES;
    [K: MayChange, V: MayChange, S] HashMap<K, V, S>; [K: MayChange, V: MayChange] BTreeMap<K, V>;
    [K: MayChange, V: MayChange] (K, V); [K: MayChange, V: MayChange] Result<K, V>;
}
known! { A::CHANGES; [A: MayChange] (A,); }
known! { A::CHANGES || B::CHANGES || C::CHANGES; [A: MayChange, B: MayChange, C: MayChange] (A, B, C); }
known! { A::CHANGES || B::CHANGES || C::CHANGES || D::CHANGES;
    [A: MayChange, B: MayChange, C: MayChange, D: MayChange] (A, B, C, D);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_changes_where_something_in_it_does() {
        type Shared<T> = Arc<Mutex<T>>;
        fn changes<T: MayChange + ?Sized>() -> bool {
            T::CHANGES
        }
        struct Anything;
        let yes = [
            changes::<Shared<Anything>>(),
            changes::<Rc<Cell<Anything>>>(),
            changes::<Option<Vec<Shared<Anything>>>>(),
            changes::<HashMap<String, AtomicUsize>>(),
            changes::<(u8, [OnceCell<Anything>; 2])>(),
            changes::<&RwLock<str>>(),
        ];
        assert_eq!(yes, [true; 6]);
        let no = [
            changes::<Vec<Option<candle_core::Tensor>>>(),
            changes::<HashMap<String, (u8, Arc<str>)>>(),
            changes::<PhantomData<Cell<u8>>>(),
        ];
        assert_eq!(no, [false; 3]);
    }
}
