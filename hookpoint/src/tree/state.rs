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

/// A type of which it is known whether its values can change while they are only borrowed.
pub trait MayChange {
    /// Can they?
    const CHANGES: bool;
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
    [] bool; [] char; [] u8; [] u16; [] u32; [] u64; [] u128; [] usize; [] i8; [] i16; [] i32; [] i64; [] i128;
    [] isize; [] f32; [] f64; [] str; [] String; [] (); [T: ?Sized] PhantomData<T>;
    [] candle_core::Tensor; [] candle_core::Var; [] candle_core::DType; [] candle_core::Device;
    [] candle_core::Shape;
}
known! { T::CHANGES;
    [T: MayChange + ?Sized] &T; [T: MayChange + ?Sized] &mut T; [T: MayChange + ?Sized] Box<T>;
    [T: MayChange + ?Sized] Arc<T>; [T: MayChange + ?Sized] Rc<T>; [T: MayChange] Option<T>; [T: MayChange] [T];
    [T: MayChange, const N: usize] [T; N]; [T: MayChange] Vec<T>; [T: MayChange] VecDeque<T>;
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
