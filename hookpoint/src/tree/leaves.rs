//! Candle's own layers, and trait objects: called as a whole, hooked where they are called.

use candle_core::{Module, ModuleT, Result, Tensor, Var};

use super::visit::{AutoHook, Visitor};
use crate::erased::Caller;

/// Calls through `Module::forward`.
pub struct ByModule;

impl<T: Module + ?Sized> Caller<T> for ByModule {
    fn call(module: &T, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        Some(module.forward(input))
    }
}

/// Calls through `ModuleT::forward_t`.
pub struct ByModuleT;

impl<T: ModuleT + ?Sized> Caller<T> for ByModuleT {
    const MINDS_TRAINING: bool = true;

    fn call(module: &T, input: &Tensor, train: bool) -> Option<Result<Tensor>> {
        Some(module.forward_t(input, train))
    }
}

/// Calls through `Module::forward` a type that is named here, with whatever lifetimes it has: the compiler has seen
/// that it is a module with all of them.
pub struct ByNamedModule;

impl<T: Module + ?Sized> Caller<T> for ByNamedModule {
    const FOR_ALL_LIFETIMES: bool = true;

    fn call(module: &T, input: &Tensor, _: bool) -> Option<Result<Tensor>> {
        Some(module.forward(input))
    }
}

/// The same through `ModuleT::forward_t`.
pub struct ByNamedModuleT;

impl<T: ModuleT + ?Sized> Caller<T> for ByNamedModuleT {
    const MINDS_TRAINING: bool = true;
    const FOR_ALL_LIFETIMES: bool = true;

    fn call(module: &T, input: &Tensor, train: bool) -> Option<Result<Tensor>> {
        Some(module.forward_t(input, train))
    }
}

/// Cannot be called with one tensor.
pub struct NotCallable;

impl<T: ?Sized> Caller<T> for NotCallable {
    fn call(_: &T, _: &Tensor, _: bool) -> Option<Result<Tensor>> {
        None
    }
}

macro_rules! leaves {
    ($caller:ty: $($ty:ty),* $(,)?) => { $(
        impl AutoHook for $ty {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                visitor.leaf::<_, $caller>(self);
            }
        }
    )* };
}

macro_rules! layers {
    (Module $ty:ty) => { leaves!(ByNamedModule: $ty); };
    (ModuleT $ty:ty) => { leaves!(ByNamedModuleT: $ty); };
    (Steps $ty:ty) => { leaves!(NotCallable: $ty); };
    ($($($path:ident)::+ : $by:ident;)*) => { $(layers!($by $($path)::+);)* };
}
hookpoint_grad::layers!(layers);

// Nobody can look into these.
leaves!(ByNamedModule: candle_nn::Sequential, candle_nn::Func<'_>);
leaves!(ByNamedModuleT: candle_nn::FuncT<'_>);

macro_rules! trait_objects {
    ($caller:ty: $($ty:ty),* $(,)?) => { $(
        impl AutoHook for $ty {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                visitor.leaf_dyn::<_, $caller>(self);
            }
        }
    )* };
}
trait_objects!(ByNamedModule: dyn Module + '_, dyn Module + Send + '_, dyn Module + Sync + '_, dyn Module + Send + Sync + '_);
trait_objects!(ByNamedModuleT: dyn ModuleT + '_, dyn ModuleT + Send + '_, dyn ModuleT + Sync + '_, dyn ModuleT + Send + Sync + '_);

impl AutoHook for Tensor {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter(self);
    }
}

impl AutoHook for Var {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter(self.as_tensor());
    }
}
