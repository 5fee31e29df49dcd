//! What generated code calls. Not part of the public surface: it changes with the macros.

pub use inventory;
pub use typeid;

pub use crate::erased::{active, operations_wanted, Derived, Erased, Kept, Slot};
pub use crate::run::{
    before_call, before_forward, bound, bound_ref, given, uses, Before, BeforeForward, Behind, CallSite,
    CallToken, Entered, Made, OpKind, OpSite, Uses, Written,
};
pub use crate::tree::{Definition, Effects, FunctionInfo, ImplInfo, MethodInfo, Owner, TypeInfo};
pub use crate::value::{probe, AnyValue, DynamicOps, EachTensor, Place, Probe, ValueOps};

/// How often a call can be made, found out by method resolution: see `run/anew.rs`.
pub mod anew {
    pub use crate::run::{ByValue, Often, Once};
}

/// How the derive visits a field: as what it is, found out by method resolution, which prefers the
/// implementation that needs fewer dereferences. The types of fields are known, so that is safe here.
pub mod field {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, HashMap, VecDeque};
    use std::fmt::Display;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex, RwLock};

    use candle_core::{Module, ModuleT};

    use crate::tree::{AutoHook, ByModule, ByModuleT, MayChange, Step, Visitor};

    /// A field to be visited.
    pub struct Field<'f, T: ?Sized>(pub &'static str, pub &'f T);

    /// The field is a part of the model with points of its own.
    pub trait VisitHooked {
        /// Visits it.
        fn visit_field(&self, visitor: &mut Visitor<'_>);
    }
    impl<T: AutoHook + ?Sized> VisitHooked for &&&&&&Field<'_, T> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            visitor.field(self.0, self.1);
        }
    }

    /// The field is a module of somebody else's type.
    pub trait VisitModule {
        /// Visits it.
        fn visit_field(&self, visitor: &mut Visitor<'_>);
    }
    impl<T: Module> VisitModule for &&&&&Field<'_, T> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            visitor.foreign(self.0, |visitor| visitor.leaf::<T, ByModule>(self.1));
        }
    }

    /// The field holds modules of somebody else's type.
    pub trait VisitModules {
        /// Visits them.
        fn visit_field(&self, visitor: &mut Visitor<'_>);
    }

    /// One module inside a container.
    struct Inside<'m, T>(&'m T);

    impl<T: Module> AutoHook for Inside<'_, T> {
        fn visit(&self, visitor: &mut Visitor<'_>) {
            visitor.leaf::<T, ByModule>(self.0);
        }
    }

    macro_rules! containers {
        ($trait:ident $([$($generics:tt)*] $ty:ty: $visit:expr;)*) => { $(
            impl<T: Module, $($generics)*> $trait for &&&&Field<'_, $ty> {
                fn visit_field(&self, visitor: &mut Visitor<'_>) {
                    let visit: fn(&$ty, &mut Visitor<'_>) = $visit;
                    visitor.foreign(self.0, |visitor| visit(self.1, visitor));
                }
            }
        )* };
    }
    containers! { VisitModules
        [] Option<T>: |o, v| each_some(o, v);
        [] &T: |m, v| Inside(*m).visit(v);
        [] Box<T>: |b, v| boxed(b, &**b, v);
        [] Arc<T>: |b, v| boxed(b, &**b, v);
        [] Rc<T>: |b, v| boxed(b, &**b, v);
        [] RefCell<T>: |c, v| v.cell(|v| each_some(c.try_borrow().ok().as_deref(), v));
        [] Mutex<T>: |m, v| v.cell(|v| each_some(m.try_lock().ok().as_deref(), v));
        [] RwLock<T>: |m, v| v.cell(|v| each_some(m.try_read().ok().as_deref(), v));
        [] Vec<T>: |list, v| each_item(list, v);
        [] VecDeque<T>: |list, v| each_item(list, v);
        [const N: usize] [T; N]: |list, v| each_item(list, v);
        [K: Display + Ord] BTreeMap<K, T>: |map, v| map.iter().for_each(|(k, m)| v.key(k, &Inside(m)));
        [K: Display] HashMap<K, T>: |map, v| each_sorted(map, v);
    }
    // A container of containers might be a container of modules, for all that the compiler knows of
    // one trait; of two, it takes the one that holds.
    containers! { VisitModule
        [] Option<Box<T>>: |o, v| o.iter().for_each(|b| boxed(b, &**b, v));
        [] Option<Arc<T>>: |o, v| o.iter().for_each(|b| boxed(b, &**b, v));
        [] Option<Vec<T>>: |o, v| o.iter().for_each(|list| each_item(list, v));
        [] Vec<Box<T>>: |list, v| nested(list, v, |b, v| boxed(b, &**b, v));
        [] Vec<Arc<T>>: |list, v| nested(list, v, |b, v| boxed(b, &**b, v));
        [] Vec<Option<T>>: |list, v| nested(list, v, |o, v| each_some(o, v));
        [] Vec<Vec<T>>: |list, v| nested(list, v, |inner, v| each_item(inner, v));
        [] Arc<Mutex<T>>: |m, v| v.cell(|v| each_some(m.try_lock().ok().as_deref(), v));
        [] Arc<RwLock<T>>: |m, v| v.cell(|v| each_some(m.try_read().ok().as_deref(), v));
        [] Rc<RefCell<T>>: |c, v| v.cell(|v| each_some(c.try_borrow().ok().as_deref(), v));
    }

    fn each_some<'m, T: Module + 'm>(one: impl IntoIterator<Item = &'m T>, visitor: &mut Visitor<'_>) {
        one.into_iter().for_each(|module| Inside(module).visit(visitor));
    }

    fn each_item<'m, T: Module + 'm>(list: impl IntoIterator<Item = &'m T>, visitor: &mut Visitor<'_>) {
        list.into_iter().enumerate().for_each(|(index, module)| visitor.item(index, &Inside(module)));
    }

    fn each_sorted<K: Display, T: Module>(map: &HashMap<K, T>, visitor: &mut Visitor<'_>) {
        let mut entries: Vec<(String, &T)> =
            map.iter().map(|(key, value)| (key.to_string(), value)).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.iter().for_each(|(key, module)| visitor.key(key, &Inside(*module)));
    }

    fn nested<C>(list: &[C], visitor: &mut Visitor<'_>, each: impl Fn(&C, &mut Visitor<'_>)) {
        for (index, inner) in list.iter().enumerate() {
            visitor.step(Step::Item(index), |visitor| each(inner, visitor));
        }
    }

    /// A module of size zero is known by its box.
    fn boxed<B, T: Module>(holder: &B, module: &T, visitor: &mut Visitor<'_>) {
        visitor.also_at(holder);
        Inside(module).visit(visitor);
    }

    /// The field is a module that is called with a flag for training.
    pub trait VisitModuleT {
        /// Visits it.
        fn visit_field(&self, visitor: &mut Visitor<'_>);
    }
    impl<T: ModuleT> VisitModuleT for &&&Field<'_, T> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            visitor.foreign(self.0, |visitor| visitor.leaf::<T, ByModuleT>(self.1));
        }
    }

    /// The field is neither, and is known to hold a cell or a lock, or not to: a size, a list of numbers behind a lock.
    pub trait PassOverKnown {
        /// Notes its state.
        fn note_state(&self, visitor: &mut Visitor<'_>);

        /// Passes over it.
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            self.note_state(visitor);
        }
    }
    impl<T: MayChange + ?Sized> PassOverKnown for &&Field<'_, T> {
        fn note_state(&self, visitor: &mut Visitor<'_>) {
            match T::CHANGES {
                true => visitor.has_state(),
                false => visitor.number(self.0, || self.1.bits()),
            }
        }
    }

    /// The field is neither, and can be shared between threads: a config, a span. Cells cannot. What is behind a lock of
    /// such a type is not seen.
    pub trait PassOverShared {
        /// There is none that is seen.
        fn note_state(&self, _: &mut Visitor<'_>) {}

        /// Passes over it.
        fn visit_field(&self, _: &mut Visitor<'_>) {}
    }
    impl<T: Sync + ?Sized> PassOverShared for &Field<'_, T> {}

    /// The same, behind a pointer that cannot be shared itself.
    pub trait PassOverCounted {
        /// There is none that is seen.
        fn note_state(&self, _: &mut Visitor<'_>) {}

        /// Passes over it.
        fn visit_field(&self, _: &mut Visitor<'_>) {}
    }
    impl<T: Sync + ?Sized> PassOverCounted for &Field<'_, Rc<T>> {}

    /// The field is neither, and may hold a cell: it cannot be shared between threads, or nobody knows.
    pub trait PassOver {
        /// Notes its state.
        fn note_state(&self, visitor: &mut Visitor<'_>);

        /// Passes over it.
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            self.note_state(visitor);
        }
    }
    impl<T: ?Sized> PassOver for Field<'_, T> {
        fn note_state(&self, visitor: &mut Visitor<'_>) {
            visitor.has_state();
        }
    }
}

/// What a generic type is defined as, where it derives `AutoHook`. It is asked with any parameters.
pub mod definition {
    use std::marker::PhantomData;

    use crate::tree::{Definition, TypeInfo};

    /// A type.
    pub struct Of<T: ?Sized>(PhantomData<T>);

    impl<T: ?Sized> Of<T> {
        /// It.
        pub const NEW: Self = Of(PhantomData);
    }

    /// It derives `AutoHook`.
    pub trait Defined {
        /// Its definition.
        fn definition(&self) -> Option<&'static TypeInfo>;
    }
    impl<T: Definition + ?Sized> Defined for &Of<T> {
        fn definition(&self) -> Option<&'static TypeInfo> {
            Some(T::definition())
        }
    }

    /// It does not.
    pub trait Undefined {
        /// None.
        fn definition(&self) -> Option<&'static TypeInfo> {
            None
        }
    }
    impl<T: ?Sized> Undefined for Of<T> {}
}

/// How `derive(HookValue)` visits a field.
pub mod part {
    use crate::error::Result;
    use crate::value::{EachTensor, HookValue, Place};

    /// A field to be visited.
    pub struct Part<'f, T: ?Sized>(pub &'static str, pub &'f mut T);

    /// The field may hold tensors.
    pub trait VisitTensors {
        /// Visits them.
        fn visit_part(self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()>;
    }
    impl<T: HookValue> VisitTensors for Part<'_, T> {
        fn visit_part(self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()> {
            place.at(&self.0, self.1, f)
        }
    }

    /// Nothing is known of the field.
    pub trait PassOver {
        /// Passes over it.
        fn visit_part(&self, place: &mut Place, f: &mut EachTensor<'_>) -> Result<()>;
    }
    impl<T: ?Sized> PassOver for Part<'_, T> {
        fn visit_part(&self, _: &mut Place, _: &mut EachTensor<'_>) -> Result<()> {
            Ok(())
        }
    }
}

/// A copy of a value of a derived type, where it can be cloned.
pub mod copy {
    use crate::value::AnyValue;

    /// A value to be copied.
    pub struct Copy<'v, T>(pub &'v T);

    /// It can be cloned.
    pub trait CanCopy {
        /// Copies it.
        fn copy_value(&self) -> Option<AnyValue>;
    }
    impl<T: Clone + Send + Sync + 'static> CanCopy for &Copy<'_, T> {
        fn copy_value(&self) -> Option<AnyValue> {
            Some(AnyValue::of(self.0))
        }
    }

    /// It cannot.
    pub trait CannotCopy {
        /// Does nothing.
        fn copy_value(&self) -> Option<AnyValue>;
    }
    impl<T> CannotCopy for Copy<'_, T> {
        fn copy_value(&self) -> Option<AnyValue> {
            None
        }
    }
}
