//! What generated code calls. Not part of the public surface: it changes with the macros.

pub use inventory;
pub use typeid;

pub use crate::raw::{active, Derived, Erased, Slot};
pub use crate::run::{before_call, bound, uses, Before, CallSite, CallToken, Entered, Uses};
pub use crate::tree::{ImplInfo, MethodInfo, Owner, TypeInfo};
pub use crate::value::{probe, AnyValue, DynamicOps, EachTensor, Place, Probe, ValueOps};

/// How the derive visits a field: as what it is, found out by method resolution, which prefers the
/// implementation that needs fewer dereferences. The types of fields are known, so that is safe here.
pub mod field {
    use candle_core::{Module, ModuleT};

    use crate::tree::{AutoHook, ByModule, ByModuleT, Visitor};

    /// A field to be visited.
    pub struct Field<'f, T: ?Sized>(pub &'static str, pub &'f T);

    /// The field is a part of the model with points of its own.
    pub trait VisitHooked {
        /// Visits it.
        fn visit_field(&self, visitor: &mut Visitor<'_>);
    }
    impl<T: AutoHook + ?Sized> VisitHooked for &&&&Field<'_, T> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            visitor.field(self.0, self.1);
        }
    }

    /// The field is a module of somebody else's type.
    pub trait VisitModule {
        /// Visits it.
        fn visit_field(&self, visitor: &mut Visitor<'_>);
    }
    impl<T: Module> VisitModule for &&&Field<'_, T> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            visitor.foreign(self.0, |visitor| visitor.leaf::<T, ByModule>(self.1));
        }
    }

    /// The field holds modules of somebody else's type.
    pub trait VisitModules {
        /// Visits them.
        fn visit_field(&self, visitor: &mut Visitor<'_>);
    }
    impl<T: Module> VisitModules for &&Field<'_, Option<T>> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            if let Some(module) = self.1 {
                visitor.foreign(self.0, |visitor| visitor.leaf::<T, ByModule>(module));
            }
        }
    }
    impl<T: Module> VisitModules for &&Field<'_, Box<T>> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            visitor.foreign(self.0, |visitor| visitor.leaf::<T, ByModule>(self.1));
        }
    }
    impl<T: Module> VisitModules for &&Field<'_, std::sync::Arc<T>> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            visitor.foreign(self.0, |visitor| visitor.leaf::<T, ByModule>(self.1));
        }
    }
    impl<T: Module> VisitModules for &&Field<'_, Vec<T>> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            visitor.foreign_list(self.0, self.1, |visitor, module| visitor.leaf::<T, ByModule>(module));
        }
    }

    /// The field is a module that is called with a flag for training.
    pub trait VisitModuleT {
        /// Visits it.
        fn visit_field(&self, visitor: &mut Visitor<'_>);
    }
    impl<T: ModuleT> VisitModuleT for &Field<'_, T> {
        fn visit_field(&self, visitor: &mut Visitor<'_>) {
            visitor.foreign(self.0, |visitor| visitor.leaf::<T, ByModuleT>(self.1));
        }
    }

    /// The field is neither: a size, a config, a span.
    pub trait PassOver {
        /// Passes over it.
        fn visit_field(&self, visitor: &mut Visitor<'_>);
    }
    impl<T: ?Sized> PassOver for Field<'_, T> {
        fn visit_field(&self, _: &mut Visitor<'_>) {}
    }
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
